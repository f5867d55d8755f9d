"""The backward pass: its reference against torch's autograd, its bound against right and wrong gradients, inputs."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tuner.check_plan import plan
from tuner.errors import ProblemError
from tuner.operators import attention_bound, attention_bwd_bound, get
from tuner.operators.attention_bwd_errors import answer
from tuner.operators.attention_bwd_inputs import forward
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache

OPERATOR = get("attention_bwd")
SHAPE = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 33, "kv_len": 57, "head_dim": 32}
BF16 = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit")
FP32 = PrecisionProfile("fp32", "fp32", p="fp32")
PROFILES = {"bf16": BF16, "fp16": replace(BF16, input="fp16", output="fp16", p="fp16"), "fp32": FP32}
GRADIENTS = ("dq", "dk", "dv")


def backward(dtype="bf16", causal=False, **changes):
    return OPERATOR.problem({**SHAPE, **changes}, dtype, {"causal": causal})


def torch_attention(q, k, v, scale, causal):
    """Out and log-sum-exp of float64 tensors by torch's own functions."""
    group = q.shape[1] // k.shape[1]
    s = scale * q @ k.repeat_interleave(group, 1).transpose(2, 3)
    if causal:
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
        s = s.masked_fill(j > i + k.shape[2] - q.shape[2], float("-inf"))
    weights = torch.softmax(s, -1)
    return weights.nan_to_num(0.0) @ v.repeat_interleave(group, 1), torch.logsumexp(s.detach(), -1)


def autograd(inputs, scale, causal):
    """What torch's autograd makes of float64 inputs, out and log-sum-exp included."""
    q, k, v = (inputs[name].double().requires_grad_() for name in ("q", "k", "v"))
    out, lse = torch_attention(q, k, v, scale, causal)
    # A row without a key is NaN to autograd wherever softmax saw it: it is left out of what is differentiated.
    alive = ~lse.isneginf()
    dout = inputs["dout"].double() * alive[..., None]
    found = torch.autograd.grad(out[alive], (q, k, v), dout[alive])
    return out.detach(), lse, dict(zip(GRADIENTS, (g.nan_to_num(0.0) for g in found), strict=True))


