"""The power check: shipped plans see every classical error, and a plan that would not is refused before it is used."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.check_plan import CheckPlan, PlannedCheck, plan
from tuner.checking import check
from tuner.errors import CheckError
from tuner.operators import attention_errors, get, online_errors, softmax_errors
from tuner.power import hidden_errors, require_power
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache

SOFTMAX, ATTENTION = get("softmax"), get("attention_fwd")
ROWS = SOFTMAX.problem({"rows": 9, "cols": 300}, "bf16")
PAIRS = ATTENTION.problem(
    {"batch": 1, "heads": 2, "q_len": 50, "kv_len": 100, "head_dim": 32}, "fp16", {"causal": True}
)

FULL = ATTENTION.problem({"batch": 1, "heads": 2, "q_len": 50, "kv_len": 100, "head_dim": 32}, "fp16")


def softmax_plan(*families, profile=None):
    profile = profile or PrecisionProfile("bf16", "bf16", tiles=5)
    return CheckPlan(tuple(PlannedCheck(ROWS, family, profile) for family in families), {"cols": 64})


def attention_plan(*families, problem=PAIRS):
    profile = PrecisionProfile("fp16", "fp16", p="fp16", dot="16bit", tiles=7)
    return CheckPlan(tuple(PlannedCheck(problem, family, profile) for family in families), {"q_len": 16, "kv_len": 16})


def hidden(operator, made):
    return set(hidden_errors(operator, made, "cpu", 0, ReferenceCache()))


def test_constant_rows_alone_show_neither_rescaling_nor_base_nor_scale_and_are_refused():
    made = softmax_plan("constant")
    assert hidden(SOFTMAX, made) >= {
        "l not rescaled",
        "weights in base 2",
        "scale 1 + 2^-6",
        "block maximum not carried",
    }
    with pytest.raises(CheckError, match=r"the check has no power: .* l not rescaled; .* that show it to constant$"):
        require_power(SOFTMAX, made, "cpu", 0, ReferenceCache())


def test_random_inputs_alone_hide_a_maximum_that_is_not_carried():
    assert hidden(SOFTMAX, softmax_plan("randn")) == {"block maximum not carried", "a column too many"}
    assert hidden(ATTENTION, attention_plan("randn", problem=FULL)) == {"block maximum not carried"}


@pytest.mark.parametrize("family", ["falling", "falling_far"])
def test_one_family_more_gives_the_plan_its_power(family):
    if family == "falling":
        assert hidden(SOFTMAX, softmax_plan("randn", family)) == set()
    else:
        assert hidden(ATTENTION, attention_plan("randn", family, problem=FULL)) == set()


def test_a_bound_that_is_wide_enough_for_a_wrong_kernel_has_no_power():
    loose = PrecisionProfile("bf16", "bf16", accumulator="bf16", exponential="ex2_bf16", tiles=5)
    assert "scale 1 + 2^-6" not in hidden(SOFTMAX, softmax_plan("randn"))
    assert "scale 1 + 2^-6" in hidden(SOFTMAX, softmax_plan("randn", profile=loose))


def test_a_check_refuses_such_a_plan_before_it_launches_anything():
    launched = []

    def launch(x, out):
        launched.append(None)
        out.copy_(torch.softmax(x.float(), dim=1))

    with pytest.raises(CheckError, match="block maximum not carried"):
        check(launch, SOFTMAX, softmax_plan("randn"), "cpu", 0)
    assert launched == []
    assert check(launch, SOFTMAX, softmax_plan("randn", "falling"), "cpu", 0).passed


def test_the_proof_is_made_once_for_a_plan_and_a_seed():
    cache = ReferenceCache()
    made = softmax_plan("randn", "falling")
    require_power(SOFTMAX, made, "cpu", 0, cache)
    missed = cache.misses
    require_power(SOFTMAX, made, "cpu", 0, cache)
    assert cache.misses == missed
    require_power(SOFTMAX, made, "cpu", 1, cache)
    assert cache.misses > missed


DTYPES = st.sampled_from(["bf16", "fp16", "fp32"])


@settings(max_examples=12, deadline=None)
@given(
    dtype=DTYPES,
    rows=st.sampled_from([1, 2, 300]),
    cols=st.sampled_from([1, 2, 17, 64, 1000, 5003]),
    tile=st.sampled_from([16, 128, 1024]),
    whole=st.booleans(),
    full_size=st.booleans(),
)
def test_every_plan_for_softmax_has_power(dtype, rows, cols, tile, whole, full_size):
    problem = SOFTMAX.problem({"rows": rows, "cols": cols}, dtype)
    tile = max(16, 1 << (cols - 1).bit_length()) if whole else tile
    profile = PrecisionProfile(dtype, dtype, tiles=-(-cols // tile) + 1)
    made = plan(SOFTMAX, problem, {"cols": tile}, {"cols": 1} if whole else {}, profile, full_size=full_size)
    assert hidden(SOFTMAX, made) == set()


@settings(max_examples=12, deadline=None)
@given(
    dtype=DTYPES,
    heads=st.sampled_from([(1, 1), (4, 2), (8, 1)]),
    q_len=st.sampled_from([1, 2, 100, 512]),
    kv_len=st.sampled_from([1, 2, 5, 64, 333]),
    head_dim=st.sampled_from([16, 72, 128]),
    causal=st.booleans(),
    scale=st.sampled_from([None, 1.0, 0.01]),
    tile=st.sampled_from([16, 64, 128]),
    full_size=st.booleans(),
)
def test_every_plan_for_attention_has_power(dtype, heads, q_len, kv_len, head_dim, causal, scale, tile, full_size):
    shape = {"batch": 2, "heads": heads[0], "kv_heads": heads[1], "q_len": q_len, "kv_len": kv_len}
    problem = ATTENTION.problem({**shape, "head_dim": head_dim}, dtype, {"causal": causal, "scale": scale})
    dot = "ieee" if dtype == "fp32" else "16bit"
    profile = PrecisionProfile(dtype, dtype, p=dtype, dot=dot, tiles=-(-kv_len // tile))
    made = plan(ATTENTION, problem, {"q_len": 64, "kv_len": tile}, {}, profile, full_size=full_size)
    assert hidden(ATTENTION, made) == set()


def test_without_an_error_the_recurrence_is_the_two_pass_result():
    x = SOFTMAX.make_inputs(ROWS, "rising", 0, "cpu")["x"]
    torch.testing.assert_close(softmax_errors.answer(x, "none", 64), torch.softmax(x.double(), 1))
    for family in ("randn", "falling_far", "needle"):
        inputs = ATTENTION.make_inputs(PAIRS, family, 0, "cpu")
        out, lse = attention_errors.answer(*inputs.values(), 32**-0.5, True, "none", 16)
        reference = ATTENTION.reference(PAIRS, inputs, attention_plan("randn").checks[0].profile).outputs
        torch.testing.assert_close(out, reference["out"].expected[0, 0])
        torch.testing.assert_close(lse, reference["lse"].expected[0, 0])


def test_what_cannot_go_wrong_on_a_problem_is_not_asked_for():
    assert not set(softmax_errors.errors(4, 64, 64)) & set(online_errors.OF_TILES)
    assert "the row before" not in softmax_errors.errors(1, 64, 64)
    one_key = {"q_len": 4, "kv_len": 1, "kv_heads": 1}
    assert set(attention_errors.errors(one_key, False, 16)) == {
        "zeros", "scale 1 + 2^-6", "scale 1 - 2^-6", "a key too many"
    }  # fmt: skip
