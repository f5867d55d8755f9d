"""The cross-entropy and its gradient: the float64 references against torch, inputs, bounds, invariants, self-checks."""

from __future__ import annotations

import math
import runpy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from tuner.check_plan import CheckPlan, PlannedCheck
from tuner.cli.problem_arguments import read_problem
from tuner.errors import ProblemError
from tuner.operators import cross_entropy_errors, get, row_blocks
from tuner.operators.cross_entropy_inputs import log_sum_exp
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.problems_file import load_problems
from tuner.reference_cache import ReferenceCache

FORWARD, BACKWARD = get("cross_entropy"), get("cross_entropy_bwd")
SHAPE = {"rows": 9, "cols": 301, "row_stride": 320}
BOTH = {"label_smoothing": 0.125, "z_loss": 2.0**-9}
EACH = [{}, {"label_smoothing": 0.125}, {"z_loss": 2.0**-9}, BOTH]
FP32 = PrecisionProfile("fp32", "fp32", tiles=3)
BF16 = PrecisionProfile("bf16", "bf16", tiles=3)


def torch_loss(x, targets, label_smoothing=0.0, z_loss=0.0):
    """Torch's own loss and, for the z-loss, its log-sum-exp."""
    lse = torch.logsumexp(x, 1)
    loss = F.cross_entropy(x, targets, reduction="none", label_smoothing=label_smoothing or 0.0)
    return loss + (z_loss or 0.0) * torch.where(targets == -100, 0.0, lse**2), lse


@pytest.mark.parametrize("options", EACH)
@pytest.mark.parametrize("family", FORWARD.families(FORWARD.problem(SHAPE, "fp32")))
def test_loss_and_log_sum_exp_are_torchs(family, options):
    problem = FORWARD.problem(SHAPE, "fp32", options)
    inputs = FORWARD.make_inputs(problem, family, 3, "cpu")
    found = FORWARD.reference(problem, inputs, FP32).outputs
    loss, lse = torch_loss(inputs["logits"].double(), inputs["targets"], **options)
    # Of what is not finite torch makes NaN in the loss; here the log-sum-exp is NaN with it.
    bad = ~torch.isfinite(inputs["logits"].amax(1))
    torch.testing.assert_close(found["lse"].expected, lse.masked_fill(bad, math.nan), equal_nan=True)
    torch.testing.assert_close(found["loss"].expected, loss, rtol=1e-9, atol=1e-9, equal_nan=True)
    assert found["lse"].has_nan == bool(bad.any())


@pytest.mark.parametrize("options", EACH)
@pytest.mark.parametrize("family", ["randn", "masked", "rising", "one_hot", "huge", "very_negative"])
def test_the_gradient_is_what_autograd_makes_of_torchs_loss(family, options):
    problem = BACKWARD.problem(SHAPE, "fp32", options)
    inputs = BACKWARD.make_inputs(problem, family, 3, "cpu")
    x = inputs["logits"].double().requires_grad_()
    loss, lse = torch_loss(x, inputs["targets"], **options)
    exact = {**inputs, "lse": lse.detach()}  # not rounded to fp32, which autograd knows nothing of
    found = BACKWARD.reference(problem, exact, FP32).outputs["dlogits"].expected
    ignored = inputs["targets"] == -100
    finite = torch.isfinite(loss)
    (grad,) = torch.autograd.grad((loss * inputs["grad"]).where(finite, 0.0).sum(), x)
    known = finite & torch.isfinite(lse)
    assert ignored.any() and not bool(found[ignored].any())
    torch.testing.assert_close(found[known], grad[known].nan_to_num(0.0), rtol=1e-8, atol=1e-9)


def test_a_target_that_is_masked_costs_infinity_and_its_gradient_is_finite():
    problem = BACKWARD.problem({"rows": 1, "cols": 3}, "fp32")
    x, target = torch.tensor([[0.0, -math.inf, 0.0]]), torch.tensor([1])
    loss = FORWARD.reference(
        FORWARD.problem({"rows": 1, "cols": 3}, "fp32"), {"logits": x, "targets": target}, FP32
    ).outputs["loss"]
    assert loss.expected.tolist() == [math.inf]
    inputs = {"logits": x, "targets": target, "lse": log_sum_exp(x), "grad": torch.tensor([2.0])}
    found = BACKWARD.reference(problem, inputs, FP32).outputs["dlogits"].expected
    torch.testing.assert_close(found, torch.tensor([[1.0, -2.0, 1.0]]).double(), rtol=1e-6, atol=0)


