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

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tuner.check_plan import CheckPlan, PlannedCheck, plan
from tuner.comparison import Comparison, Verdict, read_back
from tuner.guarded import GuardedInputs, UnguardedInputs, bits, violations
from tuner.launches import ONCE, THOROUGHLY, TWICE, Condition, Gpu, Launcher, Run
from tuner.operators.base import Operator
from tuner.operators.reference import OutputReference, Reference
from tuner.operators.variation import NONE, Variation
from tuner.power import require_power
from tuner.precision import PrecisionProfile
from tuner.problem import Problem
from tuner.reference_cache import ReferenceCache
from tuner.trial import CheckReport, FamilyReport

__all__ = ["CheckPlan", "PlannedCheck", "ReferenceCache", "check", "plan", "recheck"]

Launch = Callable[..., None]
# Inputs beyond this are given to the launch as they are, without a copy between guard bands and without a variation.
_LARGEST_COPY = 2**30
# Outputs beyond this are not kept for more than two launches at once.
_MANY_OUTPUTS = 2**30


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
    """Run ``launch(**tensors, **scalars)`` through the plan; stops at the first family that fails.

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
    reports: list[FamilyReport] = []
    for planned in plan.checks:
        reports.append(_FamilyCheck(launch, operator, planned, device, seed, variation, cache, gpu).run())
        if not reports[-1].passed:
            break
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
        return _failed(planned, output, f"{output}: NaN at {int(outputs[output].isnan().sum())} elements")
    return _report(planned, [comparison.verdict() for comparison in comparisons.values()])


@dataclass(frozen=True)
class _FamilyCheck:
    """One planned check of one launch."""

    launch: Launch
    operator: Operator
    planned: PlannedCheck
    device: str
    seed: int
    variation: int
    cache: ReferenceCache
    gpu: Gpu | None

    def run(self) -> FamilyReport:
        """Launch, compare, and say how the outputs are wrong where they are."""
        problem, planned = self.planned.problem, self.planned
        inputs = self.cache.inputs(self.operator, problem, planned.family, self.seed, self.device)
        reference = self.cache.reference(
            self.operator, problem, inputs, planned.family, self.seed, planned.profile, self.device
        )
        copied = sum(t.numel() * t.element_size() for t in inputs.values()) <= _LARGEST_COPY
        varies = copied and self.variation != 0
        variation = self.operator.variation(problem, self.device, self.variation) if varies else NONE
        strides = self.operator.strides(problem, same_binary=self.gpu is not None) if planned.strided else {}
        places = self._places(inputs, strides, copied)
        launcher = self._launcher(strides)
        given = variation.apply(inputs)
        runs = launcher.run(self._conditions(reference), places, given)
        report = self._judge(runs, places, given, reference, variation)
        if report.passed and planned.thorough and any(o.index is not None for o in reference.outputs.values()):
            return self._holds_everywhere(launcher, places, given, report)
        return report

    def _launcher(self, strides: Mapping[str, tuple[int, ...]]) -> Launcher:
        problem = self.planned.problem
        specs = {
            name: replace(spec, strides=strides.get(name, spec.strides))
            for name, spec in self.operator.output_specs(problem).items()
        }
        return Launcher(self.launch, specs, self.operator.scalars(problem), self.device, self.gpu)

    def _places(
        self, inputs: dict[str, torch.Tensor], strides: Mapping[str, tuple[int, ...]], copied: bool
    ) -> tuple[GuardedInputs | UnguardedInputs, GuardedInputs | UnguardedInputs]:
        if not copied:
            unguarded = UnguardedInputs(inputs)
            return unguarded, unguarded
        problem = self.planned.problem
        first, second = (self.cache.guarded(problem, inputs, strides, self.device, place) for place in (0, 1))
        return first, second

    def _conditions(self, reference: Reference) -> tuple[Condition, ...]:
        """How to launch. Where NaN belongs, always twice: else one that was written looks like one that was left."""
        if not self.planned.repeat and not any(output.has_nan for output in reference.outputs.values()):
            return ONCE
        outputs = self.operator.output_specs(self.planned.problem).values()
        many = sum(4 * math.prod(spec.shape) for spec in outputs) > _MANY_OUTPUTS
        return THOROUGHLY if self.gpu is not None and self.planned.thorough and not many else TWICE

    def _judge(
        self,
        runs: Sequence[Run],
        places: tuple[GuardedInputs | UnguardedInputs, ...],
        given: Mapping[str, torch.Tensor],
        reference: Reference,
        variation: Variation,
    ) -> FamilyReport:
        planned = self.planned
        # Where sums are made in no fixed order, every launch is held to the bound; else to the first one's bits.
        judged = runs if planned.profile.atomics else runs[:1]
        generic = planned.family in self.operator.generic_families
        comparisons = [
            Comparison(name, reference.outputs[name], t, generic=generic, variation=variation)
            for run in judged
            for name, t in run.outputs.tensors.items()
        ]
        # All counts and figures are read back at once: a transfer each would cost more than the arithmetic.
        nan = [t.isnan().any() for name, t in runs[0].outputs.tensors.items() if _never_nan(reference.outputs[name])]
        changes = torch.stack([place.changes() for place in dict.fromkeys(places)]).sum()
        differences = [runs[0].outputs.differences(run.outputs) for run in runs if run not in judged]
        counts = [violations([run.outputs for run in runs]), changes, *nan, *differences]
        outside, changed, *rest = read_back(counts, comparisons)
        with_nan, differing = rest[: len(nan)], rest[len(nan) :]

        if outside:
            name, reason = next(
                (r.partition(":")[0], r) for r in (run.outputs.describe_violation() for run in runs) if r
            )
            return _failed(planned, name, reason)
        if changed:
            self.cache.forget_inputs(planned.problem)
            seen = [(n, t) for place in places for n, t in place.tensors.items()]
            name = next((n for n, t in seen if not torch.equal(bits(t), bits(given[n]))), next(iter(given)))
            return _failed(planned, name, f"the input {name} was changed, or what surrounds it")
        strayed = next((run for run in runs if run.strayed), None)
        if strayed is not None:
            return _failed(planned, "launch", f"{strayed.condition} left another device or stream current")
        if any(with_nan) or any(not comparison.right for comparison in comparisons):
            for name, tensor in runs[0].outputs.tensors.items():
                if not reference.outputs[name].has_nan and bool(tensor.isnan().any()):
                    return _failed(planned, name, f"{name}: {_nan_reason(name, runs)}")
        report = _report(planned, [comparison.verdict() for comparison in comparisons])
        others = [run for run in runs if run not in judged]
        for run, count in zip(others, differing, strict=True):
            if report.passed and count:
                return _differs(report, runs[0], run)
        return report

    def _holds_everywhere(
        self,
        launcher: Launcher,
        places: tuple[GuardedInputs | UnguardedInputs, GuardedInputs | UnguardedInputs],
        given: Mapping[str, torch.Tensor],
        report: FamilyReport,
    ) -> FamilyReport:
        invariant = self.operator.invariant(self.planned.problem, given, self.planned.profile)
        if invariant is None or isinstance(places[0], UnguardedInputs):
            return report
        (run,) = launcher.run(ONCE, places, invariant.inputs)
        excess = float(invariant.excess(run.outputs.tensors))
        if excess <= 1.0:
            return report
        reason = f"{invariant.name}: not so, by {excess:.3g} times what rounding can do, outside of what was compared"
        return replace(report, passed=False, ratio=excess, reason=reason)


def _never_nan(reference: OutputReference) -> bool:
    """Whether NaN anywhere in the output is wrong and the comparison, of a selection alone, would not see it."""
    return reference.index is not None and not reference.has_nan


def _differs(report: FamilyReport, first: Run, second: Run) -> FamilyReport:
    """``report``, failed because a launch under another condition gave other bits than the first one."""
    for name, tensor in first.outputs.tensors.items():
        other = second.outputs.tensors[name]
        differing = bits(tensor) != bits(other)
        count = int(differing.sum())
        if count:
            never = int((differing & second.outputs.left(name)).sum())
            reason = f"{second.condition} gave other bits at {count} of {tensor.numel()} elements"
            if never:
                reason = f"{never} of {tensor.numel()} elements were never written"
                if not bool((differing & first.outputs.left(name)).any()):
                    reason += f" by {second.condition}"
            return replace(report, passed=False, output=name, reason=f"{name}: {reason}")
    return report


def _nan_reason(name: str, runs: Sequence[Run]) -> str:
    left = runs[0].outputs.left(name)
    if len(runs) > 1:
        never = int((left & runs[1].outputs.left(name)).sum())
        if never:
            return f"{never} of {left.numel()} elements were never written"
    found = int(runs[0].outputs.tensors[name].isnan().sum())
    return f"NaN (or never written) at {found} of {left.numel()} elements where none belongs"


def _report(planned: PlannedCheck, verdicts: list[Verdict]) -> FamilyReport:
    failed = [v for v in verdicts if v.reason]
    worst = failed[0] if failed else max(verdicts, key=lambda v: v.ratio)
    return FamilyReport(
        family=planned.name,
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
    return FamilyReport(planned.name, planned.problem.label, False, nothing, nothing, 0.0, output, (), reason)
