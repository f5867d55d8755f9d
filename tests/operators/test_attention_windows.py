"""Sliding windows of attention: what a problem is, what it needs, its reference, and what its check sees."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from tests.operators.attention_formula import attention
from tuner.check_plan import plan
from tuner.operators import get
from tuner.operators.attention_features import Features
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache

BF16 = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=4)
SHAPE = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 33, "kv_len": 57, "head_dim": 16}


def windowed(causal=False, dtype="bf16", shape=None, **options):
    return get("attention_fwd").problem({**SHAPE, **(shape or {})}, dtype, {"causal": causal, **options})


def test_a_problem_without_a_window_is_what_it_was():
    plain = windowed()
    assert plain.settings == {"causal": False, "allow_tf32": False, "scale": None}
    assert windowed(window_left=-1, window_right=None) == plain
    assert plain.key == "0341f5f152a71ae2"  # as stored by versions that had no windows


def test_a_window_that_ends_at_its_own_place_is_causal():
    assert windowed(window_right=0) == windowed(causal=True)
    assert windowed(window_left=5, window_right=0) == windowed(causal=True, window_left=5)
    assert windowed(causal=True, window_left=5, window_right=9) == windowed(causal=True, window_left=5)
    assert windowed(window_left=5).label.endswith("bf16 window_left=5")


@pytest.mark.parametrize("name", ["attention_bwd", "attention_decode"])
def test_operators_that_have_no_windows_offer_none(name):
    assert {"window_left", "window_right"}.isdisjoint(option.name for option in get(name).options)


@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 9), (9, 1), (4, 7), (7, 4), (6, 6)])
def test_what_is_visible_is_counted(q_len, kv_len):
    for left, right in product([None, 0, 2, 20], [None, 0, 1, 20]):
        features = Features(left, right)
        low = [0 if left is None else max(0, i + kv_len - q_len - left) for i in range(q_len)]
        past = [kv_len if right is None else min(kv_len, i + kv_len - q_len + right + 1) for i in range(q_len)]
        seen = [list(range(first, end)) for first, end in zip(low, past, strict=True)]
        assert features.pairs(q_len, kv_len) == sum(map(len, seen))
        assert features.keys(q_len, kv_len) == len(set().union(*seen))
        assert features.dead(q_len, kv_len) == [bool(keys) for keys in (*seen, [0])].index(True)
        assert [list(range(*features.seen(i, q_len, kv_len))) for i in range(q_len)] == seen


def test_the_work_of_a_window_is_what_its_queries_see():
    operator = get("attention_fwd")
    shape = {"batch": 1, "heads": 2, "kv_heads": 1, "q_len": 2, "kv_len": 100}
    problem = windowed(causal=True, shape=shape, window_left=3)
    # Two queries of 4 keys each, 5 keys in all.
    assert operator.exponentials(problem) == 2 * 8
    assert operator.flops(problem) == 4 * 16 * 2 * 8
    assert operator.bytes_moved(problem) == 2 * (2 * 2 + 5) * 16 * 2 + 2 * 2 * 4


@pytest.mark.parametrize(("q_len", "kv_len"), [(33, 57), (57, 33)])
@pytest.mark.parametrize("options", [{"window_left": 7, "causal": True}, {"window_left": 3, "window_right": 9}])
@pytest.mark.parametrize("family", ["randn", "needle", "edge", "nonfinite"])
def test_the_reference_is_torchs_with_the_mask_written_out(family, options, q_len, kv_len):
    operator = get("attention_fwd")
    problem = windowed(shape={"q_len": q_len, "kv_len": kv_len}, **options)
    inputs = operator.make_inputs(problem, family, 3, "cpu")
    reference = operator.reference(problem, inputs, BF16).outputs
    ends = {"left": options["window_left"], "right": 0 if options.get("causal") else options["window_right"]}
    out, lse = attention(inputs, 16**-0.5, **ends)
    torch.testing.assert_close(reference["out"].expected, out, rtol=1e-7, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(reference["lse"].expected, lse, rtol=1e-12, atol=1e-12, equal_nan=True)
    if family == "randn":
        mask = torch.zeros(q_len, kv_len, dtype=torch.bool)
        for i in range(q_len):
            place = i + kv_len - q_len
            mask[i, max(0, place - ends["left"]) : max(0, place + ends["right"] + 1)] = True
        alive = mask.any(1)
        q, k, v = (t.double() for t in inputs.values())
        by_torch = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        torch.testing.assert_close(reference["out"].expected[:, :, alive], by_torch[:, :, alive])
        assert not reference["out"].expected[:, :, ~alive].any()


@pytest.mark.parametrize("options", [{"causal": True, "window_left": 900}, {"window_left": 200, "window_right": 70}])
def test_the_inputs_show_every_error_of_a_window(options):
    operator = get("attention_fwd")
    tiles = {"q_len": 32, "kv_len": 32}
    problem = windowed(shape={"q_len": 2000, "kv_len": 2000}, **options)
    checks = plan(operator, problem, tiles, {}, BF16, full_size=False)
    assert not hidden_errors(operator, checks, "cpu", 0, ReferenceCache())
    wanted = {error for c in checks.checks for error in operator.classical_errors(c.problem, tiles)}
    assert {"a window one key short at its left", "a window one key long at its left"} <= wanted
    assert ("a window one key long at its right" in wanted) == ("window_right" in options)
    assert {"a window without a left end", "mask aligned at the top left"} <= wanted


@pytest.mark.parametrize("same_binary", [True, False])
def test_small_problems_have_small_windows_of_the_tuned_ones_classes(same_binary):
    problem = windowed(shape={"q_len": 4096, "kv_len": 4096, "head_dim": 128}, window_left=1024, window_right=511)
    small = get("attention_fwd").check_problems(problem, {"q_len": 128, "kv_len": 64}, {}, same_binary=same_binary)
    ends = [(p.settings["window_left"], p.settings["window_right"]) for p in small]
    assert len(set(ends)) >= 4 and all(left < 400 and right < 400 for left, right in ends)
    main = small[0].sizes
    assert main["kv_len"] > ends[0][0] > main["kv_len"] // 2  # whole tiles within it, and before it
    if same_binary:
        assert all(left % 16 == 0 and right > 1 and right % 16 for left, right in ends)


def test_a_window_of_one_key_has_no_weights_and_no_rescaling_to_get_wrong():
    errors = get("attention_fwd").classical_errors(windowed(causal=True, window_left=0), {"kv_len": 16})
    assert {"weights in base 2", "acc not rescaled", "a tile dropped"}.isdisjoint(errors)
    assert "a window one key short at its left" in errors
