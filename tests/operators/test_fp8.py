"""attention_fwd of fp8: its problems, inputs and reference, what its bound is made of, and which configs there are."""

from __future__ import annotations

import runpy
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.operators.attention_formula import attention
from tuner import e4m3_bits
from tuner.check_plan import plan
from tuner.errors import ConfigError, ProblemError
from tuner.guarded import GuardedInputs
from tuner.numerics import product_sums
from tuner.operators import get
from tuner.operators.quantisation import ERRORS, exact, quantised
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache
from tuner.space import load_space
from tuner.targets import target

OPERATOR = get("attention_fwd")
SHAPE = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 33, "kv_len": 57, "head_dim": 32}
PROFILE = PrecisionProfile("fp8", "bf16", p="fp8", dot="8bit", pv_terms=16, p_scale=256, tiles=4)
LAUNCH = """import torch

CONFIG = {"BLOCK": 64}


def launch(q, k, v, out, lse, q_scale, k_scale, v_scale, *, scale, BLOCK):
    s = scale * FACTOR * q_scale * k_scale * q.float() @ k.float().repeat_interleave(2, 1).transpose(2, 3)
    lse.copy_(s.logsumexp(-1))
    out.copy_(torch.softmax(s, -1) @ v.float().repeat_interleave(2, 1) * v_scale)


"""


def problem_of(dtype="fp8", **options):
    return OPERATOR.problem(SHAPE, dtype, options)


def dequantised(inputs):
    wide = {name: inputs[name].double() * inputs[f"{name}_scale"].double() for name in ("q", "k", "v")}
    return {**inputs, **wide}


def test_it_has_one_name_and_others_refuse_it_in_one_line():
    assert problem_of("e4m3") == problem_of("float8_e4m3fn") == problem_of()
    assert problem_of().label == "attention_fwd batch=2 heads=4 kv_heads=2 q_len=33 kv_len=57 head_dim=32 fp8"
    with pytest.raises(ProblemError, match="softmax: dtype must be one of bf16, fp16, fp32, but got 'fp8'"):
        get("softmax").problem({"rows": 4, "cols": 4}, "fp8")
    for name in ("attention_bwd", "attention_decode", "attention_varlen"):
        assert get(name).dtypes == ("bf16", "fp16", "fp32")


