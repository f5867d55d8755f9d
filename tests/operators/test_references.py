"""The float64 references against torch, and what their bounds are made of."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tuner.operators import attention_bound, get, row_blocks
from tuner.operators.reference import OutputReference
from tuner.precision import PrecisionProfile

BF16 = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=4)
FP32 = PrecisionProfile("fp32", "fp32", p="fp32", tiles=4)


def attention(dtype="bf16", causal=False, **changes):
    operator = get("attention_fwd")
    shape = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 33, "kv_len": 57, "head_dim": 32, **changes}
    return operator, operator.problem(shape, dtype, {"causal": causal})


def torch_attention(inputs, scale, causal):
    """Out and log-sum-exp in float64 by torch's own functions, on the whole matrix."""
    q, k, v = (t.double() for t in inputs.values())
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = scale * q @ k.transpose(2, 3)
    if causal:
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
        s = s.masked_fill(j > i + k.shape[2] - q.shape[2], float("-inf"))
    dead = torch.isneginf(s.amax(-1, keepdim=True))
    # Of a logit of +inf torch makes a log-sum-exp of +inf; here it is NaN, as the row is.
    lse = torch.logsumexp(s, -1).masked_fill(s.isposinf().any(-1), float("nan"))
    return (torch.softmax(s, -1).masked_fill(dead, 0.0) @ v), lse