def test_ignored_rows_have_no_tolerance_and_keep_their_log_sum_exp():
    problem = BACKWARD.problem(SHAPE, "bf16", BOTH)
    inputs = BACKWARD.make_inputs(problem, "nonfinite", 0, "cpu")
    ignored = inputs["targets"] == -100
    assert ignored.tolist() == [row == 3 for row in range(9)]
    assert bool(inputs["logits"][3].isnan().any())  # 0 all the same
    loss = FORWARD.reference(FORWARD.problem(SHAPE, "bf16", BOTH), inputs, BF16).outputs
    assert float(loss["loss"].expected[3]) == float(loss["loss"].bound[3]) == 0.0
    assert bool(loss["lse"].expected[3].isnan())
    gradient = BACKWARD.reference(problem, inputs, BF16).outputs["dlogits"]
    assert not bool(gradient.expected[3].any()) and not bool(gradient.bound[3].any())
    assert bool(gradient.expected[0].isnan().all())


def test_every_kind_of_target_is_among_the_first_rows():
    inputs = FORWARD.make_inputs(FORWARD.problem(SHAPE, "bf16"), "one_hot", 0, "cpu")
    targets = inputs["targets"].tolist()
    assert targets[1:6] == [300, 150, -100, int(inputs["logits"][4].argmax()), 0]
    assert all(0 <= target < 301 for row, target in enumerate(targets) if row != 3)
    timed = BACKWARD.timing_inputs(BACKWARD.problem({"rows": 500, "cols": 7}, "bf16"), 0, "cpu")
    assert set(timed["targets"].tolist()) == set(range(7)), "no row is ignored where a launch is timed"
    torch.testing.assert_close(timed["lse"], torch.logsumexp(timed["logits"].float(), 1))


def test_a_large_problem_is_compared_on_some_rows_as_the_whole_is(monkeypatch):
    for operator, options in ((FORWARD, BOTH), (BACKWARD, BOTH)):
        problem = operator.problem({"rows": 200, "cols": 300}, "bf16", options)
        inputs = operator.make_inputs(problem, "randn", 1, "cpu")
        whole = operator.reference(problem, inputs, BF16).outputs
        with monkeypatch.context() as less:
            less.setattr(row_blocks, "_WHOLE", 1000)
            less.setattr(row_blocks, "_SELECTED", 20 * 300)
            less.setattr(row_blocks, "BLOCK_ELEMENTS", 900)
            part = operator.reference(problem, inputs, BF16).outputs
        for name, output in part.items():
            assert len(output.index[0]) == 20
            torch.testing.assert_close(output.expected, whole[name].expected[output.index])
            torch.testing.assert_close(output.bound, whole[name].bound[output.index])


def test_the_bounds_are_a_few_roundings_and_a_sum_is_never_free():
    problem = FORWARD.problem({"rows": 7, "cols": 512}, "bf16")
    found = FORWARD.reference(problem, FORWARD.make_inputs(problem, "randn", 0, "cpu"), BF16).outputs
    assert float(found["lse"].bound.min()) > 1e-6 and float(found["lse"].bound.max()) < 1.5e-5
    assert bool((found["loss"].bound[:3] > found["lse"].bound[:3]).all())
    low = FORWARD.reference(
        problem, FORWARD.make_inputs(problem, "randn", 0, "cpu"), replace(BF16, accumulator="bf16")
    ).outputs
    assert bool((low["lse"].bound > 100 * found["lse"].bound).all())
    problem = BACKWARD.problem({"rows": 7, "cols": 512}, "bf16")
    gradient = BACKWARD.reference(problem, BACKWARD.make_inputs(problem, "randn", 0, "cpu"), BF16).outputs["dlogits"]
    relative = (gradient.bound / gradient.expected.abs())[gradient.bound > 0]
    assert float(relative.min()) > 2.0**-8 and float(relative.max()) < 1.05 * 2.0**-8


@pytest.mark.parametrize("options", [{}, BOTH])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("operator", [FORWARD, BACKWARD])
def test_the_families_show_every_classical_error_and_fewer_of_them_do_not(operator, dtype, options):
    problem = operator.problem({"rows": 9, "cols": 300}, dtype, options)
    profile = PrecisionProfile(dtype, dtype, tiles=5)

    def hidden(families):
        plan = CheckPlan(tuple(PlannedCheck(problem, family, profile) for family in families), {"cols": 64})
        return set(hidden_errors(operator, plan, "cpu", 0, ReferenceCache()))

    assert hidden(operator.families(problem)) == set()
    if operator is FORWARD:
        assert hidden(["randn"]) == {"block maximum not carried"}
        assert "l not rescaled" in hidden(["constant"])