@pytest.mark.parametrize(("q_len", "kv_len"), [(33, 57), (40, 40)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("family", [f for f in OPERATOR.families(backward()) if f != "very_negative"])
def test_the_reference_is_autograds(family, causal, q_len, kv_len):
    problem = backward(causal=causal, q_len=q_len, kv_len=kv_len)
    inputs = OPERATOR.make_inputs(problem, family, 3, "cpu")
    out, lse, gradients = autograd(inputs, 32**-0.5, causal)
    exact = {**inputs, "out": out, "lse": lse}
    reference = OPERATOR.reference(problem, exact, FP32).outputs
    for name in GRADIENTS:
        # The bound of fp32 is about 1e-6 of what is summed, which the gradient itself may be far smaller than.
        assert bool(((reference[name].expected - gradients[name]).abs() <= 1e-4 * reference[name].bound).all())
        assert float(gradients[name].abs().max()) > 0.0


def test_queries_that_see_no_key_give_exact_zeros_and_add_nothing():
    problem = backward(causal=True, q_len=57, kv_len=33)
    inputs = OPERATOR.make_inputs(problem, "randn", 0, "cpu")
    assert bool(inputs["lse"][:, :, :24].isneginf().all()) and bool((inputs["out"][:, :, :24] == 0).all())
    reference = OPERATOR.reference(problem, inputs, BF16).outputs
    assert bool((reference["dq"].expected[:, :, :24] == 0.0).all())
    assert bool((reference["dq"].bound[:, :, :24] == 0.0).all())
    assert bool((reference["dq"].bound[:, :, 24:] > 0.0).all())
    alive = {name: t[:, :, 24:] if t.shape[2] == 57 else t for name, t in inputs.items()}
    others = OPERATOR.reference(backward(causal=True, q_len=33, kv_len=33), alive, BF16).outputs
    for name in ("dk", "dv"):
        torch.testing.assert_close(reference[name].expected, others[name].expected)


def test_the_given_output_and_log_sum_exp_belong_to_the_inputs():
    problem = backward("fp16", causal=True)
    inputs = OPERATOR.make_inputs(problem, "rising", 0, "cpu")
    out, lse = torch_attention(*(inputs[n].double() for n in ("q", "k", "v")), 32**-0.5, True)
    assert torch.equal(inputs["out"], out.half()) and inputs["lse"].dtype == torch.float32
    torch.testing.assert_close(inputs["lse"].double(), lse, rtol=1e-7, atol=0)


def test_the_forward_pass_is_the_same_in_any_portions(monkeypatch):
    inputs = OPERATOR.make_inputs(backward(causal=True), "randn", 0, "cpu")
    q, k, v = (inputs[n].double() for n in ("q", "k", "v"))
    monkeypatch.setattr(attention_bound, "BLOCK_ELEMENTS", 300)
    for found, expected in zip(forward(q, k, v, 0.25, True), torch_attention(q, k, v, 0.25, True), strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)


def test_a_selection_of_a_large_problem_is_the_whole_of_it_there(monkeypatch):
    problem = backward(q_len=150, kv_len=300, causal=True)
    inputs = OPERATOR.make_inputs(problem, "randn", 0, "cpu")
    whole = OPERATOR.reference(problem, inputs, BF16)
    monkeypatch.setattr(attention_bwd_bound, "_WHOLE", 1000)
    monkeypatch.setattr(attention_bound, "BLOCK_ELEMENTS", 20000)
    part = OPERATOR.reference(problem, inputs, BF16)
    for name in GRADIENTS:
        index = part.outputs[name].index
        torch.testing.assert_close(part.outputs[name].expected, whole.outputs[name].expected[index])
        torch.testing.assert_close(part.outputs[name].bound, whole.outputs[name].bound[index])
        heads = 4 if name == "dq" else 2
        assert {(int(b), int(h)) for b, h in zip(*index[:2], strict=True)} == {
            (b, h) for b in (0, 1) for h in range(heads)
        }
        assert whole.outputs[name].index is None and whole.outputs[name].variance is not None


def emulated(inputs, scale, causal, dtype, *, p_format=None, sums=torch.float32):
    """A right kernel's gradients, unless told otherwise: everything in fp32, P and dS rounded before they enter a
    product."""
    q, k, v, out, dout = (inputs[n].float() for n in ("q", "k", "v", "out", "dout"))
    group, low = q.shape[1] // k.shape[1], p_format or inputs["q"].dtype
    keys, values = (t.repeat_interleave(group, 1) for t in (k, v))
    x = (q @ keys.mT) * (scale * math.log2(math.e)) - inputs["lse"][..., None] * math.log2(math.e)
    if causal:
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
        x = x.masked_fill(j > i + k.shape[2] - q.shape[2], float("-inf"))
    p = torch.exp2(x).nan_to_num(0.0, posinf=0.0)
    delta = (dout * out).to(sums).sum(-1, keepdim=True, dtype=sums).float()
    ds = (p * (dout @ values.mT - delta)).to(low).float()
    p = p.to(low).float()
    of_keys = [t.unflatten(1, (-1, group)).sum(2) for t in (scale * (ds.mT @ q), p.mT @ dout)]
    return dict(zip(GRADIENTS, (t.to(inputs["q"].dtype) for t in (scale * (ds @ keys), *of_keys)), strict=True))


def worst(reference, found):
    """By gradient the largest error over its bound, and the root-mean-square one over what it may be."""
    ratios = {}
    for name, of in reference.outputs.items():
        error = (found[name].double() - of.expected).abs()
        ratio = torch.where(error == 0, 0.0, error / of.bound)
        rms = float((error.square().sum() / of.variance.sum()).sqrt()) if of.variance is not None else 0.0
        ratios[name] = (float(ratio.max()), rms)
    return ratios


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_right_gradients_are_within_the_bound_on_every_family(dtype, causal):
    problem = backward(dtype, causal, batch=1, heads=2, kv_heads=1, q_len=150, kv_len=260)
    for family in OPERATOR.families(problem):
        inputs = OPERATOR.make_inputs(problem, family, 1, "cpu")
        assert all(bool(torch.isfinite(t).all()) for name, t in inputs.items() if name != "lse")
        found = emulated(inputs, 32**-0.5, causal, dtype)
        generic = family in OPERATOR.generic_families
        for name, (ratio, rms) in worst(OPERATOR.reference(problem, inputs, PROFILES[dtype]), found).items():
            assert ratio < 1.0, (family, name, ratio)
            assert not generic or rms < 1.0, (family, name, rms)


def test_a_precision_that_is_not_declared_is_beyond_the_bound():
    problem = backward("fp32", batch=1, heads=2, kv_heads=1, q_len=90, kv_len=100)
    inputs = OPERATOR.make_inputs(problem, "randn", 1, "cpu")
    low = emulated(inputs, 32**-0.5, False, "fp32", p_format=torch.bfloat16)
    assert all(ratio > 1.0 for ratio, _ in worst(OPERATOR.reference(problem, inputs, FP32), low).values())
    declared = replace(FP32, p="bf16")
    assert all(ratio < 1.0 for ratio, _ in worst(OPERATOR.reference(problem, inputs, declared), low).values())
    coarse = emulated(inputs, 32**-0.5, False, "fp32", sums=torch.bfloat16)
    assert worst(OPERATOR.reference(problem, inputs, FP32), coarse)["dq"][0] > 1.0


@pytest.mark.parametrize(
    ("promise", "wider"),
    [
        ({"dot": "tf32"}, GRADIENTS),
        ({"prescaled": True}, GRADIENTS),
        ({"p": "bf16"}, GRADIENTS),
        ({"pv_dot": "tf32"}, GRADIENTS),
        ({"accumulator": "fp16"}, GRADIENTS),
        ({"exponential": "ex2_f16"}, GRADIENTS),
        ({"tiles": 4}, ()),
        ({"atomics": True}, ()),
    ],
)
def test_promising_less_precision_widens_the_bound_and_nothing_else_does(promise, wider):
    problem = backward("fp32")
    inputs = OPERATOR.make_inputs(problem, "randn", 0, "cpu")
    exact = OPERATOR.reference(problem, inputs, FP32).outputs
    loose = OPERATOR.reference(problem, inputs, replace(FP32, **promise)).outputs
    for name in GRADIENTS:
        assert bool((loose[name].bound > exact[name].bound).all()) == (name in wider)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_inputs_show_every_classical_error(dtype, causal):
    problem = backward(dtype, causal, q_len=130, kv_len=150)
    tiles = {"q_len": 32, "kv_len": 32}
    checks = plan(OPERATOR, problem, tiles, {}, PROFILES[dtype], full_size=False)
    assert hidden_errors(OPERATOR, checks, "cpu", 0, ReferenceCache()) == ()


@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1), (1, 100), (33, 1), (33, 2), (100, 20)])
@pytest.mark.parametrize("causal", [False, True])
def test_only_errors_that_change_something_are_asked_for(q_len, kv_len, causal):
    problem = backward("fp16", causal, q_len=q_len, kv_len=kv_len)
    checks = plan(OPERATOR, problem, {"q_len": 32, "kv_len": 64}, {}, PROFILES["fp16"], full_size=False)
    assert hidden_errors(OPERATOR, checks, "cpu", 0, ReferenceCache()) == ()


