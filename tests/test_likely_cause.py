"""What is said of wrong launches, by their pattern: drift, NaN rows, a constant factor, the last tile, one dtype."""

from __future__ import annotations

import pytest
import torch

from tuner.check_plan import plan
from tuner.checking import check
from tuner.likely_cause import likely_cause
from tuner.operators import get
from tuner.precision import PrecisionProfile

SOFTMAX = get("softmax")
TILE = 32


def online(x, *, rescale=True, tail=True, guard=True, loss=0.0):
    """The online softmax of x in tiles of 32 columns, right but for what is switched off."""
    x = x.float()
    m = torch.full((x.shape[0], 1), float("-inf"))
    l = torch.zeros(x.shape[0], 1)  # noqa: E741
    end = x.shape[1] if tail else max(TILE, x.shape[1] // TILE * TILE)
    for start in range(0, end, TILE):
        tile = x[:, start : start + TILE]
        m_new = torch.maximum(m, tile.amax(dim=1, keepdim=True))
        safe = m_new.masked_fill(m_new.isneginf(), 0.0) if guard else m_new
        alpha = (m - safe).exp()
        l = (l * alpha * (1.0 - loss) if rescale else l) + (tile - safe).exp().sum(1, keepdim=True)  # noqa: E741
        m = m_new
    return (x - m).exp() / l


def cause_of(launch, dtype="bf16", cols=300, most=None):
    limits = {} if most is None else {"cols": most}
    problem = SOFTMAX.problem({"rows": 20, "cols": cols}, dtype)
    made = plan(
        SOFTMAX,
        problem,
        {"cols": TILE},
        limits,
        PrecisionProfile(dtype, dtype, tiles=-(-cols // TILE)),
        full_size=False,
    )
    report = check(launch, SOFTMAX, made, "cpu", 0)
    assert not report.passed
    return likely_cause(launch, SOFTMAX, made, limits, report.families[-1], "cpu", 0)


def test_a_sum_that_is_not_rescaled_is_right_with_one_tile_and_wrong_with_more():
    said = cause_of(lambda x, out: out.copy_(online(x, rescale=False)))
    assert "right with one tile, wrong with more: what is carried from tile to tile" in said


def test_a_lost_tail_shows_in_the_last_tile_only():
    assert "last tile only" in cause_of(lambda x, out: out.copy_(online(x, tail=False)))


@pytest.mark.parametrize(("cols", "most"), [(30, 1), (300, None)])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_lanes_past_the_end_that_are_loaded_as_zero_are_no_coarse_arithmetic(cols, most, dtype):
    def with_pads(x, out):
        padded = torch.nn.functional.pad(x, (0, -x.shape[1] % TILE))
        out.copy_(online(padded)[:, : x.shape[1]])

    said = cause_of(with_pads, dtype, cols, most)
    assert said.startswith("pads: right where cols fills its tiles, and the more lanes lie past its end the more wrong")
    assert "enters the row's maximum or sum; load -inf there" in said and SOFTMAX.coarse_arithmetic not in said


def test_arithmetic_that_is_coarse_is_not_laid_on_lanes_past_the_end():
    said = cause_of(lambda x, out: out.copy_(online(x).to(torch.bfloat16)), dtype="fp32", cols=30, most=1)
    assert SOFTMAX.coarse_arithmetic in said and "pads" not in said


def test_an_error_that_each_tile_adds_to_is_called_drift():
    said = cause_of(lambda x, out: out.copy_(online(x, loss=2.0**-12)))
    assert "drift that grows with the tile count: wrong from" in said
    in_fp32 = cause_of(lambda x, out: out.copy_(online(x, loss=2.0**-9)), dtype="fp32")
    assert "right with one tile, wrong with more" in in_fp32 and "the error grows with the tile count" in in_fp32


def test_a_sum_in_low_precision_is_no_constant_factor():
    said = cause_of(lambda x, out: out.copy_(online(x).to(torch.bfloat16)), dtype="fp32")
    assert "wrong with a single tile already" in said and "constant factor" not in said


def test_a_missing_guard_gives_nan_rows_where_tiles_are_masked():
    said = cause_of(lambda x, out: out.copy_(online(x, guard=False)))
    assert "NaN rows: -inf minus -inf" in said


def test_a_constant_factor_is_named():
    assert "a constant factor: 1.5" in cause_of(lambda x, out: out.copy_(1.5 * online(x)))


def test_a_bug_of_one_dtype_is_said_to_be_one():
    def truncates(x, out):
        y = online(x)
        if out.dtype is torch.bfloat16:
            y = (y.view(torch.int32) & -65536).view(torch.float32)
        out.copy_(y)

    assert "one dtype only: right in fp16 and fp32, wrong in bf16" in cause_of(truncates)


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        (lambda x, out: out[:, 1:].copy_(online(x)[:, 1:]), "a grid or a store's mask that leaves elements out"),
        (
            lambda x, out: (out.copy_(online(x)), out.as_strided((1,), (1,), out.storage_offset() - 1).fill_(0.0)),
            "a store without its mask",
        ),
        (lambda x, out: (out.copy_(online(x)), x.fill_(0.0)), "the kernel writes into its input"),
        (lambda x, out: out.zero_(), "nothing is written, or everything is masked"),
    ],
)
def test_what_memory_shows_is_said(launch, said):
    assert said in cause_of(launch)


def test_a_launch_that_takes_no_other_shape_is_said_nothing_false_about():
    def picky(x, out):
        if x.shape[1] % TILE == 0:
            raise ValueError("not for me")
        out.copy_(1.5 * online(x))

    assert cause_of(picky).startswith("a constant factor: 1.5")
