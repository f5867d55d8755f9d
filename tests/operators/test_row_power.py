"""Classical errors and invariants of log_softmax, logsumexp and softmax_bwd: right and wrong are told apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.operators.test_row_references import BF16, FP32, beyond, made
from tuner.check_plan import plan
from tuner.operators import get
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache

NAMES = ("log_softmax", "logsumexp", "softmax_bwd")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_the_inputs_show_every_classical_error(name, dtype):
    operator = get(name)
    problem = operator.problem({"rows": 300, "cols": 1500}, dtype)
    profile = PrecisionProfile(dtype, dtype, tiles=7)
    for tiles, most, kinds in (({"cols": 256}, {}, 8), ({"cols": 2048}, {"cols": 1}, 7)):
        checks = plan(operator, problem, tiles, most, profile, full_size=False)
        assert len(operator.classical_errors(checks.checks[0].problem, tiles)) >= kinds
        assert hidden_errors(operator, checks, "cpu", 0, ReferenceCache()) == ()


@pytest.mark.parametrize("name", NAMES)
def test_without_an_error_the_answer_is_the_reference(name):
    operator, problem, inputs = made(name, "masked")
    (reference,) = operator.reference(problem, inputs, BF16).outputs.values()
    ((place, got),) = operator.wrong_answer(problem, inputs, "none", {"cols": 64}).values()
    assert place == ()
    torch.testing.assert_close(got, reference.expected, rtol=1e-10, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_each_error_changes_the_answer_of_every_shape_that_it_is_said_to_apply_to(name):
    operator = get(name)
    for rows, cols in ((5, 200), (5, 1), (1, 200), (1, 1)):
        problem = operator.problem({"rows": rows, "cols": cols}, "fp32")
        for error in operator.classical_errors(problem, {"cols": 64}):
            changed = False
            for family in operator.families(problem):
                inputs = operator.make_inputs(problem, family, 0, "cpu")
                (reference,) = operator.reference(problem, inputs, FP32).outputs.values()
                ((_, got),) = operator.wrong_answer(problem, inputs, error, {"cols": 64}).values()
                changed |= not beyond(reference, got) <= 1.0
            assert changed, (rows, cols, error)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("name", ["log_softmax", "softmax_bwd"])
def test_invariants_hold_for_right_outputs_and_not_where_one_row_is_off(name, dtype):
    profile = replace(BF16, input=dtype, output=dtype)
    operator, problem, inputs = made(name, "randn", dtype)
    invariant = operator.invariant(problem, inputs, profile)
    (reference,) = operator.reference(problem, invariant.inputs, profile).outputs.items()
    right = {reference[0]: reference[1].expected.to(inputs.popitem()[1].dtype)}
    assert float(invariant.excess(right)) < 1.0
    for row, wrong in ((4, 1.05), (10, 0.0), (0, float("nan"))):
        spoilt = {name: tensor.clone() for name, tensor in right.items()}
        spoilt[reference[0]][row] *= wrong
        assert float(invariant.excess(spoilt)) > 1.0


def test_a_sum_that_lost_a_tile_breaks_the_gradients_invariant():
    operator, problem, inputs = made("softmax_bwd", "randn")
    invariant = operator.invariant(problem, inputs, BF16)
    ((_, got),) = operator.wrong_answer(problem, invariant.inputs, "a tile dropped", {"cols": 16}).values()
    assert float(invariant.excess({"dx": got.to(torch.bfloat16)})) > 1.0