@pytest.mark.parametrize("causal", [False, True])
def test_without_an_error_the_answer_is_the_reference(causal):
    problem = backward(causal=causal, q_len=57, kv_len=33)
    inputs = OPERATOR.make_inputs(problem, "randn", 0, "cpu")
    reference = OPERATOR.reference(problem, inputs, BF16).outputs
    for name, found in zip(GRADIENTS, answer(inputs, 32**-0.5, causal, "", 16, 16), strict=True):
        torch.testing.assert_close(found, reference[name].expected[0, 0])


def test_a_plan_whose_bound_covers_an_error_is_found_out():
    problem = backward("bf16", q_len=130, kv_len=150)
    checks = plan(
        OPERATOR, problem, {"q_len": 32, "kv_len": 32}, {}, replace(BF16, accumulator="bf16"), full_size=False
    )
    assert "scale 1 + 2^-6" in hidden_errors(OPERATOR, checks, "cpu", 0, ReferenceCache())


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_varied_inputs_are_the_varied_gradients(causal):
    problem = OPERATOR.problem({**SHAPE, "batch": 3}, "bf16", {"causal": causal})
    inputs = OPERATOR.make_inputs(problem, "randn", 0, "cpu")
    expected = OPERATOR.reference(problem, inputs, BF16).outputs
    seen = set()
    for seed in range(4):
        variation = OPERATOR.variation(problem, "cpu", seed)
        varied = {name: torch.empty_like(t) for name, t in inputs.items()}
        variation.apply(inputs, varied)
        seen.add(float(varied["dout"].float()[0, 0, 0, 0]))
        for name, of in OPERATOR.reference(problem, varied, BF16).outputs.items():
            back = torch.empty_like(of.expected)
            variation.undo(name, of.expected, back)
            torch.testing.assert_close(back, expected[name].expected, rtol=1e-12, atol=1e-12)
    assert len(seen) > 1


