"""Attention over a cache: its problems, inputs, reference, bound, variations and classical errors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tuner.check_plan import plan
from tuner.errors import ProblemError, UsageError
from tuner.operators import attention_bound, get
from tuner.operators.decode_errors import PAGES_IN_ORDER
from tuner.operators.small_problems import integer_class
from tuner.own_kernel import read_own_kernel
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache

DECODE = get("attention_decode")
BF16 = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=4)
SHAPE = {"batch": 6, "heads": 4, "kv_heads": 2, "q_len": 3, "kv_len": 57, "head_dim": 32}
PAGED = {**SHAPE, "page_size": 16}
CACHES = pytest.mark.parametrize("shape", [SHAPE, PAGED], ids=["contiguous", "pages"])


def torch_decode(inputs, scale):
    """Out and log-sum-exp in float64, one sequence after the other, its tokens looked up one by one."""
    outs, sums = [], []
    for b, length in enumerate(inputs["seq_lens"].tolist()):
        q = inputs["q"][b].double()
        if "block_table" in inputs:
            size = inputs["k"].shape[1]
            where = [(int(inputs["block_table"][b, t // size]), t % size) for t in range(length)]
            k, v = (
                torch.stack([inputs[name][at] for at in where], 1) if where else inputs[name][0, :0].transpose(0, 1)
                for name in ("k", "v")
            )
        else:
            k, v = inputs["k"][b, :, :length], inputs["v"][b, :, :length]
        k, v = (t.double().repeat_interleave(q.shape[0] // t.shape[0], 0) for t in (k, v))
        s = scale * q @ k.transpose(1, 2)
        seen = torch.arange(length) <= torch.arange(q.shape[1])[:, None] + length - q.shape[1]
        s = s.masked_fill(~seen, float("-inf"))
        dead = ~seen.any(-1)
        weights = torch.softmax(s, -1).masked_fill(dead[:, None], 0.0)
        outs.append(weights @ v)
        lse = torch.logsumexp(s, -1) if length else torch.full(s.shape[:2], float("-inf"), dtype=torch.float64)
        # Of a logit of +inf torch makes a log-sum-exp of +inf; here it is NaN, as the row is.
        sums.append(lse.masked_fill(s.isposinf().any(-1), float("nan")))
    return torch.stack(outs), torch.stack(sums)


@CACHES
@pytest.mark.parametrize("family", DECODE.families(DECODE.problem(SHAPE, "bf16")))
def test_the_reference_is_torchs(family, shape):
    problem = DECODE.problem(shape, "bf16")
    inputs = DECODE.make_inputs(problem, family, 3, "cpu")
    reference = DECODE.reference(problem, inputs, BF16).outputs
    out, lse = torch_decode(inputs, 32**-0.5)
    torch.testing.assert_close(reference["out"].expected, out, rtol=1e-7, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(reference["lse"].expected, lse, rtol=1e-12, atol=1e-12, equal_nan=True)
    # What the cache holds beyond the lengths is no reason to expect NaN anywhere.
    assert reference["out"].has_nan == (family == "nonfinite")


def test_a_query_without_a_key_is_exact():
    problem = DECODE.problem(SHAPE, "bf16")
    inputs = DECODE.make_inputs(problem, "short", 0, "cpu")
    assert inputs["seq_lens"].tolist() == [0, 2, 1, 1, 4, 0]
    outputs = DECODE.reference(problem, inputs, BF16).outputs
    dead = torch.arange(3) < (3 - inputs["seq_lens"])[:, None].clamp(min=0)
    dead = dead[:, None].expand(6, 4, 3)
    assert int(dead.sum()) == 4 * (3 + 1 + 2 + 2 + 0 + 3)
    assert bool((outputs["out"].expected[dead] == 0).all()) and bool((outputs["out"].bound[dead] == 0).all())
    assert bool(outputs["lse"].expected[dead].isneginf().all()) and bool((outputs["lse"].bound[dead] == 0).all())
    assert bool(torch.isfinite(outputs["lse"].expected[~dead]).all())


@CACHES
def test_a_selection_of_a_large_problem_is_the_whole_of_it_there(monkeypatch, shape):
    problem = DECODE.problem({**shape, "kv_len": 600}, "bf16")
    inputs = DECODE.make_inputs(problem, "randn", 0, "cpu")
    whole = DECODE.reference(problem, inputs, BF16).outputs
    monkeypatch.setattr(attention_bound, "_WHOLE", 1)
    monkeypatch.setattr(attention_bound, "BLOCK_ELEMENTS", 40000)
    part = DECODE.reference(problem, inputs, BF16).outputs
    for name in ("out", "lse"):
        index = part[name].index
        torch.testing.assert_close(part[name].expected, whole[name].expected[index])
        torch.testing.assert_close(part[name].bound, whole[name].bound[index])
    assert {(b, h) for b, h in zip(*(axis.tolist() for axis in index[:2]), strict=True)} == {
        (b, h) for b in range(6) for h in range(4)
    }


def test_the_rms_check_is_asked_for_where_every_sequence_has_enough_keys():
    for kv_len, asked in ((1100, True), (400, False)):  # a sequence has a quarter of them at least
        problem = DECODE.problem({**SHAPE, "kv_len": kv_len, "batch": 12}, "bf16")
        inputs = DECODE.make_inputs(problem, "randn", 0, "cpu")
        assert (int(inputs["seq_lens"].min()) >= 256) == asked
        assert (DECODE.reference(problem, inputs, BF16).outputs["out"].variance is not None) == asked


@CACHES
@pytest.mark.parametrize("family", ["randn", "falling_far", "short", "needle"])
def test_the_cache_is_nan_beyond_each_length_and_finite_within(family, shape):
    problem = DECODE.problem(shape, "bf16")
    inputs = DECODE.make_inputs(problem, family, 0, "cpu")
    lengths = inputs["seq_lens"].tolist()
    if family != "short":
        assert all(14 <= length <= 57 for length in lengths) and len(set(lengths)) > 2
        assert lengths[0] == (42 if family == "falling_far" else 57)
    used = set()
    for b, length in enumerate(lengths):
        if "page_size" in shape:
            table = inputs["block_table"][b].tolist()
            pages = -(-length // 16)
            assert table[pages:] == [24] * (4 - pages)  # the page that holds nothing
            used |= set(table[:pages])
            k = inputs["k"][inputs["block_table"][b].long()].flatten(0, 1).transpose(0, 1)
        else:
            k = inputs["k"][b]
        assert bool(torch.isfinite(k[:, :length]).all()) and bool(k[:, length:].isnan().all())
    assert "page_size" not in shape or len(used) == sum(-(-length // 16) for length in lengths)


def test_pages_are_in_no_order_and_timing_uses_full_lengths():
    problem = DECODE.problem(PAGED, "fp16")
    inputs = DECODE.timing_inputs(problem, 0, "cpu")
    assert inputs["seq_lens"].tolist() == [57] * 6 and inputs["k"].shape == (25, 16, 2, 32)
    table = inputs["block_table"]
    assert table.dtype == torch.int32 and sorted(table.flatten().tolist()) == list(range(24))
    assert table.flatten().tolist() != list(range(24))
    assert not bool(inputs["k"].isnan().any())


@CACHES
@pytest.mark.parametrize("family", ["randn", "nonfinite", "short"])
def test_attention_of_varied_inputs_is_the_varied_attention(family, shape):
    problem = DECODE.problem(shape, "bf16")
    inputs = DECODE.make_inputs(problem, family, 0, "cpu")
    expected = dict(zip(("out", "lse"), torch_decode(inputs, 0.25), strict=True))
    moved = set()
    for seed in range(6):
        variation = DECODE.variation(problem, "cpu", seed)
        given = {name: torch.empty_like(tensor) for name, tensor in inputs.items()}
        variation.apply(inputs, given)
        moved.add(tuple(given["seq_lens"].tolist()))
        got = dict(zip(("out", "lse"), torch_decode(given, 0.25), strict=True))
        for name, want in expected.items():
            back = torch.empty_like(want)
            variation.undo(name, got[name], back)
            torch.testing.assert_close(back, want, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert len(moved) > 1


@CACHES
def test_the_invariant_holds_for_right_outputs_and_not_where_one_is_off(shape):
    problem = DECODE.problem(shape, "bf16")
    inputs = DECODE.make_inputs(problem, "randn", 0, "cpu")
    invariant = DECODE.invariant(problem, inputs, BF16)
    out, _ = torch_decode({**inputs, **invariant.inputs}, 32**-0.5)
    right = {"out": out.to(torch.bfloat16)}
    assert float(invariant.excess(right)) < 1.0
    right["out"][2, 3, 1, 7] *= 1.05
    assert float(invariant.excess(right)) > 1.0


@pytest.mark.parametrize("page_size", [0, 16])
def test_the_inputs_show_every_classical_error(page_size):
    tuned = DECODE.problem({**SHAPE, "kv_len": 300, "head_dim": 16, "page_size": page_size}, "bf16")
    tiles = {"kv_len": 32}
    checks = plan(DECODE, tuned, tiles, {}, replace(BF16, tiles=10), full_size=False)
    errors = DECODE.classical_errors(checks.checks[0].problem, tiles)
    assert {"splits merged in base 2", "splits averaged", "acc not rescaled", "mask aligned at the top left"} <= {
        *errors
    }
    assert (PAGES_IN_ORDER in errors) == bool(page_size)
    assert hidden_errors(DECODE, checks, "cpu", 0, ReferenceCache()) == ()


def test_a_right_answer_is_no_error():
    """What the errors are planted in is right: each is seen for itself."""
    problem = DECODE.problem(PAGED, "bf16")
    inputs = DECODE.make_inputs(problem, "randn", 0, "cpu")
    reference = DECODE.reference(problem, inputs, BF16).outputs
    for name, (place, got) in DECODE.wrong_answer(problem, inputs, "none of them", {"kv_len": 16}).items():
        torch.testing.assert_close(got, reference[name].expected[place])


@pytest.mark.parametrize("same_binary", [True, False])
@pytest.mark.parametrize(
    ("kv_len", "batch", "q_len", "page_size", "tile"),
    [(4096, 8, 1, 0, 64), (1001, 1, 16, 48, 32), (130, 64, 2, 256, 128)],
)
def test_small_problems_are_ragged_whole_and_long_and_keep_what_is_compiled_in(
    kv_len, batch, q_len, page_size, tile, same_binary
):
    shape = {"batch": batch, "heads": 32, "kv_heads": 8, "q_len": q_len, "kv_len": kv_len, "head_dim": 64}
    tuned = DECODE.problem({**shape, "page_size": page_size}, "fp16")
    small = [p.sizes for p in DECODE.check_problems(tuned, {"kv_len": tile}, {}, same_binary=same_binary)]
    for s in small:
        assert (s["q_len"], s["page_size"], s["head_dim"]) == (q_len, page_size, 64)
        assert s["heads"] // s["kv_heads"] == 4 and (s["batch"] == 1 or batch > 1)
        assert not same_binary or integer_class(s["kv_len"]) == integer_class(kv_len)
        assert not same_binary or integer_class(s["batch"]) == integer_class(batch)
    lengths = [s["kv_len"] for s in small]
    assert 3 * tile < lengths[0] < 5 * tile and lengths[0] % tile
    assert max(lengths) > 7 * tile and (min(lengths) < tile if same_binary else lengths[-1] % tile)
    assert same_binary or any(n % tile == 0 for n in lengths)
    assert any(s["kv_heads"] > 1 for s in small) and (batch == 1 or max(s["batch"] for s in small) >= 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_heads": 3}, "kv_heads must divide heads, but got heads=4 kv_heads=3"),
        ({"q_len": 17}, "q_len must be between 1 and 16, but got 17"),
        ({"q_len": 9, "kv_len": 8}, "so q_len is at most kv_len: q_len=9 kv_len=8"),
        ({"head_dim": 24}, "head_dim must be a multiple of 16"),
        ({"page_size": -1}, "page_size must be between 0 and 4096"),
    ],
)
def test_a_shape_that_means_nothing_is_refused(changes, message):
    with pytest.raises(ProblemError, match=message):
        DECODE.problem({**SHAPE, **changes}, "bf16")


def test_figures_count_the_cache_once_and_the_pages_that_are_filled():
    shape = {"batch": 2, "heads": 8, "kv_heads": 2, "q_len": 2, "kv_len": 100, "head_dim": 64}
    problem = DECODE.problem(shape, "bf16")
    pairs = 2 * 8 * (99 + 100)
    assert DECODE.exponentials(problem) == pairs and DECODE.flops(problem) == 4.0 * 64 * pairs
    bytes_moved = 2 * 2 * (2 * 8 * 2 + 2 * 2 * 100) * 64 + 4 * (2 * 8 * 2) + 4 * 2
    assert DECODE.bytes_moved(problem) == bytes_moved
    assert DECODE.bytes_moved(DECODE.problem({**shape, "page_size": 16}, "bf16")) == bytes_moved + 4 * 2 * 7


def test_a_kernel_file_is_given_a_block_table_where_the_cache_is_in_pages(tmp_path):
    path = tmp_path / "own.py"
    path.write_text("def launch(q, k, v, seq_lens, out, lse, *, scale, BLOCK_N=32):\n    pass\n")
    candidate, guessed = read_own_kernel(path).candidate(DECODE.problem(SHAPE, "bf16"), "BLOCK_N=16", "", "")
    assert candidate.tiles == {"kv_len": 16} and "BLOCK_N" in guessed
    with pytest.raises(UsageError, match="launch\\(\\) has no block_table"):
        read_own_kernel(path).candidate(DECODE.problem(PAGED, "bf16"), "BLOCK_N=16", "", "")


OWN = """import torch

