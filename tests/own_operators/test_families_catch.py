"""Kernels of declared operators that are wrong on certain inputs alone, and errors that a file accepts.

The launches are written with torch; what the check is given is what a study gives it.
"""

from __future__ import annotations

import functools

import pytest
import torch

from tuner.check_plan import plan
from tuner.checking import check
from tuner.errors import ProblemError
from tuner.likely_cause import likely_cause
from tuner.own_operators.declaration import OwnOperator, Work
from tuner.own_operators.files import find
from tuner.precision import PrecisionProfile

HEAD, TAIL = "def reference(x, factor):", "    return x * factor"
NORM = (TAIL, "    return factor * x / (1e-6 + (x * x).mean(1, keepdim=True)).sqrt()")
GELU = (TAIL, "    return 0.5 * factor * x * (1 + torch.tanh(0.8 * (x + 0.045 * x**3)))")
SOFTMAX = (TAIL, "    return factor * torch.softmax(x, 1)")
ACCEPTS = ("work=work", "work=work,\n    functions={'tanh': 2.0**-10.5}")


def report(named, launch, dtype="fp32", explain=False):
    operator = find(named)
    problem = operator.problem({"rows": 640, "cols": 1000}, dtype)
    made = plan(operator, problem, {"cols": 64}, {}, PrecisionProfile(dtype, dtype), full_size=False)
    found = check(launch, operator, made, "cpu", 0)
    return (found, likely_cause(launch, operator, made, {}, found.families[-1], "cpu", 0)) if explain else found


def norm(x, out, factor, eps=1e-6, wrong=None):
    wide = x.float()
    square = (wide * wide).mean(1, keepdim=True)
    result = factor * wide * (eps + square).rsqrt()
    out.copy_(wrong(wide, result) if wrong else result)


def rows_of_zeros_are_nan(x, result):
    return torch.where((x == 0).all(1, keepdim=True), torch.nan, result)


def equal_rows_are_off(x, result):
    same = (x == x[:, :1]).all(1, keepdim=True) & (x[:, :1] != 1) & (x[:, :1] != 0)
    return torch.where(same, result * 1.1, result)


def nan_is_lost(x, result):
    return torch.where(x.isnan().any(1, keepdim=True), 0.0, result)


@pytest.mark.parametrize(
    ("wrong", "family", "more"),
    [
        (rows_of_zeros_are_nan, "blank", ()),
        (equal_rows_are_off, "constant", ()),
        (nan_is_lost, "nonfinite", (("work=work", "work=work,\n    nonfinite=True"),)),
    ],
)
def test_what_is_wrong_on_some_inputs_alone_is_refused(write, wrong, family, more):
    named = write(NORM, *more)
    assert report(named, norm).passed
    refused = report(named, functools.partial(norm, wrong=wrong))
    assert not refused.passed and refused.families[-1].family == family


def test_what_the_tuned_size_leaves_after_whole_tiles_and_many_rows_are_tried_without_a_gpu(write):
    operator = find(write(NORM))
    problem = operator.problem({"rows": 4096, "cols": 1000}, "fp32")
    deep, crowded = (at.sizes for at in operator.stand_ins(problem, {"cols": 64}, {}))
    assert deep == {"rows": 5, "cols": 1000} and crowded == {"rows": 160, "cols": 33}
    long = operator.problem({"rows": 4096, "cols": 100_000}, "fp32")
    assert operator.stand_ins(long, {"cols": 64}, {})[0].sizes["cols"] == 16 * 64 + 100_000 % 64

    def a_program_for_each_multiprocessor(x, out, factor):
        norm(x[:132], out[:132], factor)

    def last_column_of_a_tail_of_40_lost(x, out, factor):
        norm(x, out, factor)
        out[:, x.shape[1] - (x.shape[1] % 64 == 40) :] = 0.0

    for wrong in (a_program_for_each_multiprocessor, last_column_of_a_tail_of_40_lost):
        assert not report(write(NORM), wrong).passed


def test_what_inputs_that_are_not_finite_give_is_not_asked_where_it_is_not_defined(write):
    assert report(write(NORM), functools.partial(norm, wrong=nan_is_lost)).passed


