"""log_softmax, logsumexp and softmax_bwd: what they say of a problem, and their references against torch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tuner.errors import ProblemError, UsageError
from tuner.operators import get, row_blocks
from tuner.own_kernel import read_own_kernel
from tuner.precision import PrecisionProfile

SHAPE = {"rows": 11, "cols": 301, "row_stride": 320}
BF16 = PrecisionProfile("bf16", "bf16", tiles=3)
FP32 = PrecisionProfile("fp32", "fp32", tiles=3)
OF_LOGITS = ("log_softmax", "logsumexp")
TORCH = {"log_softmax": torch.log_softmax, "logsumexp": torch.logsumexp}


def made(name, family, dtype="bf16", seed=1, **changes):
    operator = get(name)
    problem = operator.problem({**SHAPE, **changes}, dtype)
    return operator, problem, operator.make_inputs(problem, family, seed, "cpu")


def output(name, family, profile=BF16, **changes):
    """The reference of the operator's one output, and the inputs."""
    operator, problem, inputs = made(name, family, profile.input, **changes)
    (found,) = operator.reference(problem, inputs, profile).outputs.values()
    return found, inputs


def beyond(reference, got):
    """The largest error of ``got`` over its bound."""
    error = (got.double() - reference.expected).abs()
    same = (got.double() == reference.expected) | (got.isnan() & reference.expected.isnan())
    return float((error / reference.bound).masked_fill(same, 0.0).max())


@pytest.mark.parametrize("name", ["log_softmax", "logsumexp", "softmax_bwd"])
def test_rows_that_overlap_are_refused_by_name(name):
    with pytest.raises(ProblemError, match=f"{name}: row_stride must be at least cols, but got 4 < 5"):
        get(name).problem({"rows": 3, "cols": 5, "row_stride": 4}, "bf16")


@pytest.mark.parametrize(
    ("name", "flops", "bytes_moved", "exponentials"),
    [
        ("log_softmax", 350.0, 2 * 70 * 2, 70.0),
        ("logsumexp", 280.0, 70 * 2 + 10 * 4, 70.0),
        ("softmax_bwd", 280.0, 3 * 70 * 2, 0.0),
    ],
)
def test_figures(name, flops, bytes_moved, exponentials):
    operator = get(name)
    problem = operator.problem({"rows": 10, "cols": 7, "row_stride": 9}, "bf16")
    assert operator.flops(problem) == flops
    assert operator.bytes_moved(problem) == bytes_moved
    assert operator.exponentials(problem) == exponentials
    assert operator.effort(problem) == 70.0


def test_outputs_are_as_templates_write_them():
    def specs(name):
        operator = get(name)
        return operator.output_specs(operator.problem({"rows": 3, "cols": 5, "row_stride": 8}, "fp16"))

    (log,) = specs("log_softmax").items()
    assert (log[0], log[1].shape, log[1].dtype, log[1].strides) == ("out", (3, 5), "fp16", (8, 1))
    (lse,) = specs("logsumexp").items()
    assert (lse[0], lse[1].shape, lse[1].dtype, lse[1].strides) == ("out", (3,), "fp32", None)
    (dx,) = specs("softmax_bwd").items()
    assert (dx[0], dx[1].shape, dx[1].dtype, dx[1].strides) == ("dx", (3, 5), "fp16", (8, 1))


@pytest.mark.parametrize("name", ["log_softmax", "logsumexp", "softmax_bwd"])
def test_a_kernel_of_ones_own_is_given_the_inputs_and_outputs_by_name(name, tmp_path):
    operator, problem, inputs = made(name, "randn")
    tensors = (*inputs, *operator.output_specs(problem))
    path = tmp_path / "own.py"
    path.write_text(f"def launch({', '.join(tensors)}, *, BLOCK): ...\n")
    candidate, _ = read_own_kernel(path).candidate(problem, "BLOCK=64", "", "")
    assert candidate.tiles == {"cols": 64}
    path.write_text("def launch(a, *, BLOCK): ...\n")
    with pytest.raises(UsageError, match=f"{name} gives it {', '.join(tensors)}"):
        read_own_kernel(path).candidate(problem, "BLOCK=64", "", "")


@pytest.mark.parametrize("name", OF_LOGITS)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_references_of_logits_are_torchs_nan_and_infinities_included(name, dtype):
    seen = set()
    for family in get(name).families(get(name).example()):
        reference, inputs = output(name, family, replace(BF16, input=dtype, output=dtype))
        expected = TORCH[name](inputs["x"].double(), 1)
        torch.testing.assert_close(reference.expected, expected, rtol=1e-13, atol=1e-9, equal_nan=True)
        assert reference.has_nan == bool(expected.isnan().any())
        # What is not finite is exact, and everything else has a bound.
        assert bool((reference.bound[expected.isfinite()] > 0.0).all())
        assert bool((reference.bound[expected.isinf()] == 0.0).all())
        seen |= {str(value) for value in (torch.inf, -torch.inf) if bool((expected == value).any())}
    assert seen == {"-inf"} | ({"inf"} if name == "logsumexp" else set())


