"""Values with a head_dim of their own: the problem, its work, its reference, and its check."""

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
from tuner.similar import _unlike
from tuner.space import load_space
from tuner.targets import target

BF16 = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=4)
SHAPE = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 33, "kv_len": 57, "head_dim": 48}
OPERATOR = get("attention_fwd")


def problem_of(v_head_dim=24, dtype="bf16", **options):
    return OPERATOR.problem({**SHAPE, "v_head_dim": v_head_dim}, dtype, options)


def test_left_out_or_that_of_the_keys_it_leaves_the_problem_what_it_was():
    plain = OPERATOR.problem(SHAPE, "bf16")
    assert problem_of(48) == plain and "v_head_dim" not in plain.sizes
    assert plain.label == "attention_fwd batch=2 heads=4 kv_heads=2 q_len=33 kv_len=57 head_dim=48 bf16"
    assert OPERATOR.facts(plain)["v_head_dim"] == 48 and OPERATOR.facts(plain)["plain_attention"] is True
    own = problem_of()
    assert own.label == "attention_fwd batch=2 heads=4 kv_heads=2 q_len=33 kv_len=57 head_dim=48 v_head_dim=24 bf16"
    assert own.key != plain.key and OPERATOR.facts(own)["plain_attention"] is False
    assert _unlike(own, plain)[0] == 1


def test_work_and_tensors_are_of_both_dims():
    problem, pairs = problem_of(), 2 * 4 * 33 * 57
    assert OPERATOR.flops(problem) == 2 * pairs * (48 + 24)
    queries, keys = 2 * 4 * 33, 2 * 2 * 57
    assert OPERATOR.bytes_moved(problem) == 2 * (queries + keys) * (48 + 24) + 4 * queries
    inputs = OPERATOR.timing_inputs(problem, 0, "meta")
    shapes = {name: tuple(t.shape)[2:] for name, t in inputs.items()}
    assert shapes == {"q": (33, 48), "k": (57, 48), "v": (57, 24)}
    assert OPERATOR.output_specs(problem)["out"].shape == (2, 4, 33, 24)
    strides = OPERATOR.strides(problem)
    assert strides["v"][2] >= 24 and strides["out"][2] >= 24 and strides["v"] != strides["k"]


def test_the_small_problems_and_stand_ins_keep_both_dims():
    tiles = {"q_len": 16, "kv_len": 16}
    small = OPERATOR.check_problems(problem_of(), tiles, {}, same_binary=True)
    found = [p.sizes for p in (*small, *OPERATOR.stand_ins(problem_of(), tiles, {}))]
    assert len(found) > 5 and {(s["head_dim"], s["v_head_dim"]) for s in found} == {(48, 24)}
    # Rows of 24 elements: a length decides whether a head of v starts at a multiple of 16 elements.
    assert {p.sizes["kv_len"] % 2 for p in small} == {1}


@pytest.mark.parametrize("family", ["randn", "coverage", "nonfinite"])
@pytest.mark.parametrize("v_head_dim", [24, 72])
def test_the_reference_is_the_formula(family, v_head_dim):
    problem = problem_of(v_head_dim, causal=True, sinks=True)
    inputs = OPERATOR.make_inputs(problem, family, 3, "cpu")
    reference = OPERATOR.reference(problem, inputs, BF16).outputs
    out, lse = attention(inputs, 48**-0.5, right=0)
    torch.testing.assert_close(reference["out"].expected, out, rtol=1e-7, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(reference["lse"].expected, lse, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_a_variation_moves_and_signs_values_of_their_own_dim():
    problem = problem_of()
    inputs = OPERATOR.make_inputs(problem, "randn", 0, "cpu")
    variation = OPERATOR.variation(problem, "cpu", 5)
    given = {name: torch.empty_like(t) for name, t in inputs.items()}
    variation.apply(inputs, given)
    moved, _ = attention(given, 0.25)
    back = torch.empty_like(moved)
    variation.undo("out", moved, back)
    torch.testing.assert_close(back, attention(inputs, 0.25)[0])
    assert not torch.equal(given["v"], inputs["v"])


def test_the_inputs_would_show_every_classical_error():
    checks = plan(OPERATOR, problem_of(causal=True), {"q_len": 16, "kv_len": 16}, {}, BF16, full_size=False)
    assert hidden_errors(OPERATOR, checks, "cpu", 0, ReferenceCache()) == ()


@pytest.mark.parametrize("operator", ["attention_bwd", "attention_decode", "attention_varlen"])
def test_other_operators_say_that_they_have_none(operator):
    lengths = {"max_len": 64} if operator == "attention_varlen" else {"q_len": 1, "kv_len": 64}
    with pytest.raises(ProblemError, match=f"{operator} has no shape parameter 'v_head_dim'"):
        get(operator).problem({"batch": 1, "heads": 2, "head_dim": 64, "v_head_dim": 32, **lengths}, "bf16")


@pytest.mark.parametrize(
    ("dims", "parts", "templates"),
    [
        ((192, 128), True, ("pointer", "descriptor")),
        ((80, 96), True, ("pointer", "descriptor")),
        ((128, 64), False, ("pointer", "descriptor")),
        ((200, 128), False, ("pointer", "descriptor")),
    ],
)
def test_head_dim_is_taken_in_two_parts_where_that_pads_less(dims, parts, templates):
    problem = OPERATOR.problem({**SHAPE, "q_len": 4096, "head_dim": dims[0], "v_head_dim": dims[1]}, "bf16")
    space = load_space("attention_fwd").bind(problem, target("h200"))
    assert space.templates == templates
    assert {dict(config.switches)["SPLIT_DIM"] for config in space.configs()} == {parts}