def test_an_exponential_that_overflows_on_one_element_of_a_row_is_refused(write):
    def softmax(x, out, factor, shift=True):
        wide = x.float()
        weights = (wide - wide.amax(1, keepdim=True) * shift).exp()
        out.copy_(factor * weights / weights.sum(1, keepdim=True))

    named = write(SOFTMAX, ("work=work", "work=work,\n    without=('huge',)"))
    assert report(named, softmax).passed
    refused = report(named, functools.partial(softmax, shift=False))
    assert not refused.passed and refused.families[-1].family == "outlier"


def gelu(x, out, factor, error=2.0**-11):
    wide = x.float()
    off = torch.rand(wide.shape, generator=torch.Generator().manual_seed(1)) * 2 - 1
    out.copy_(0.5 * factor * wide * (1 + torch.tanh(0.8 * (wide + 0.045 * wide**3)) * (1 + error * off)))


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_error_of_a_fast_function_passes_where_it_is_declared_and_no_more_than_that(write, dtype):
    refused, cause = report(write(GELU), gelu, dtype, explain=True)
    assert not refused.passed and "small everywhere: at most 2^-1" in refused.reason
    assert "functions={'tanh': 2.0**-10.5}" in cause
    accepting = write(GELU, ACCEPTS)
    assert report(accepting, gelu, dtype).passed
    assert not report(accepting, functools.partial(gelu, error=2.0**-7), dtype).passed


def test_the_bound_of_a_function_is_what_its_error_does_to_the_output(write):
    named = write((TAIL, "    return torch.exp(x).sum(1, keepdim=True) * torch.ones_like(x) * factor"))
    operator = find(named)
    problem = operator.problem({"rows": 4, "cols": 50}, "fp32")
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    plain = operator.reference(problem, inputs, PrecisionProfile("fp32", "fp32")).outputs["out"]
    accepting = find(write(
        (TAIL, "    return torch.exp(x).sum(1, keepdim=True) * torch.ones_like(x) * factor"),
        ("work=work", "work=work,\n    functions={'exp': 2.0**-12}"),
    ))  # fmt: skip
    wide = accepting.reference(problem, inputs, PrecisionProfile("fp32", "fp32")).outputs["out"]
    # Errors that are all alike are relative to the sum, and no other moves it further.
    torch.testing.assert_close(wide.bound - plain.bound, 2.0**-12 * plain.expected, rtol=1e-3, atol=0.0)
    torch.testing.assert_close(wide.expected, plain.expected, rtol=0.0, atol=0.0)


def declared(**more: object) -> OwnOperator:
    return OwnOperator(
        name="f", summary="", sizes={"n": 8}, inputs={"x": ("n",)}, outputs={"out": ("n",)}, reduced="n",
        reference=lambda x: x, work=lambda sizes: Work(1.0), space="none.yaml", **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"tahn": 0.001}, r"f: functions names 'tahn' \(did you mean `tanh`\?\); it takes cos, erf, exp"),
        ({"tanh": 1.0}, r"f: functions: tanh must be a relative error above 0 and below 1, but got 1.0"),
        ({"tanh": True}, r"but got True"),
    ],
)
def test_a_function_that_there_is_not_and_an_error_that_is_none_are_refused(functions, message):
    with pytest.raises(ProblemError, match=message):
        declared(functions=functions)


def test_a_function_that_the_reference_does_not_call_is_refused(write):
    named = write((TAIL, "    return torch.nn.functional.gelu(x, approximate='tanh') * factor"), ACCEPTS)
    with pytest.raises(ProblemError, match=r"scaled: functions gives tanh an error, but reference\(\) does not call"):
        find(named).problem({"rows": 4, "cols": 50}, "fp32")


@pytest.mark.parametrize("call", ["x.tanh()", "torch.tanh(x)", "x.clone().tanh_()", "torch.nn.functional.tanh(x)"])
def test_a_function_is_known_however_it_is_called(write, call):
    operator = find(write((TAIL, f"    return {call} * factor"), ACCEPTS))
    problem = operator.problem({"rows": 4, "cols": 50}, "fp32")
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    found = operator.reference(problem, inputs, PrecisionProfile("fp32", "fp32")).outputs["out"]
    assert (found.bound >= 2.0**-10.5 * found.expected.abs()).all()
