"""Checks that are under way at once, on a stand-in for a GPU: their order, their one read-back, and what is said."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.fake_gpu import FakeGpu
from tuner import checking
from tuner.check_plan import CheckPlan, PlannedCheck
from tuner.checking import check
from tuner.operators import get
from tuner.precision import PrecisionProfile

SOFTMAX = get("softmax")
SMALL, TUNED = (SOFTMAX.problem({"rows": rows, "cols": 300}, "bf16") for rows in (8, 64))
PROFILE = PrecisionProfile("bf16", "bf16", tiles=4)
PLAN = CheckPlan(
    (
        PlannedCheck(SMALL, "randn", PROFILE, thorough=True),
        *(PlannedCheck(SMALL, family, PROFILE) for family in ("masked", "huge", "constant")),
        PlannedCheck(TUNED, "randn", PROFILE, thorough=True, full_size=True),
        PlannedCheck(TUNED, "one_hot", PROFILE, repeat=False, full_size=True),
    )
)
NAMES = [planned.name for planned in PLAN.checks]
CALLS = [5, 2, 2, 2, 3, 1]  # of a launch that is right


class Kernel:
    """A softmax that remembers its calls by their number of rows, and breaks as ``wrong(call, x, out)`` says."""

    def __init__(self, wrong=lambda call, x, out: None):
        self.rows, self.gpu, self.wrong = [], FakeGpu(), wrong

    def __call__(self, x, out):
        self.rows.append(len(x))
        self.gpu.do(functools.partial(self.write, len(self.rows), x, out))

    def write(self, call, x, out):
        out.copy_(torch.softmax(x.float(), dim=1))
        self.wrong(call, x, out)

    def check(self, **options):
        return check(self, SOFTMAX, PLAN, "cpu", 0, gpu=self.gpu, variation=3, **options)


def is_constant(x):
    return len(x) == 8 and bool((x == x[:, :1]).all())


def test_the_first_check_is_judged_alone_then_the_tuned_shape_is_launched_first():
    kernel = Kernel()
    report = kernel.check()
    assert report.passed, report.reason
    assert [f.family for f in report.families] == NAMES, "in the order of the plan"
    assert kernel.rows == [8] * 5 + [64] * 4 + [8] * 6
    assert [f.problem for f in report.families] == [planned.problem.label for planned in PLAN.checks]


def test_the_reports_are_those_of_checks_made_one_by_one():
    one_by_one = check(Kernel(), SOFTMAX, PLAN, "cpu", 0, variation=3)
    assert Kernel().check().families == one_by_one.families
    assert max(f.ratio for f in one_by_one.families) > 0.5


def test_where_the_first_check_fails_nothing_else_is_launched():
    kernel = Kernel(lambda call, x, out: out.mul_(1.5))
    report = kernel.check()
    assert not report.passed and [f.family for f in report.families] == ["randn"]
    assert kernel.rows == [8] * 5


def test_all_numbers_come_in_one_transfer_after_those_of_the_first_check(monkeypatch):
    transfers = []
    tolist = torch.Tensor.tolist

    def counted(tensor):
        transfers.append(tensor.numel())
        return tolist(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", counted)
    assert Kernel().check().passed
    first, others = transfers
    assert first > 5 and others > 5 * 5


def test_a_later_failure_is_explained_by_launching_it_again_alone():
    def wrong(call, x, out):
        if is_constant(x):
            out[:, 17] *= 1.5

    kernel = Kernel(wrong)
    report = kernel.check()
    assert [f.family for f in report.families] == NAMES[:4] and not report.passed
    assert "only column 17 of 300" in report.reason
    assert kernel.rows == [8] * 5 + [64] * 4 + [8] * 6 + [8] * 2


@pytest.mark.parametrize("call", range(6, 16))
def test_one_that_fails_once_and_not_again_has_failed(call):
    def wrong(number, x, out):
        if number == call:
            out[2, 5] = 0.75

    report = Kernel(wrong).check()
    assert not report.passed
    assert report.families[-1].reason == ("failed once, and passed when it was launched again: not the same every time")


def test_an_input_that_a_later_check_changes_is_named_and_not_kept():
    def wrong(call, x, out):
        if is_constant(x):
            x[0, 0] += 1.0

    cache = checking.ReferenceCache()
    report = Kernel(wrong).check(cache=cache)
    assert report.reason.endswith("the input x was changed, or what surrounds it")
    assert Kernel().check(cache=cache).passed


def test_an_input_without_a_copy_that_is_changed_once_is_not_kept(monkeypatch):
    monkeypatch.setattr("tuner.family_check._LARGEST_COPY", 0)

    def wrong(call, x, out):
        if call == 13:
            x[0] = 1.0

    cache = checking.ReferenceCache()
    assert not Kernel(wrong).check(cache=cache).passed
    report = Kernel().check(cache=cache)
    assert report.passed, report.reason


def test_a_later_launch_that_strays_is_told_from_those_around_it():
    kernel = Kernel()

    def strays(call, x, out):
        if is_constant(x):
            kernel.gpu.place = (0, 7)

    kernel.wrong = strays
    report = kernel.check()
    assert [f.family for f in report.families] == NAMES[:4]
    assert report.reason.endswith("a first launch left another device or stream current")
    assert kernel.gpu.place == (0, 0)


def test_what_a_later_launch_raises_propagates_unless_a_check_before_it_fails():
    def raises(call, x, out, also_wrong=False):
        if len(x) == 64:
            raise RuntimeError("out of resources")
        if also_wrong and is_constant(x):
            out.zero_()

    with pytest.raises(RuntimeError, match="out of resources"):
        Kernel(raises).check()
    report = Kernel(functools.partial(raises, also_wrong=True)).check()
    assert [f.family for f in report.families] == NAMES[:4] and "every element is zero" in report.reason


def test_what_is_kept_for_checks_under_way_is_bounded(monkeypatch):
    fetched = []
    fetch = checking.Reading.fetch
    monkeypatch.setattr(checking.Reading, "fetch", lambda readings: (fetched.append(len(readings)), fetch(readings)))
    assert Kernel().check().passed
    together = len(fetched)
    monkeypatch.setattr(checking, "_TOGETHER_BYTES", 0)
    assert Kernel().check().passed
    assert len(fetched) - together >= together + 4