def test_errors_that_change_nothing_are_not_asked_for():
    def asked(operator, shape, options=None):
        return set(operator.classical_errors(operator.problem(shape, "bf16", options), {"cols": 64}))

    assert cross_entropy_errors.IGNORED_COUNTED not in asked(FORWARD, {"rows": 3, "cols": 9})
    assert cross_entropy_errors.IGNORED_COUNTED in asked(BACKWARD, {"rows": 4, "cols": 9})
    assert "l not rescaled" not in asked(FORWARD, {"rows": 4, "cols": 64})
    assert cross_entropy_errors.NO_SMOOTHING not in asked(FORWARD, {"rows": 4, "cols": 64})
    assert cross_entropy_errors.NO_SMOOTHING in asked(BACKWARD, {"rows": 4, "cols": 64}, BOTH)
    # So small a factor changes a gradient by less than it is rounded.
    assert cross_entropy_errors.NO_Z_LOSS not in asked(BACKWARD, {"rows": 4, "cols": 64}, {"z_loss": 1e-6})
    assert asked(BACKWARD, {"rows": 1, "cols": 1}) == {cross_entropy_errors.NO_ONE_HOT}


@pytest.mark.parametrize("options", [{}, BOTH])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_invariants_hold_for_right_outputs_and_not_where_one_row_is_off(dtype, options):
    profile = PrecisionProfile(dtype, dtype, tiles=2)
    shape = {"rows": 30, "cols": 500}
    problem = FORWARD.problem(shape, dtype, options)
    inputs = FORWARD.make_inputs(problem, "randn", 0, "cpu")
    invariant = FORWARD.invariant(problem, inputs, profile)
    given = {**inputs, **invariant.inputs}
    right = {n: o.expected.float() for n, o in FORWARD.reference(problem, given, profile).outputs.items()}
    assert float(invariant.excess(right)) < 1.0
    for name in ("loss", "lse"):
        for row, wrong in ((20, 1.001 * right[name][20]), (3, 0.01), (29, math.nan)):
            off = {n: t.clone() for n, t in right.items()}
            off[name][row] = wrong
            assert not float(invariant.excess(off)) <= 1.0, (name, row)

    problem = BACKWARD.problem(shape, dtype, options)
    inputs = BACKWARD.make_inputs(problem, "randn", 0, "cpu")
    invariant = BACKWARD.invariant(problem, inputs, profile)
    d = BACKWARD.reference(problem, inputs, profile).outputs["dlogits"].expected.to(inputs["logits"].dtype)
    assert float(invariant.excess({"dlogits": d})) < 1.0
    for row, col, wrong in ((20, 7, 0.1), (3, 0, 1e-4), (29, 499, math.nan)):
        off = d.clone()
        off[row, col] += wrong
        assert not float(invariant.excess({"dlogits": off})) <= 1.0, (row, col)


@pytest.mark.parametrize("options", [{}, BOTH])
@pytest.mark.parametrize("operator", [FORWARD, BACKWARD])
def test_varied_inputs_have_the_varied_outputs(operator, options):
    problem = operator.problem(SHAPE, "fp16", options)
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    variation = operator.variation(problem, "cpu", 5)
    varied = {name: torch.empty_like(tensor) for name, tensor in inputs.items()}
    variation.apply(inputs, varied)
    assert not torch.equal(varied["targets"], inputs["targets"])
    profile = PrecisionProfile("fp16", "fp16", tiles=2)
    expected, got = (operator.reference(problem, given, profile).outputs for given in (inputs, varied))
    for name, output in expected.items():
        back = torch.empty_like(output.expected)
        variation.undo(name, got[name].expected, back)
        torch.testing.assert_close(back, output.expected)


def test_options_are_kept_to_what_they_mean():
    for operator in (FORWARD, BACKWARD):
        assert operator.scalars(operator.problem(SHAPE, "bf16")) == {"label_smoothing": 0.0, "z_loss": 0.0}
        assert operator.scalars(operator.problem(SHAPE, "bf16", BOTH)) == BOTH
        with pytest.raises(ProblemError, match=f"{operator.name}: label_smoothing must be below 1, but got 1.0"):
            operator.problem(SHAPE, "bf16", {"label_smoothing": 1})
        with pytest.raises(ProblemError, match=r"z_loss must be finite and at least 0 \(off.*but got -0.0001$"):
            operator.problem(SHAPE, "bf16", {"z_loss": -1e-4})
    assert "lowest" in FORWARD.families(FORWARD.problem(SHAPE, "bf16"))
    assert "lowest" not in FORWARD.families(FORWARD.problem(SHAPE, "bf16", {"z_loss": 1e-4}))


