"""The check: whether a launch computes what its operator says, within the bound that its precision profile implies.

A config passes where on every planned input family

* nothing was written outside the outputs, and the inputs are what they were;
* NaN and infinities are exactly where the reference has them, and no element was left unwritten;
* every element's error is within its bound;
* on generic inputs the root-mean-square error is what independent roundings give (this sees an accumulator of low
  precision in a long row, which the element bound cannot);
* launches under other conditions (``tuner.launches``), into outputs that held other values, give the same bits, or,
  where the profile declares atomics, are each within the bound;
* of a large output, which is compared on a selection, the operator's invariant holds for every element.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch

from tuner.check_plan import CheckPlan, PlannedCheck, plan
from tuner.comparison import Comparison, read_back
from tuner.family_check import FamilyCheck, LaunchedCheck, failed, report_of
from tuner.launches import Gpu
from tuner.operators.base import Operator
from tuner.operators.variation import NONE
from tuner.power import require_power
from tuner.precision import PrecisionProfile
from tuner.problem import Problem
from tuner.reading import Reading
from tuner.reference_cache import ReferenceCache
from tuner.trial import CheckReport, FamilyReport

__all__ = ["CheckPlan", "PlannedCheck", "ReferenceCache", "check", "plan", "recheck"]

Launch = Callable[..., None]
# Checks are judged together until what is kept for them, their references, takes this many bytes.
_TOGETHER_BYTES = 2**31


def check(
    launch: Launch,
    operator: Operator,
    plan: CheckPlan,
    device: str,
    seed: int,
    cache: ReferenceCache | None = None,
    *,
    variation: int = 0,
    gpu: Gpu | None = None,
) -> CheckReport:
    """Run ``launch(**tensors, **scalars)`` through the plan; the report ends with the first family that fails.

    With ``gpu`` the first check is judged alone, which is where most wrong kernels fall; all others are then enqueued
    without waiting and judged together. What fails so is launched once more, alone, to say what is wrong.

    ``seed``: what the families are drawn with. ``variation``: the seed of this trial's own change to them (0: none),
    under which the references stay what they are. ``gpu``: what launches under a GPU's conditions; without it there are
    no more than two, one after the other. Whatever ``launch`` raises propagates. The report's ``mode`` is ``gpu`` on a
    CUDA device, else ``interpreter``.

    Raises:
        CheckError: a kernel with a classical error could pass the plan (``tuner.power``).
    """
    cache = cache or ReferenceCache()
    started = time.perf_counter()
    if plan.tiles:
        require_power(operator, plan, device, seed, cache)
    # Made before anything is enqueued: what is random comes from the host.
    problems = dict.fromkeys(planned.problem for planned in plan.checks)
    variations = {p: operator.variation(p, device, variation) if variation else NONE for p in problems}
    checks = [
        FamilyCheck(launch, operator, planned, device, seed, variations[planned.problem], cache, gpu)
        for planned in plan.checks
    ]
    reports = _one_by_one(checks) if gpu is None else _together(checks)
    mode = "gpu" if device.startswith("cuda") else "interpreter"
    return CheckReport(tuple(reports), seed, time.perf_counter() - started, mode, variation=variation)


def recheck(
    operator: Operator,
    problem: Problem,
    profile: PrecisionProfile,
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
    *,
    name: str,
    seed: int,
    device: str,
    cache: ReferenceCache,
) -> FamilyReport:
    """Compare outputs that many launches have written (after timing) with the reference of their inputs.

    ``name`` and ``seed`` name the inputs, so that their reference is computed once (``timing`` inputs, for one).
    """
    reference = cache.reference(operator, problem, dict(inputs), name, seed, profile, device)
    planned = PlannedCheck(problem, profile=profile, family=name)
    nan = {o: t.isnan().any() for o, t in outputs.items() if not reference.outputs[o].has_nan}
    comparisons = {o: Comparison(o, reference.outputs[o], t, generic=False) for o, t in outputs.items()}
    with_nan = read_back(list(nan.values()), list(comparisons.values()))
    for output in [o for o, found in zip(nan, with_nan, strict=True) if found]:
        return failed(planned, output, f"{output}: NaN at {int(outputs[output].isnan().sum())} elements")
    return report_of(planned, [comparison.verdict() for comparison in comparisons.values()])


def _one_by_one(checks: Sequence[FamilyCheck]) -> list[FamilyReport]:
    """The reports, up to the first failure."""
    reports: list[FamilyReport] = []
    for one in checks:
        reports.append(one.run())
        if not reports[-1].passed:
            break
    return reports


def _together(checks: Sequence[FamilyCheck]) -> list[FamilyReport]:
    """The same reports; all checks but the first are enqueued one after the other, and judged at the end."""
    reports = _one_by_one(checks[:1])
    rest = checks[1:] if reports[0].passed else ()
    try:
        found = _launched(rest)
    except Exception:  # one by one it comes to this again, or to a failure that comes before it
        return [*reports, *_one_by_one(rest)]
    for one, report in zip(rest, found, strict=True):
        reports.append(report or _again(one))
        if not reports[-1].passed:
            break
    return reports


def _launched(checks: Sequence[FamilyCheck]) -> list[FamilyReport | None]:
    """The report of each check that passed; None for one that failed, of which nothing is left to look at."""
    found: list[FamilyReport | None] = [None] * len(checks)
    waiting: dict[int, LaunchedCheck] = {}
    kept = 0

    def judge() -> None:
        Reading.fetch([reading for launched in waiting.values() for reading in launched.readings])
        for at, launched in waiting.items():
            found[at] = launched.report(checks[at].cache) if launched.passed else None
            if launched.changed:
                checks[at].cache.forget_inputs(launched.planned.problem)
        waiting.clear()

    # What is dear for the GPU goes first: it works on that while the host enqueues the others.
    for at in sorted(range(len(checks)), key=lambda at: not checks[at].planned.full_size):
        launched = checks[at].start()
        checks[at].hold(launched)
        launched.let_go()
        waiting[at] = launched
        kept += launched.nbytes
        if kept > _TOGETHER_BYTES:
            judge()
            kept = 0
    judge()
    return found


def _again(one: FamilyCheck) -> FamilyReport:
    """The report of a check that has failed, launched again alone; a failure whatever comes of it."""
    report = one.run()
    if not report.passed:
        return report
    return failed(one.planned, "launch", "failed once, and passed when it was launched again: not the same every time")