def test_rows_that_are_not_finite_are_as_torch_has_them():
    inf, nan = torch.inf, torch.nan
    rows = [[-inf, -inf], [inf, 1.0], [inf, -inf], [inf, nan], [nan, 1.0], [-inf, 2.0]]
    x = torch.tensor(rows)
    problem = {"rows": 6, "cols": 2}
    lse = get("logsumexp").reference(get("logsumexp").problem(problem, "fp32"), {"x": x}, FP32).outputs["out"]
    assert str(lse.expected.tolist()) == "[-inf, inf, inf, nan, nan, 2.0]"
    log = get("log_softmax").reference(get("log_softmax").problem(problem, "fp32"), {"x": x}, FP32).outputs["out"]
    assert log.expected.isnan().all(dim=1).tolist() == [True] * 5 + [False]
    assert log.expected[5].tolist() == [-inf, 0.0]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_the_gradient_of_softmax_is_autograds_in_float64(dtype):
    _, _, inputs = made("softmax_bwd", "randn", "fp32")
    logits = inputs["y"].double().log().requires_grad_()
    y = torch.softmax(logits, dim=1)
    dy = inputs["dy"].double()
    (expected,) = torch.autograd.grad(y, logits, dy)
    operator = get("softmax_bwd")
    problem = operator.problem({"rows": 11, "cols": 301}, dtype)
    reference = operator.reference(problem, {"y": y.detach(), "dy": dy}, replace(BF16, input=dtype, output=dtype))
    torch.testing.assert_close(reference.outputs["dx"].expected, expected, rtol=1e-11, atol=1e-15)
    rounded = expected.to({"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype])
    assert beyond(reference.outputs["dx"], rounded) <= 1.0


@pytest.mark.parametrize("family", get("softmax_bwd").families(get("softmax_bwd").example()))
def test_the_gradients_reference_is_torchs_on_every_family(family):
    for dtype in ("bf16", "fp16", "fp32"):
        reference, inputs = output("softmax_bwd", family, replace(BF16, input=dtype, output=dtype))
        y, dy = inputs["y"].double(), inputs["dy"].double()
        expected = torch.ops.aten._softmax_backward_data(dy, y, 1, torch.float64)
        finite = torch.isfinite(expected)
        torch.testing.assert_close(reference.expected[finite], expected[finite], rtol=1e-9, atol=1e-13)
        assert torch.equal(reference.expected.isnan(), expected.isnan())
        assert reference.has_nan == (family in ("masked", "nonfinite"))
        # torch's own kernel, which computes in fp32, is right too.
        again = torch.ops.aten._softmax_backward_data(inputs["dy"], inputs["y"], 1, inputs["y"].dtype)
        assert beyond(reference, again) <= 1.0 or family == "nonfinite"


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_what_torch_computes_in_fp32_is_within_the_bounds_of_logits(dtype):
    for name in OF_LOGITS:
        for family in ("randn", "rising", "huge", "constant", "lowest", "very_negative"):
            reference, inputs = output(name, family, replace(BF16, input=dtype, output=dtype))
            got = TORCH[name](inputs["x"].float(), 1)
            assert beyond(reference, got.to(inputs["x"].dtype) if name == "log_softmax" else got) <= 1.0, family


def test_bounds_are_a_rounding_of_the_output_and_little_more():
    log, _ = output("log_softmax", "randn", rows=4, cols=512, row_stride=512)
    relative = log.bound / log.expected.abs()
    assert float(relative.min()) > 2.0**-8 and float(relative.max()) < 1.02 * 2.0**-8
    dx, _ = output("softmax_bwd", "randn", rows=4, cols=512, row_stride=512)
    slack = dx.bound - 2.0**-8 * dx.expected.abs()
    assert float(slack.min()) > 0.0
    assert float((slack / dx.bound).median()) < 0.01
    # A log-sum-exp of about 6.7 is off by a few roundings of fp32, whatever the dtype of the logits.
    lse, _ = output("logsumexp", "randn", rows=4, cols=512, row_stride=512)
    assert float(lse.bound.min()) > 1e-6 and float(lse.bound.max()) < 2e-5


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("log_softmax", {"accumulator": "fp16"}),
        ("log_softmax", {"exponential": "ex2_f16"}),
        ("logsumexp", {"prescaled": True}),
        ("logsumexp", {"l_from_rounded_p": True, "p": "bf16"}),
        ("logsumexp", {"tiles": 400}),
        ("softmax_bwd", {"accumulator": "fp16"}),
    ],
)
def test_promising_less_precision_widens_the_bound(name, promise):
    exact, loose = (output(name, "randn", replace(FP32, **changes))[0].bound for changes in ({}, promise))
    assert bool((loose > exact).all())