CONFIG = {"BLOCK": 64}


def launch(q, k, v, seq_lens, out, lse, block_table=None, *, scale, BLOCK):
    for b, length in enumerate(seq_lens.tolist()):
        if block_table is not None:
            keys, values = (t[block_table[b].long()].flatten(0, 1).transpose(0, 1)[:, :length] for t in (k, v))
        else:
            keys, values = k[b, :, :length], v[b, :, :length]
        keys, values = (t.float().repeat_interleave(q.shape[1] // t.shape[0], 0) for t in (keys, values))
        s = scale * q[b].float() @ keys.transpose(1, 2)
        unseen = torch.arange(length) > torch.arange(q.shape[2])[:, None] + length - q.shape[2]
        s = s.masked_fill(unseen, float("-inf"))
        lse[b] = s.logsumexp(-1) * FACTOR
        out[b] = (torch.softmax(s, -1) @ values).to(out.dtype)


"""


@pytest.mark.parametrize(
    ("shape", "factor", "status", "word"), [(PAGED, "1.0", 0, "OK"), (SHAPE, "1.4427", 1, "WRONG")]
)
def test_the_self_check_of_a_file_tells_right_from_wrong(tmp_path, shape, factor, status, word):
    problem = DECODE.problem(shape, "fp16")
    path = tmp_path / "standalone.py"
    path.write_text(OWN.replace("FACTOR", factor) + DECODE.self_check(problem))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    assert f": {word}" in done.stdout and "2 x 4 heads, 3 x 57 x 32" in done.stdout
