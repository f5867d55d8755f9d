"""The check: whether a launch computes what its operator says, within the bound that its precision profile implies.

A config passes where on every planned input family

* nothing was written outside the outputs, and the inputs are what they were;
* NaN and infinities are exactly where the reference has them, and no element was left unwritten;
* every element's error is within its bound;
* on generic inputs the root-mean-square error is what independent roundings give (this sees an accumulator of low
  precision in a long row, which the element bound cannot);
* a second launch, into outputs that held other values, gives the same bits.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from tuner.check_plan import CheckPlan, PlannedCheck, plan
from tuner.comparison import Comparison, Verdict, read_back
from tuner.guarded import LARGE, GuardedOutputs, bits, checksum, violations
from tuner.operators.base import Operator
from tuner.operators.reference import OutputReference, Reference
from tuner.power import require_power
from tuner.precision import PrecisionProfile
from tuner.problem import Problem
from tuner.reference_cache import ReferenceCache
from tuner.trial import CheckReport, FamilyReport

__all__ = ["CheckPlan", "PlannedCheck", "ReferenceCache", "check", "plan", "recheck"]

Launch = Callable[..., None]
# Inputs up to this size are copied between guard bands and compared bit for bit; larger ones by checksum, in place.
_GUARDED_BYTES = 2**25


def check(
    launch: Launch,
    operator: Operator,
    plan: CheckPlan,
    device: str,
    seed: int,
    cache: ReferenceCache | None = None,
) -> CheckReport:
    """Run ``launch(**tensors, **scalars)`` through the plan; stops at the first family that fails.

    Whatever ``launch`` raises propagates. The report's ``mode`` is ``gpu`` on a CUDA device, else ``interpreter``.

    Raises:
        CheckError: a kernel with a classical error could pass the plan (``tuner.power``).
    """
    cache = cache or ReferenceCache()
    started = time.perf_counter()
    if plan.tiles:
        require_power(operator, plan, device, seed, cache)
    reports: list[FamilyReport] = []
    for planned in plan.checks:
        reports.append(_check_family(launch, operator, planned, device, seed, cache))
        if not reports[-1].passed:
            break
    mode = "gpu" if device.startswith("cuda") else "interpreter"
    return CheckReport(tuple(reports), seed, time.perf_counter() - started, mode)


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
        return _failed(planned, output, f"{output}: NaN at {int(outputs[output].isnan().sum())} elements")
    return _report(planned, [comparison.verdict() for comparison in comparisons.values()])


def _check_family(
    launch: Launch, operator: Operator, planned: PlannedCheck, device: str, seed: int, cache: ReferenceCache
) -> FamilyReport:
    problem, family = planned.problem, planned.family
    inputs = cache.inputs(operator, problem, family, seed, device)
    reference = cache.reference(operator, problem, inputs, family, seed, planned.profile, device)
    small = sum(t.numel() * t.element_size() for t in inputs.values()) <= _GUARDED_BYTES
    guarded = cache.guarded(problem, inputs, family, seed, device) if small else None
    given = guarded.tensors if guarded else inputs
    before = {} if guarded else {name: checksum(t) for name, t in inputs.items()}
    runs = _launch(launch, operator, planned, given, device, reference)
    first, second = runs[0].tensors, runs[-1].tensors

    # All counts and figures are read back at once: a transfer each would cost more than the arithmetic.
    sums = [(checksum(inputs[name]) != s).sum() for name, s in before.items()]
    changes = guarded.changes() if guarded else torch.stack(sums).sum()
    nan = [t.isnan().any() for name, t in first.items() if _never_nan(reference.outputs[name])]
    generic = family in operator.generic_families
    comparisons = [Comparison(name, reference.outputs[name], t, generic=generic) for name, t in first.items()]
    counts = [violations(runs), changes, runs[0].differences(runs[-1]), *nan]
    outside, changed, differing, *with_nan = read_back(counts, comparisons)

    if outside:
        name, reason = next((r.partition(":")[0], r) for r in (run.describe_violation() for run in runs) if r)
        return _failed(planned, name, reason)
    if changed:
        cache.forget_inputs(problem, family, seed, device)
        fresh = operator.make_inputs(problem, family, seed, device)
        name = next((n for n, t in given.items() if not torch.equal(bits(t), bits(fresh[n]))), next(iter(given)))
        return _failed(planned, name, f"the input {name} was changed, or what surrounds it")
    if any(with_nan) or any(not comparison.right for comparison in comparisons):
        for name, tensor in first.items():
            if not reference.outputs[name].has_nan and bool(tensor.isnan().any()):
                return _failed(planned, name, f"{name}: {_nan_reason(tensor, second[name])}")
    report = _report(planned, [comparison.verdict() for comparison in comparisons])
    return replace(report, **_difference(first, second)) if report.passed and differing else report


def _never_nan(reference: OutputReference) -> bool:
    """Whether NaN anywhere in the output is wrong and the comparison, of a selection alone, would not see it."""
    return reference.index is not None and not reference.has_nan


def _difference(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The fields of a failed report on two launches that gave different bits."""
    for name, tensor in first.items():
        count = int((bits(tensor) != bits(second[name])).sum())
        if count:
            unwritten = _unwritten(tensor, second[name])
            reason = f"a second launch gave other bits at {count} of {tensor.numel()} elements"
            if unwritten:
                reason = f"{unwritten} of {tensor.numel()} elements were never written"
            return {"passed": False, "output": name, "reason": f"{name}: {reason}"}
    return {}


def _launch(
    launch: Launch,
    operator: Operator,
    planned: PlannedCheck,
    given: Mapping[str, torch.Tensor],
    device: str,
    reference: Reference,
) -> list[GuardedOutputs]:
    """One launch, or two into outputs with different poison.

    Where the reference has NaN there are always two: one alone cannot tell a NaN that was written from one left over.
    """
    repeat = planned.repeat or any(output.has_nan for output in reference.outputs.values())
    scalars = operator.scalars(planned.problem)
    specs = operator.output_specs(planned.problem)
    runs: list[GuardedOutputs] = []
    for large in (False, True) if repeat else (False,):
        outputs = GuardedOutputs(specs, device, large=large)
        with warnings.catch_warnings():
            # numpy, on which the interpreter computes, warns where a kernel's infinities meet as they should.
            warnings.simplefilter("ignore", RuntimeWarning)
            launch(**given, **outputs.tensors, **scalars)
        runs.append(outputs)
    return runs


def _unwritten(first: torch.Tensor, second: torch.Tensor) -> int:
    return int((first.isnan() & (second == LARGE[first.dtype])).sum())


def _nan_reason(first: torch.Tensor, second: torch.Tensor) -> str:
    unwritten = _unwritten(first, second)
    if unwritten:
        return f"{unwritten} of {first.numel()} elements were never written"
    return f"NaN (or never written) at {int(first.isnan().sum())} of {first.numel()} elements where none belongs"


def _report(planned: PlannedCheck, verdicts: list[Verdict]) -> FamilyReport:
    failed = [v for v in verdicts if v.reason]
    worst = failed[0] if failed else max(verdicts, key=lambda v: v.ratio)
    return FamilyReport(
        family=planned.family,
        problem=planned.problem.label,
        passed=not failed,
        ratio=worst.ratio,
        error=worst.error,
        bound=worst.bound,
        output=worst.output,
        where=worst.where,
        reason=worst.reason,
    )


def _failed(planned: PlannedCheck, output: str, reason: str) -> FamilyReport:
    """A failure that no element's error measures."""
    nothing = math.inf
    return FamilyReport(planned.family, planned.problem.label, False, nothing, nothing, 0.0, output, (), reason)