def test_a_log_sum_exp_in_base_two_is_asked_for_by_the_profile_alone():
    natural, _ = output("logsumexp", "randn", FP32)
    base2, _ = output("logsumexp", "randn", replace(FP32, lse_base="base2"))
    torch.testing.assert_close(base2.expected, natural.expected / 0.6931471805599453)
    torch.testing.assert_close(base2.bound, natural.bound / 0.6931471805599453)


@pytest.mark.parametrize("name", ["log_softmax", "softmax_bwd"])
def test_a_large_output_is_compared_on_spread_rows(name, monkeypatch):
    whole, _ = output(name, "randn", rows=100)
    monkeypatch.setattr(row_blocks, "_WHOLE", 1000)
    monkeypatch.setattr(row_blocks, "_SELECTED", 20 * 301)
    part, _ = output(name, "randn", rows=100)
    rows = part.index[0].tolist()
    assert len(rows) == 20 and rows[0] == 0 and rows[-1] == 99
    torch.testing.assert_close(part.expected, whole.expected[rows], rtol=0, atol=0)


def test_every_row_of_a_large_logsumexp_is_compared(monkeypatch):
    from tuner.operators import log_softmax_bound

    whole, _ = output("logsumexp", "masked", rows=100)
    monkeypatch.setattr(row_blocks, "_WHOLE", 1000)
    monkeypatch.setattr(log_softmax_bound, "BLOCK_ELEMENTS", 5 * 301)
    blocks, _ = output("logsumexp", "masked", rows=100)
    assert blocks.index is None and blocks.expected.shape == (100,)
    torch.testing.assert_close(blocks.expected, whole.expected, rtol=0, atol=0)


def test_what_the_lowest_number_of_fp16_less_a_long_rows_log_sum_exp_overflows_is_left_out():
    log = get("log_softmax")
    assert "lowest" in log.families(log.problem({"rows": 1, "cols": 2**21}, "fp16"))
    assert "lowest" not in log.families(log.problem({"rows": 1, "cols": 2**21 + 1}, "fp16"))
    assert "lowest" in log.families(log.problem({"rows": 1, "cols": 2**21 + 1}, "bf16"))


def test_gradient_families_are_what_they_are_made_for():
    def inputs(family):
        return made("softmax_bwd", family, "fp32")[2]

    positive = inputs("positive")["dy"]
    assert float(positive.min()) >= 0.0 and float(positive.max()) < 1.0 and abs(float(positive.mean()) - 0.5) < 0.02
    needle = inputs("needle")["dy"]
    assert needle.count_nonzero(dim=1).tolist() == [1] * 11
    assert len(set(needle.argmax(dim=1).tolist())) == 11
    assert float(inputs("one_hot")["y"].amax(dim=1).min()) > 0.9999
    offset = inputs("offset")
    total = (offset["y"] * offset["dy"]).sum(dim=1)
    assert float(total.min()) > 99.0 and float((offset["dy"] - total[:, None]).abs().mean()) < 1.5
    masked = inputs("masked")["y"]
    assert bool((masked[0, :140] == 0.0).all()) and bool(masked[1].isnan().all())
    assert float(inputs("randn")["y"].sum(dim=1).sub(1.0).abs().max()) < 1e-5
    with pytest.raises(ProblemError, match="softmax_bwd has no input family 'nothing'"):
        inputs("nothing")


def test_timed_gradients_are_of_a_softmax():
    operator = get("softmax_bwd")
    timed = operator.timing_inputs(operator.problem(SHAPE, "fp32"), 0, "cpu")
    assert float(timed["y"].sum(dim=1).sub(1.0).abs().max()) < 1e-5
    assert abs(float(timed["dy"].std()) - 1.0) < 0.05 and timed["dy"].stride() == (320, 1)


@pytest.mark.parametrize("name", ["log_softmax", "logsumexp", "softmax_bwd"])
def test_rows_change_places_together(name):
    operator, problem, inputs = made(name, "randn")
    (out,) = operator.output_specs(problem)
    expected = operator.reference(problem, inputs, BF16).outputs[out].expected
    found = set()
    for seed in range(20):
        variation = operator.variation(problem, "cpu", seed)
        given = {tensor: torch.empty_like(value) for tensor, value in inputs.items()}
        variation.apply(inputs, given)
        found.add(float(next(iter(given.values()))[0, 0]))
        back = torch.empty_like(expected)
        variation.undo(out, operator.reference(problem, given, BF16).outputs[out].expected, back)
        torch.testing.assert_close(back, expected, rtol=0, atol=0)
    assert len(found) > 5