def test_inputs_take_a_byte_and_outputs_two_and_there_are_scales():
    problem, queries, keys = problem_of(), 2 * 4 * 33, 2 * 2 * 57
    assert OPERATOR.bytes_moved(problem) == (queries + 2 * keys) * 32 + 2 * queries * 32 + 4 * queries + 12
    assert OPERATOR.flops(problem) == OPERATOR.flops(problem_of("bf16"))
    assert OPERATOR.output_specs(problem)["out"].dtype == "bf16"
    assert OPERATOR.launch_tensors(problem) == ("q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "lse")
    assert OPERATOR.launch_tensors(problem_of("bf16")) == ("q", "k", "v", "out", "lse")
    made = OPERATOR.timing_inputs(problem_of(bias="one"), 0, "cpu")
    assert [made[n].dtype for n in ("k", "v_scale", "bias")] == [torch.float8_e4m3fn, torch.float32, torch.bfloat16]


def test_the_largest_magnitude_becomes_448_and_all_else_keeps_its_ratio():
    wide = torch.tensor([[0.5, -2.0, 0.0, 1.9, 1e-9, torch.nan, torch.inf, -torch.inf]])
    zeros = torch.zeros(1, 8)
    made = quantised({"q": wide, "k": zeros, "v": 3.0 * wide})
    assert made["q_scale"].tolist() == pytest.approx([2.0 / 448.0]) and made["k_scale"].tolist() == [1.0]
    assert made["v_scale"].tolist() == pytest.approx([6.0 / 448.0])
    # 425.6 lies between 416 and 448; an infinity becomes the largest number there is.
    assert made["q"].float()[0].nan_to_num(-1.0).tolist() == [112.0, -448.0, 0.0, 416.0, 0.0, -1.0, 448.0, -448.0]
    assert torch.equal(made["q"].view(torch.uint8), made["v"].view(torch.uint8))


@pytest.mark.parametrize("family", OPERATOR.families(problem_of(causal=True, sinks=True, bias="heads")))
def test_every_family_is_finite_but_for_nan_and_its_reference_is_the_formula(family):
    problem = problem_of(causal=True, sinks=True, bias="heads")
    inputs = OPERATOR.make_inputs(problem, family, 3, "cpu")
    assert all(inputs[name].float().abs().nan_to_num(0.0).max() in (0.0, 448.0) for name in ("q", "k", "v"))
    assert any(t.isnan().any() for t in inputs.values()) is (family == "nonfinite")
    reference = OPERATOR.reference(problem, inputs, PROFILE).outputs
    out, lse = attention(dequantised(inputs), 32**-0.5, right=0)
    torch.testing.assert_close(reference["out"].expected, out, rtol=1e-7, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(reference["lse"].expected, lse, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_q_k_and_v_are_what_they_stand_for_without_scales_and_one_can_be_forgotten():
    inputs = OPERATOR.make_inputs(problem_of(), "randn", 0, "cpu")
    q, k, v, scale = exact(inputs, 0.25)
    wide = dequantised(inputs)
    torch.testing.assert_close(scale * (q.double() @ k[:, :1].double().mT), 0.25 * (wide["q"] @ wide["k"][:, :1].mT))
    assert torch.equal(v, wide["v"])
    assert exact(inputs, 0.25, "k_scale forgotten")[3] == pytest.approx(0.25 * float(inputs["q_scale"]))
    plain = {"q": q, "k": k, "v": v}
    assert exact(plain, 0.25) == (q, k, v, 0.25)


def test_a_variation_changes_signs_without_arithmetic():
    problem = problem_of()
    inputs = OPERATOR.make_inputs(problem, "nonfinite", 0, "cpu")
    variation = OPERATOR.variation(problem, "cpu", 5)
    given = {name: torch.empty_like(t) for name, t in inputs.items()}
    variation.apply(inputs, given)
    assert not torch.equal(given["v"].view(torch.uint8), inputs["v"].view(torch.uint8))
    moved, _ = attention(dequantised(given), 0.25)
    back = torch.empty_like(moved)
    variation.undo("out", moved, back)
    torch.testing.assert_close(back, attention(dequantised(inputs), 0.25)[0], equal_nan=True)


def test_an_odd_number_of_bytes_lies_between_nan_and_is_watched():
    inputs = {"q": torch.arange(15.0).reshape(3, 5).to(torch.float8_e4m3fn)}
    guarded = GuardedInputs(inputs)
    guarded.given["q"].copy_(inputs["q"])
    for place in (0, 1):
        guarded.fill(place)
    first = guarded.places[0]["q"]
    assert torch.equal(first.view(torch.uint8), inputs["q"].view(torch.uint8)) and guarded.changes(2) == 0
    around = first.as_strided((17,), (1,), first.storage_offset() - 1).float()
    assert around[0].isnan() and around[-1].isnan() and around[1:-1].tolist() == list(map(float, range(15)))
    first[2, 4] = 3.0
    assert guarded.changes(2) == 1 and guarded.changed() == "q"


def test_a_profile_of_fp8_says_how_many_products_are_summed_at_once():
    with pytest.raises(ValueError, match="`pv_terms` must be a whole number of at least 1, but got 0"):
        PrecisionProfile("fp8", "bf16", p="fp8", dot="8bit")
    with pytest.raises(ValueError, match="`p_scale` must be a positive number, but got 0"):
        replace(PROFILE, p_scale=0)
    assert (PROFILE.as_json()["pv_terms"], PROFILE.as_json()["p_scale"]) == (16, 256)
    assert not {"pv_terms", "p_scale"} & PrecisionProfile("bf16", "bf16").as_json().keys()


def bound(profile, family="randn"):
    problem = problem_of()
    inputs = OPERATOR.make_inputs(problem, family, 0, "cpu")
    return OPERATOR.reference(problem, inputs, profile).outputs["out"]


def test_the_bound_covers_rounded_weights_and_nothing_twice_as_far_off():
    inputs = dequantised(OPERATOR.make_inputs(problem_of(), "randn", 0, "cpu"))
    q, k, v = (inputs["q"], *(inputs[name].repeat_interleave(2, dim=1) for name in ("k", "v")))
    s = 32**-0.5 * q @ k.mT
    p = (s - s.amax(-1, keepdim=True)).exp()

    def ratio(scale, weights=p):
        bits = e4m3_bits.narrow((scale * weights).numpy().astype(np.float32))
        rounded = torch.from_numpy(e4m3_bits.widen(bits)).double() / scale
        out = (rounded @ v / p.sum(-1, keepdim=True)).bfloat16().double()
        reference = bound(PROFILE)
        return float(((out - reference.expected).abs() / reference.bound).max())

    assert 0.1 < ratio(256.0) < 1.0
    assert ratio(256.0, 0.875 * p) > 1.0 < ratio(1024.0)  # too small, and saturated


def test_what_is_declared_widens_the_bound_by_its_term():
    kept = replace(PROFILE, p="bf16", pv_dot="16bit", pv_terms=0)
    finer, coarser, longer = bound(kept).bound, bound(PROFILE).bound, bound(replace(PROFILE, pv_terms=64)).bound
    inputs = dequantised(OPERATOR.make_inputs(problem_of(), "randn", 0, "cpu"))
    magnitude, _ = attention({**inputs, "v": inputs["v"].abs()}, 32**-0.5)
    # 2 n 2^-14 of sum P |v| for n products, and twice for each instruction, of 32 at most, the accumulator.
    assert product_sums("8bit", 64, 2.0**-24) == 2 * (64 + 4) * 2.0**-14
    torch.testing.assert_close(longer - coarser, (1 + 2.0**-8) * 2 * (64 + 4 - 16 - 2) * 2.0**-14 * magnitude)
    assert bool((finer + 0.05 * magnitude < coarser).all())
    unscaled = bound(replace(PROFILE, p_scale=1.0)).bound
    assert bool((unscaled > coarser).all())


def summed_with_14_bits(products, downwards):
    """Sums along the last axis as tensor cores make them: 32 at once, each shifted to the largest and cut off."""

    def cut(terms, largest):
        unit = torch.exp2(torch.frexp(largest)[1] - 14.0).where(largest > 0.0, torch.ones(()).double())
        return (terms / unit).floor() * unit if downwards else (terms / unit).trunc() * unit

    total = torch.zeros_like(products[..., 0])
    for some in products.split(32, dim=-1):
        terms = torch.cat([total[..., None], some], dim=-1)
        total = cut(terms, terms.abs().amax(-1, keepdim=True)).sum(-1)
        total = cut(total, total.abs())
    return total


@pytest.mark.parametrize("family", ["uniform", "falling_far", "equal_max"])
@pytest.mark.parametrize("downwards", [False, True])
def test_the_bound_covers_sums_of_14_bits_whichever_way_they_are_cut_off(family, downwards):
    problem = OPERATOR.problem({**SHAPE, "batch": 1, "head_dim": 128}, "fp8")
    inputs = OPERATOR.make_inputs(problem, family, 0, "cpu")
    q, k = inputs["q"][0, 0].double(), inputs["k"][0, 0].double()
    products = q[:, None] * k[None]
    scale = 128**-0.5 * inputs["q_scale"].double() * inputs["k_scale"].double()
    off = scale * (summed_with_14_bits(products, downwards) - products.sum(-1)).abs()
    reference = OPERATOR.reference(problem, inputs, replace(PROFILE, tiles=1)).outputs["lse"]
    # One key's logit at a time is a log-sum-exp: that of the sum of them is off by no more than the worst of them.
    worst = float((off.amax(-1) / reference.bound[0, 0]).max())
    assert 0.02 < worst < 1.0
    lse = (scale * summed_with_14_bits(products, downwards)).logsumexp(-1)
    assert bool(((lse - reference.expected[0, 0]).abs() <= reference.bound[0, 0]).all())


@pytest.mark.parametrize("weights", ["fp8", "bf16"])
def test_the_inputs_would_show_every_classical_error_and_a_forgotten_scale(weights):
    profile = PROFILE if weights == "fp8" else replace(PROFILE, p="bf16", pv_dot="16bit", pv_terms=0)
    problem = problem_of(causal=True)
    assert set(ERRORS) <= set(OPERATOR.classical_errors(problem, {"kv_len": 16}))
    checks = plan(OPERATOR, problem, {"q_len": 16, "kv_len": 16}, {}, profile, full_size=False)
    assert hidden_errors(OPERATOR, checks, "cpu", 0, ReferenceCache()) == ()


@pytest.mark.parametrize(("factor", "status", "word"), [("1.0", 0, "OK"), ("1.4427", 1, "WRONG")])
def test_a_file_checks_itself(tmp_path, capsys, factor, status, word):
    path = tmp_path / "standalone.py"
    path.write_text(LAUNCH.replace("FACTOR", factor) + OPERATOR.self_check(problem_of()))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == status
    assert f": {word}" in capsys.readouterr().out


def space(gpu, **changes):
    problem = OPERATOR.problem({**SHAPE, "q_len": 4096, "kv_len": 4096, "head_dim": 128, **changes}, "fp8")
    return load_space("attention_fwd").bind(problem, target(gpu))


def test_weights_are_in_fp8_or_bf16_and_each_config_says_so():
    found = space("h200")
    assert {config.template for config in found.configs()} == {"pointer", "descriptor"}
    profiles = {(p.p, p.pv_dot or p.dot, p.p_scale) for p in map(found.precision, found.configs())}
    assert profiles == {("fp8", "8bit", 256), ("bf16", "16bit", 256)}
    assert all(
        found.precision(c).pv_terms == c.values["BLOCK_N"] for c in found.configs() if found.precision(c).p == "fp8"
    )
    assert all(config.values["DOT_PRECISION"] == "ieee" for config in found.plain())


def test_without_sums_that_join_fp32_the_weights_are_in_bf16():
    for gpu in ("l40s", "b200"):
        assert {config.values["DOT_PRECISION"] for config in space(gpu).configs()} == {"bf16"}


def test_a_gpu_without_fp8_and_short_heads_have_no_config_and_it_is_said_why():
    with pytest.raises(ConfigError, match=r'pointer: where: dtype != "fp8" or capability >= 89 is false'):
        space("a100").parse("num_warps=4")
    with pytest.raises(ConfigError, match=r"capability=0"):
        space("mi300x").parse("num_warps=4")
    with pytest.raises(ConfigError, match=r"QK_DIM >= 32"):
        space("h200", head_dim=16).parse("num_warps=4")