def test_figures_count_five_products_and_every_tensor_once():
    forward_pass = get("attention_fwd")
    shape = {"batch": 4, "heads": 32, "kv_heads": 8, "q_len": 4096, "head_dim": 128}
    problem = OPERATOR.problem(shape, "bf16", {"causal": True})
    same = forward_pass.problem(shape, "bf16", {"causal": True})
    assert OPERATOR.flops(problem) == 2.5 * forward_pass.flops(same)
    assert OPERATOR.exponentials(problem) == 4 * 32 * 4096 * 4097 / 2
    # q, out, dout, dq and k, v, dk, dv in 2 bytes an element, the log-sum-exp in 4.
    assert OPERATOR.bytes_moved(problem) == 2 * (4 * 67108864 + 4 * 16777216) + 4 * 524288


def test_outputs_inputs_and_strides_are_those_that_templates_take():
    problem = OPERATOR.problem({**SHAPE, "q_len": 32, "kv_len": 64}, "bf16")
    specs = OPERATOR.output_specs(problem)
    assert [specs[n].shape for n in GRADIENTS] == [(2, 4, 32, 32), (2, 2, 64, 32), (2, 2, 64, 32)]
    inputs = OPERATOR.timing_inputs(problem, 0, "meta")
    assert [(n, tuple(t.shape), str(t.dtype)) for n, t in inputs.items()] == [
        ("q", (2, 4, 32, 32), "torch.bfloat16"),
        ("k", (2, 2, 64, 32), "torch.bfloat16"),
        ("v", (2, 2, 64, 32), "torch.bfloat16"),
        ("out", (2, 4, 32, 32), "torch.bfloat16"),
        ("lse", (2, 4, 32), "torch.float32"),
        ("dout", (2, 4, 32, 32), "torch.bfloat16"),
    ]
    strides = OPERATOR.strides(problem)
    assert set(strides) == {"q", "k", "v", "out", "dout", "dq", "dk", "dv"} and len(set(strides.values())) == 8


def test_a_mistake_names_this_operator():
    with pytest.raises(ProblemError, match="attention_bwd: kv_heads must divide heads"):
        backward(kv_heads=3)
    with pytest.raises(ProblemError, match="attention_bwd has no input family 'nothing'"):
        OPERATOR.make_inputs(backward(), "nothing", 0, "cpu")


STANDALONE = """import torch

CONFIG = {"BLOCK": 64}


def launch(q, k, v, out, lse, dout, dq, dk, dv, *, scale, BLOCK):
    q, k, v = (t.float().requires_grad_() for t in (q, k, v))
    group = q.shape[1] // k.shape[1]
    keys, values = (t.repeat_interleave(group, 1) for t in (k, v))
    s = scale * q @ keys.transpose(2, 3)
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
    s = s.masked_fill(j > i + k.shape[2] - q.shape[2], -1e30)
    given = dout.float() * (i + k.shape[2] >= q.shape[2])
    found = torch.autograd.grad(torch.softmax(s, -1) @ values, (q, k, v), given)
    for into, gradient, factor in zip((dq, dk, dv), found, FACTORS):
        into.copy_(gradient * factor)


"""


@pytest.mark.parametrize(("factors", "status"), [("(1, 1, 1)", 0), ("(1.03, 1, 1)", 1), ("(1, 1, 1.03)", 1)])
def test_a_standalone_file_tells_right_gradients_from_wrong_ones(tmp_path, factors, status):
    shape = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 90, "kv_len": 70, "head_dim": 32}
    problem = OPERATOR.problem(shape, "fp16", {"causal": True})
    path = tmp_path / "standalone.py"
    path.write_text(STANDALONE.replace("FACTORS", factors) + OPERATOR.self_check(problem))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == status, done.stdout + done.stderr
    assert f": {'WRONG' if status else 'OK'}" in done.stdout