@pytest.mark.parametrize("operator", [FORWARD, BACKWARD])
@pytest.mark.parametrize("zero", [0, 0.0, -0.0, None])
def test_an_option_of_0_is_off_and_the_same_problem_as_without_it(operator, zero):
    without = operator.problem(SHAPE, "bf16")
    assert without.options == (("label_smoothing", None), ("z_loss", None))
    given = operator.problem(SHAPE, "bf16", {"label_smoothing": zero, "z_loss": zero})
    assert given == without and given.key == without.key


def test_0_is_off_on_the_command_line_and_in_a_file_of_problems_too(tmp_path):
    without = FORWARD.problem({"rows": 8, "cols": 64}, "bf16")
    words = ("rows=8,cols=64", "label_smoothing=0,z_loss=0.0")
    assert read_problem("cross_entropy", [words[0]], "bf16", extra=[words[1]]) == without
    path = tmp_path / "problems.yaml"
    options = "options: {label_smoothing: [0, null], z_loss: 0.0}"
    path.write_text(f"- {{operator: cross_entropy, dtype: bf16, shape: {{rows: 8, cols: 64}}, {options}}}\n")
    assert [(request.problem, request.count) for request in load_problems(path)] == [(without, 2)]


def test_what_a_call_costs_is_what_the_definition_needs():
    sizes = {"rows": 10, "cols": 1000}
    forward, backward = FORWARD.problem(sizes, "bf16"), BACKWARD.problem(sizes, "fp32")
    assert FORWARD.bytes_moved(forward) == 2 * 10_000 + 10 * (8 + 4 + 4)
    assert BACKWARD.bytes_moved(backward) == 2 * 4 * 10_000 + 10 * (8 + 4 + 4)
    assert FORWARD.flops(forward) == 40_000 and BACKWARD.flops(backward) == 60_000
    assert FORWARD.flops(FORWARD.problem(sizes, "bf16", BOTH)) == 50_000
    assert FORWARD.exponentials(forward) == BACKWARD.exponentials(backward) == 10_000


LOSS = """import torch

CONFIG = {"BLOCK": 64}


def launch(logits, targets, loss, lse, *, label_smoothing, z_loss, BLOCK):
    x = logits.float()
    lse.copy_(torch.logsumexp(x, 1))
    nll = torch.nn.functional.cross_entropy(x, targets, reduction="none", label_smoothing=label_smoothing)
    loss.copy_((nll + z_loss * (lse**2).where(targets >= 0, 0.0)) * FACTOR)


"""
GRADIENT = """import torch

CONFIG = {"BLOCK": 64}


def launch(logits, targets, lse, grad, dlogits, *, label_smoothing, z_loss, BLOCK):
    x = logits.float().requires_grad_()
    nll = torch.nn.functional.cross_entropy(x, targets, reduction="none", label_smoothing=label_smoothing)
    loss = nll + z_loss * (torch.logsumexp(x, 1) ** 2).where(targets >= 0, 0.0)
    (d,) = torch.autograd.grad((loss * grad).sum(), x)
    dlogits.copy_(d * FACTOR)


"""


@pytest.mark.parametrize(("factor", "status", "word"), [("1.0", 0, "OK"), ("1.02", 1, "WRONG")])
@pytest.mark.parametrize(("operator", "source"), [(FORWARD, LOSS), (BACKWARD, GRADIENT)])
def test_a_self_check_tells_right_from_wrong(tmp_path, capsys, monkeypatch, operator, source, factor, status, word):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    problem = operator.problem({"rows": 5000, "cols": 300, "row_stride": 310}, "bf16", BOTH)
    path = tmp_path / "standalone.py"
    path.write_text(source.replace("FACTOR", factor) + operator.self_check(problem))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert ended.value.code == status, said
    assert f": {word}" in said and f"{operator.name} 64 x 300" in said


def test_a_large_z_loss_leaves_out_the_inputs_whose_gradient_fp32_cannot_hold():
    for z_loss, there in ((1e-4, True), (2.0, False)):
        problem = get("cross_entropy_bwd").problem({"rows": 9, "cols": 40}, "fp32", {"z_loss": z_loss})
        assert ("lowest" in get("cross_entropy_bwd").families(problem)) is there


def test_in_one_family_whole_blocks_of_rows_are_ignored():
    operator = get("cross_entropy")
    problem = operator.problem({"rows": 13, "cols": 64}, "bf16")
    targets = operator.make_inputs(problem, "constant", 0, "cpu")["targets"]
    assert (targets == -100).tolist() == [False, *[True] * 11, False]
