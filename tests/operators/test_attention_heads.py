"""Sinks and slopes of attention: its tensors and work, its reference, its variations, and what its check sees."""

from __future__ import annotations

import pytest
import torch

from tests.operators.attention_formula import attention
from tuner.check_plan import plan
from tuner.operators import get
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache

BF16 = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=4)
SHAPE = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 33, "kv_len": 57, "head_dim": 16}
OPERATOR = get("attention_fwd")


def problem_of(shape=None, **options):
    return OPERATOR.problem({**SHAPE, **(shape or {})}, "bf16", options)


def test_a_launch_takes_the_tensors_that_the_problem_has():
    assert OPERATOR.launch_tensors(problem_of()) == ("q", "k", "v", "out", "lse")
    assert OPERATOR.launch_tensors(problem_of(sinks=True)) == ("q", "k", "v", "sinks", "out", "lse")
    both = problem_of(sinks=True, alibi=True)
    assert OPERATOR.launch_tensors(both) == ("q", "k", "v", "sinks", "slopes", "out", "lse")
    for inputs in (OPERATOR.make_inputs(both, "randn", 0, "cpu"), OPERATOR.timing_inputs(both, 0, "cpu")):
        assert {n: (t.shape, t.dtype) for n, t in inputs.items() if n in ("sinks", "slopes")} == {
            "sinks": ((4,), torch.float32),
            "slopes": ((4,), torch.float32),
        }
    for name in ("attention_bwd", "attention_decode"):
        assert {"sinks", "alibi"}.isdisjoint(option.name for option in get(name).options)


def test_sinks_and_slopes_are_read_and_a_sink_is_an_exponential_of_each_query():
    plain, both = problem_of(), problem_of(sinks=True, alibi=True)
    assert OPERATOR.bytes_moved(both) - OPERATOR.bytes_moved(plain) == 2 * 4 * 4
    assert OPERATOR.exponentials(both) - OPERATOR.exponentials(plain) == 2 * 4 * 33
    assert OPERATOR.flops(both) == OPERATOR.flops(plain)


@pytest.mark.parametrize(("family", "options"), [
    ("randn", {"sinks": True}),
    ("sinking", {"sinks": True, "causal": True}),
    ("nonfinite", {"sinks": True, "alibi": True}),
    ("randn", {"alibi": True, "softcap": 3.0}),
    ("steep", {"alibi": True, "causal": True, "window_left": 9}),
    ("very_negative", {"sinks": True, "alibi": True, "window_left": 4, "window_right": 6}),
])  # fmt: skip
@pytest.mark.parametrize(("q_len", "kv_len"), [(33, 57), (57, 33)])
def test_the_reference_is_the_formula(family, options, q_len, kv_len):
    problem = problem_of({"q_len": q_len, "kv_len": kv_len}, **options)
    inputs = OPERATOR.make_inputs(problem, family, 3, "cpu")
    reference = OPERATOR.reference(problem, inputs, BF16).outputs
    right = 0 if options.get("causal") else options.get("window_right")
    out, lse = attention(inputs, 0.25, left=options.get("window_left"), right=right, softcap=options.get("softcap"))
    torch.testing.assert_close(reference["out"].expected, out, rtol=1e-7, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(reference["lse"].expected, lse, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert bool(torch.isfinite(reference["out"].bound[torch.isfinite(out)]).all())


def test_where_no_key_is_seen_the_log_sum_exp_is_the_sink():
    problem = problem_of({"q_len": 57, "kv_len": 33}, causal=True, sinks=True)
    inputs = OPERATOR.make_inputs(problem, "randn", 0, "cpu")
    outputs = OPERATOR.reference(problem, inputs, BF16).outputs
    assert not outputs["out"].expected[:, :, :24].any()
    expected = inputs["sinks"].double()[:, None].expand(2, 4, 24)
    torch.testing.assert_close(outputs["lse"].expected[:, :, :24], expected, rtol=1e-15, atol=0)
    assert 0 < float(outputs["lse"].bound[:, :, :24].max()) < 1e-5


def test_by_torch_a_slope_is_a_mask_that_is_added():
    problem = problem_of(alibi=True)
    inputs = OPERATOR.make_inputs(problem, "steep", 0, "cpu")
    distance = torch.arange(57)[None, :] - torch.arange(33)[:, None] - 24
    mask = -inputs["slopes"].double()[:, None, None] * distance.abs()
    q, k, v = (inputs[name].double() for name in ("q", "k", "v"))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    torch.testing.assert_close(OPERATOR.reference(problem, inputs, BF16).outputs["out"].expected, out)


def test_sinks_and_slopes_move_with_their_heads():
    problem = problem_of(sinks=True, alibi=True)
    inputs = OPERATOR.make_inputs(problem, "randn", 0, "cpu")
    out, lse = attention(inputs, 0.25)
    for seed in range(4):
        variation = OPERATOR.variation(problem, "cpu", seed)
        given = {name: torch.empty_like(tensor) for name, tensor in inputs.items()}
        variation.apply(inputs, given)
        for name, expected, got in zip(("out", "lse"), (out, lse), attention(given, 0.25), strict=True):
            back = torch.empty_like(expected)
            variation.undo(name, got, back)
            torch.testing.assert_close(back, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{"sinks": True}, {"alibi": True}, {"sinks": True, "alibi": True, "causal": True}])
def test_the_inputs_show_every_error(options):
    problem, tiles = problem_of({"q_len": 500, "kv_len": 500}, **options), {"q_len": 32, "kv_len": 32}
    checks = plan(OPERATOR, problem, tiles, {}, BF16, full_size=False)
    assert not hidden_errors(OPERATOR, checks, "cpu", 0, ReferenceCache())
    wanted = {error for c in checks.checks for error in OPERATOR.classical_errors(c.problem, tiles)}
    assert ({"no sink", "a sink in base 2", "a sink twice", "another head's sink"} <= wanted) == ("sinks" in options)
    assert ({"slopes upwards", "slopes from the top left", "another head's slope"} <= wanted) == ("alibi" in options)


def test_a_v_of_ones_gives_one_less_the_sinks_weight():
    problem = problem_of(sinks=True)
    inputs = OPERATOR.make_inputs(problem, "randn", 0, "cpu")
    invariant = OPERATOR.invariant(problem, inputs, BF16)
    out, lse = attention(dict(invariant.inputs), 0.25)
    assert float(invariant.excess({"out": out.bfloat16(), "lse": lse.float()})) < 1.0
    assert float(invariant.excess({"out": out.bfloat16() * 1.05, "lse": lse.float()})) > 1.0