@pytest.mark.parametrize(("q_len", "kv_len"), [(33, 57), (57, 33), (40, 40), (1, 57)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("family", get("attention_fwd").families(attention()[1]))
def test_the_attention_reference_is_torchs(family, causal, q_len, kv_len):
    operator, problem = attention(causal=causal, q_len=q_len, kv_len=kv_len)
    inputs = operator.make_inputs(problem, family, 3, "cpu")
    reference = operator.reference(problem, inputs, BF16)
    out, lse = torch_attention(inputs, 32**-0.5, causal)
    torch.testing.assert_close(reference.outputs["out"].expected, out, rtol=1e-7, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(reference.outputs["lse"].expected, lse, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_dead_rows_are_zero_and_minus_infinity_with_no_tolerance():
    operator, problem = attention(causal=True, q_len=57, kv_len=33)
    reference = operator.reference(problem, operator.make_inputs(problem, "randn", 0, "cpu"), BF16)
    out, lse = reference.outputs["out"], reference.outputs["lse"]
    assert bool((out.expected[:, :, :24] == 0.0).all()) and bool((out.bound[:, :, :24] == 0.0).all())
    assert bool(lse.expected[:, :, :24].isneginf().all()) and bool((lse.bound[:, :, :24] == 0.0).all())
    assert bool(torch.isfinite(lse.expected[:, :, 24:]).all())


def test_a_selection_of_a_large_problem_is_the_whole_of_it_at_those_rows(monkeypatch):
    operator, problem = attention(q_len=700, kv_len=300, causal=True)
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    whole = operator.reference(problem, inputs, BF16)
    monkeypatch.setattr(attention_bound, "_WHOLE", 1000)
    monkeypatch.setattr(attention_bound, "BLOCK_ELEMENTS", 5000)
    part = operator.reference(problem, inputs, BF16)
    for name in ("out", "lse"):
        index = part.outputs[name].index
        torch.testing.assert_close(part.outputs[name].expected, whole.outputs[name].expected[index])
        torch.testing.assert_close(part.outputs[name].bound, whole.outputs[name].bound[index])
    batch, head, rows = (axis.tolist() for axis in part.outputs["out"].index)
    chosen = {}
    for pair, row in zip(zip(batch, head, strict=True), rows, strict=True):
        chosen.setdefault(pair, set()).add(row)
    assert set(chosen) == {(b, h) for b in range(2) for h in range(4)}  # no batch-head goes unseen
    assert min(len(on) for on in chosen.values()) >= 4
    for pair in ((0, 0), (0, 2), (1, 0), (1, 3)):
        assert {*range(128), *range(256, 384), *range(572, 700)} <= chosen[pair]


@pytest.mark.parametrize("most", [2**24, 2000, 50])
@pytest.mark.parametrize("whole", [True, False])
def test_heads_and_rows_are_computed_together_in_any_portions(monkeypatch, most, whole):
    operator, problem = attention(causal=True, batch=2, heads=6, kv_heads=3, q_len=50, kv_len=70, head_dim=16)
    if not whole:
        monkeypatch.setattr(attention_bound, "_WHOLE", 1)
    inputs = operator.make_inputs(problem, "rising", 0, "cpu")
    expected = operator.reference(problem, inputs, BF16)
    monkeypatch.setattr(attention_bound, "BLOCK_ELEMENTS", most)
    portions = operator.reference(problem, inputs, BF16)
    for name in ("out", "lse"):
        output = torch.zeros(operator.output_specs(problem)[name].shape, dtype=torch.float64)
        for found in (expected, portions):
            reference = found.outputs[name]
            full = torch.full_like(output, float("nan"))
            full[reference.index or ...] = reference.expected
            torch.testing.assert_close(full[reference.index or ...], reference.expected, rtol=0, atol=0)
            if found is expected:
                first = full
        torch.testing.assert_close(full, first, rtol=1e-12, atol=1e-14, equal_nan=True)


def test_a_long_context_is_computed_in_blocks_of_rows_and_never_as_a_whole_matrix(monkeypatch):
    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor):
                self.elements = max(self.elements, made.numel())
            return made

    monkeypatch.setattr(attention_bound, "BLOCK_ELEMENTS", 2**16)
    operator, problem = attention(batch=1, heads=2, kv_heads=1, q_len=4096, kv_len=4096, head_dim=16, causal=True)
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    with Largest() as largest:
        outputs = operator.reference(problem, inputs, BF16).outputs
    assert outputs["out"].index is not None and len(outputs["out"].expected) > 800
    assert largest.elements <= 2 * 2**16  # keys and values of one head in float64 are as many; q k^T would be 256 times


def test_a_place_in_a_selection_is_told_as_a_place_in_the_output():
    index = (torch.tensor([[0], [3]]), torch.tensor([[1], [2]]), torch.tensor([[5, 9, 70]]))
    empty = torch.zeros(2, 3, 8)
    assert OutputReference(empty, empty, index=index).locate((1, 2, 4)) == (3, 2, 70, 4)
    assert OutputReference(empty, empty).locate((1, 2, 4)) == (1, 2, 4)


@pytest.mark.parametrize("family", get("softmax").families(get("softmax").problem({"rows": 1, "cols": 1}, "bf16")))
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_the_softmax_reference_is_torchs_nan_included(family, dtype):
    operator = get("softmax")
    problem = operator.problem({"rows": 9, "cols": 301, "row_stride": 320}, dtype)
    inputs = operator.make_inputs(problem, family, 1, "cpu")
    assert inputs["x"].stride() == (320, 1)
    reference = operator.reference(problem, inputs, PrecisionProfile(dtype, dtype, tiles=3)).outputs["out"]
    torch.testing.assert_close(reference.expected, torch.softmax(inputs["x"].double(), 1), equal_nan=True)
    assert reference.has_nan == (family in ("masked", "nonfinite"))


def test_a_large_softmax_is_compared_on_spread_rows(monkeypatch):
    monkeypatch.setattr(row_blocks, "_WHOLE", 1000)
    monkeypatch.setattr(row_blocks, "_SELECTED", 20 * 300)
    operator = get("softmax")
    problem = operator.problem({"rows": 1000, "cols": 300}, "bf16")
    inputs = operator.make_inputs(problem, "randn", 1, "cpu")
    reference = operator.reference(problem, inputs, BF16).outputs["out"]
    rows = reference.index[0].tolist()
    assert len(rows) == 20 and rows[0] == 0 and rows[-1] == 999
    torch.testing.assert_close(reference.expected, torch.softmax(inputs["x"].double(), 1)[rows])


def test_the_softmax_bound_is_one_rounding_of_the_output_and_little_more():
    operator = get("softmax")
    problem = operator.problem({"rows": 4, "cols": 512}, "bf16")
    reference = operator.reference(problem, operator.make_inputs(problem, "randn", 0, "cpu"), BF16).outputs["out"]
    relative = reference.bound / reference.expected
    assert float(relative.min()) > 2.0**-8 and float(relative.max()) < 1.02 * 2.0**-8


@pytest.mark.parametrize(
    ("promise", "larger"),
    [
        ({"dot": "tf32"}, True),
        ({"dot": "tf32x3"}, True),
        ({"prescaled": True}, True),
        ({"p": "bf16"}, True),
        ({"pv_dot": "tf32"}, True),
        ({"accumulator": "fp16"}, True),
        ({"exponential": "ex2_f16"}, True),
        ({"tiles": 4}, False),
    ],
)
def test_promising_less_precision_widens_the_bound_and_nothing_else_does(promise, larger):
    operator, problem = attention("fp32")
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    exact = operator.reference(problem, inputs, FP32).outputs["out"].bound
    loose = operator.reference(problem, inputs, replace(FP32, **promise)).outputs["out"].bound
    assert bool((loose > exact).all()) == larger


def test_a_log_sum_exp_in_base_two_is_asked_for_by_the_profile_alone():
    operator, problem = attention("fp32")
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    natural, base2 = (
        operator.reference(problem, inputs, replace(FP32, lse_base=base)).outputs for base in ("natural", "base2")
    )
    torch.testing.assert_close(base2["lse"].expected, natural["lse"].expected / math.log(2.0))
    torch.testing.assert_close(base2["lse"].bound, natural["lse"].bound / math.log(2.0))
    assert torch.equal(base2["out"].expected, natural["out"].expected)


@pytest.mark.parametrize(
    ("field", "value"), [("accumulator", "int8"), ("exponential", "table"), ("pv_dot", "bf16"), ("lse_base", "10")]
)
def test_a_profile_refuses_what_no_kernel_can_promise(field, value):
    with pytest.raises(ValueError, match=f"`{field}` must be one of"):
        replace(FP32, **{field: value})


def test_a_profile_stores_what_few_configs_declare_only_where_it_is_declared():
    assert "atomics" not in FP32.as_json() and "dot" in FP32.as_json()
    assert replace(FP32, atomics=True, accumulator="fp16").as_json()["atomics"] is True


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_not_finite_spreads_as_far_as_it_should_and_no_further(causal):
    operator, problem = attention("fp32", causal=causal)
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    clean = operator.reference(problem, inputs, FP32).outputs
    inputs["k"][0, 0, 40] = float("nan")  # seen by the queries from 16 on where causal: 40 - (57 - 33)
    inputs["q"][0, 2, 3] = float("nan")
    inputs["v"][1, 0, 0, 5] = float("inf")
    outputs = operator.reference(problem, inputs, FP32).outputs
    out, bound = outputs["out"].expected, outputs["out"].bound
    first = 16 if causal else 0
    assert outputs["out"].has_nan and outputs["lse"].has_nan
    assert bool(out[0, :2, first:].isnan().all()) and bool(out[0, 2, 3].isnan().all())
    assert torch.equal(out[0, :2, :first], clean["out"].expected[0, :2, :first])
    assert bool(out[1, :2, :, 5].isposinf().all()) and bool(torch.isfinite(out[1, :2, :, :5]).all())
    assert torch.equal(out[1, 2:], clean["out"].expected[1, 2:])
    assert bool(torch.isfinite(bound[torch.isfinite(out)]).all())


def test_a_logit_of_minus_infinity_takes_its_key_away():
    operator, problem = attention("fp32", batch=1, heads=1, kv_heads=1)
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    inputs["k"][0, 0, 56, 0] = float("inf")
    inputs["q"][0, 0, :, 0] = -1.0
    got = operator.reference(problem, inputs, FP32).outputs
    _, shorter = attention("fp32", batch=1, heads=1, kv_heads=1, kv_len=56)
    fewer = {"q": inputs["q"], "k": inputs["k"][:, :, :56], "v": inputs["v"][:, :, :56]}
    expected = operator.reference(shorter, fewer, FP32).outputs
    torch.testing.assert_close(got["out"].expected, expected["out"].expected)
    torch.testing.assert_close(got["lse"].expected, expected["lse"].expected)
    assert bool(torch.isfinite(got["out"].bound).all()) and bool(torch.isfinite(got["lse"].bound).all())


def test_zeros_and_the_mean_of_v_are_beyond_the_bound():
    operator, problem = attention()
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    out = operator.reference(problem, inputs, BF16).outputs["out"]
    mean = inputs["v"].double().mean(2, keepdim=True).repeat_interleave(2, 1)
    for wrong in (torch.zeros_like(out.expected), mean.expand_as(out.expected)):
        assert float(((wrong - out.expected).abs() / out.bound).max()) > 10.0


def test_inputs_are_the_same_for_the_same_seed_and_differ_for_another():
    operator, problem = attention()
    first, again, other = (operator.make_inputs(problem, "rising", seed, "cpu") for seed in (1, 1, 2))
    assert all(torch.equal(first[n], again[n]) for n in first)
    assert not torch.equal(first["k"], other["k"])


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("scale", [None, 1.0, 0.01])
def test_families_reach_the_logits_that_they_are_made_for(dtype, scale):
    operator = get("attention_fwd")
    shape = {"batch": 1, "heads": 2, "q_len": 40, "kv_len": 50, "head_dim": 64}
    problem = operator.problem(shape, dtype, {"scale": scale})
    factor = operator.scalars(problem)["scale"]

    def logits(family):
        inputs = operator.make_inputs(problem, family, 0, "cpu")
        assert all(bool(torch.isfinite(t).all()) for t in inputs.values())
        return factor * inputs["q"].double() @ inputs["k"].double().transpose(2, 3)

    assert float(logits("very_negative").max()) < -1e6
    assert float(logits("negative").min()) > -400 and float(logits("negative").max()) < -200
    assert float((logits("falling_far")[..., 0] - logits("falling_far")[..., -1]).min()) > 600
    assert float((logits("rising")[..., -1] - logits("rising")[..., 0]).min()) > 40
    needle = logits("needle").argmax(-1)
    assert torch.equal(needle, ((torch.arange(40) * 37 + 11) % 50).expand_as(needle))


def test_unknown_families_are_refused():
    operator, problem = attention()
    with pytest.raises(ValueError, match="no input family 'nothing'"):
        operator.make_inputs(problem, "nothing", 0, "cpu")


def test_timing_inputs_are_normal_and_not_zero():
    operator, problem = attention()
    q = operator.timing_inputs(problem, 0, "cpu")["q"].float()
    assert abs(float(q.mean())) < 0.05 and abs(float(q.std()) - 1.0) < 0.05
