"""The additive bias of attention: its shapes and work, its reference, its variations, and what its check sees."""

from __future__ import annotations

import pytest
import torch

from tests.operators.attention_formula import attention
from tuner.check_plan import plan
from tuner.errors import ProblemError
from tuner.operators import get
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache
from tuner.space import load_space
from tuner.targets import target

BF16 = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=4)
SHAPE = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 33, "kv_len": 57, "head_dim": 16}
SHAPES = {"one": (1, 1, 33, 57), "heads": (1, 4, 33, 57), "batch": (2, 1, 33, 57), "both": (2, 4, 33, 57)}
OPERATOR = get("attention_fwd")


def problem_of(shape=None, **options):
    return OPERATOR.problem({**SHAPE, **(shape or {})}, "bf16", options)


@pytest.mark.parametrize(("whose", "shape"), SHAPES.items())
def test_a_bias_is_one_matrix_or_one_for_each(whose, shape):
    plain, problem = problem_of(), problem_of(bias=whose)
    assert OPERATOR.make_inputs(problem, "randn", 0, "cpu")["bias"].shape == shape
    assert OPERATOR.timing_inputs(problem, 0, "meta")["bias"].dtype == torch.bfloat16
    assert OPERATOR.strides(problem)["bias"][3] == 1
    more = OPERATOR.bytes_moved(problem) - OPERATOR.bytes_moved(plain)
    assert more == 2 * shape[0] * shape[1] * 33 * 57
    assert problem_of(bias="none") == plain


def test_of_a_bias_what_is_visible_is_read():
    shape = {"q_len": 2, "kv_len": 100}
    without, problem = (
        problem_of(shape, causal=True, window_left=3),
        problem_of(shape, causal=True, window_left=3, bias="one"),
    )
    assert OPERATOR.bytes_moved(problem) - OPERATOR.bytes_moved(without) == 2 * 8


def test_another_word_is_refused():
    with pytest.raises(
        ProblemError, match="bias must be one of none, one, heads, batch, both, but got 'head'; did you"
    ):
        problem_of(bias="head")


@pytest.mark.parametrize("family", ["randn", "holes", "nonfinite"])
@pytest.mark.parametrize(("whose", "others"), [
    ("one", {"softcap": 3.0}), ("heads", {"causal": True, "window_left": 9}), ("batch", {"alibi": True}),
    ("both", {"sinks": True}),
])  # fmt: skip
def test_the_reference_is_the_formula(family, whose, others):
    problem = problem_of(bias=whose, **others)
    inputs = OPERATOR.make_inputs(problem, family, 3, "cpu")
    reference = OPERATOR.reference(problem, inputs, BF16).outputs
    ends = {"left": 9, "right": 0} if "causal" in others else {}
    out, lse = attention(inputs, 0.25, softcap=others.get("softcap"), **ends)
    torch.testing.assert_close(reference["out"].expected, out, rtol=1e-7, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(reference["lse"].expected, lse, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert bool(torch.isfinite(reference["out"].bound[torch.isfinite(out)]).all())


def test_by_torch_a_bias_is_a_mask_that_is_added():
    problem = problem_of(bias="heads")
    inputs = OPERATOR.make_inputs(problem, "holes", 0, "cpu")
    q, k, v, bias = (inputs[name].double() for name in ("q", "k", "v", "bias"))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, enable_gqa=True)
    dead = bias.isneginf().all(-1)
    assert bool(dead.any()) and not bool(dead.all())
    expected = OPERATOR.reference(problem, inputs, BF16).outputs["out"].expected
    torch.testing.assert_close(expected, out.masked_fill(dead[..., None], 0.0))


@pytest.mark.parametrize("whose", SHAPES)
def test_a_bias_moves_with_its_sequences_and_heads(whose):
    problem = problem_of(bias=whose)
    inputs = OPERATOR.make_inputs(problem, "randn", 0, "cpu")
    out, _ = attention(inputs, 0.25)
    for seed in range(4):
        variation = OPERATOR.variation(problem, "cpu", seed)
        given = {name: torch.empty_like(tensor) for name, tensor in inputs.items()}
        variation.apply(inputs, given)
        back = torch.empty_like(out)
        variation.undo("out", attention(given, 0.25)[0], back)
        torch.testing.assert_close(back, out, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{"bias": "both"}, {"bias": "one", "causal": True}])
def test_the_inputs_show_every_error(options):
    problem, tiles = problem_of({"q_len": 500, "kv_len": 500}, **options), {"q_len": 32, "kv_len": 32}
    checks = plan(OPERATOR, problem, tiles, {}, BF16, full_size=False)
    assert not hidden_errors(OPERATOR, checks, "cpu", 0, ReferenceCache())
    wanted = {error for c in checks.checks for error in OPERATOR.classical_errors(c.problem, tiles)}
    assert {"no bias", "a bias in base 2", "a bias that is scaled", "the bias of the query before"} <= wanted
    assert ("another head's bias" in wanted) == (options["bias"] == "both")


def test_a_bias_has_a_place_in_registers_and_shared_memory():
    shape = {"q_len": 4096, "kv_len": 4096, "head_dim": 128}
    space = load_space("attention_fwd")
    plain, biased = (space.bind(problem_of(shape, **o), target("h200")) for o in ({}, {"bias": "one"}))
    assert set(biased.templates) == {"pointer", "descriptor"} and 50 <= biased.size() < plain.size()
    large = "template=descriptor,BLOCK_M=128,BLOCK_N=128,KV_STAGES=2,num_warps=8"
    plain.parse(large), biased.parse(large)
    deep = "template=descriptor,BLOCK_M=128,BLOCK_N=128,KV_STAGES=3,num_warps=8"
    assert plain.parse(deep) and not any(c.label.startswith(deep) for c in biased.configs())
