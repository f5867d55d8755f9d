"""One planned check of one launch: what is launched and compared, and what the numbers say.

What is launched is enqueued (``FamilyCheck.start``) apart from what is judged (``LaunchedCheck``), so that many checks
can be under way on a GPU at once and their numbers are read back together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tuner.check_plan import PlannedCheck
from tuner.comparison import Comparison, JoinedComparison, Verdict, read_back
from tuner.far_tensors import FarOutputs, Outputs, far_inputs
from tuner.guarded import GuardedInputs, GuardedOutputs, Inputs, UnguardedInputs, bits
from tuner.launches import (
    AT_FULL_SIZE,
    INTERPRETED,
    ONCE,
    ONCE_BACKWARDS,
    THOROUGHLY,
    TWICE,
    Condition,
    Gpu,
    Launcher,
    Run,
    place_of,
)
from tuner.operators.base import Operator
from tuner.operators.reference import OutputReference, Reference
from tuner.operators.variation import NONE, Variation
from tuner.reading import Reading
from tuner.reference_cache import ReferenceCache
from tuner.trial import FamilyReport

# Inputs beyond this are given to the launch as they are, without a copy between guard bands and without a variation.
_LARGEST_COPY = 2**30
# Outputs beyond this are not kept for more than two launches at once.
_MANY_OUTPUTS = 2**30


@dataclass(frozen=True)
class FamilyCheck:
    """One planned check of one launch. ``variation``: how this trial's inputs differ from the family's."""

    launch: Callable[..., None]
    operator: Operator
    planned: PlannedCheck
    device: str
    seed: int
    variation: Variation
    cache: ReferenceCache
    gpu: Gpu | None

    def run(self) -> FamilyReport:
        """Launch, compare, and say how the outputs are wrong where they are."""
        launched = self.start()
        Reading.fetch(launched.readings)
        if launched.passed:
            self.hold(launched)
            Reading.fetch(launched.readings)
        return launched.report(self.cache)

    def start(self) -> LaunchedCheck:
        """Enqueue the launches and all that is computed on what they leave; nothing waits for the device."""
        problem, planned = self.planned.problem, self.planned
        inputs = self.cache.inputs(self.operator, problem, planned.family, self.seed, self.device)
        reference = self.cache.reference(
            self.operator, problem, inputs, planned.family, self.seed, planned.profile, self.device
        )
        strides = self.operator.strides(problem) if planned.strided else {}
        copied = sum(t.numel() * t.element_size() for t in inputs.values()) <= _LARGEST_COPY and not planned.far
        variation = self.variation if copied else NONE
        guarded: Inputs
        if planned.far:
            guarded = far_inputs(inputs, dict(planned.far))
        elif copied:
            guarded = self.cache.guarded(problem, inputs, strides, self.device)
            variation.apply(inputs, guarded.given)
        else:
            guarded = UnguardedInputs(inputs)
        launcher = Launcher(self.launch, self.operator.scalars(problem), self.gpu)
        conditions = self._conditions(reference)
        outputs = self._far_outputs() if planned.far else self._outputs(strides, len(conditions))
        runs = launcher.run(conditions, guarded, outputs)
        generic = planned.family in self.operator.generic_families
        return LaunchedCheck(planned, reference, variation, runs, guarded, outputs, generic)

    def hold(self, launched: LaunchedCheck) -> None:
        """Enqueue what the whole of a large output must fulfil, of which a selection was compared."""
        problem, planned = self.planned.problem, self.planned
        inputs = launched.guarded_inputs
        if not planned.thorough or inputs is None or not launched.compares_a_selection:
            return
        invariant = self.operator.invariant(problem, inputs.given, planned.profile)
        if invariant is None:
            return
        for name, tensor in invariant.inputs.items():
            inputs.given[name].copy_(tensor)
        outputs = self._outputs({}, 1)
        Launcher(self.launch, self.operator.scalars(problem), self.gpu).run(ONCE, inputs, outputs)
        launched.hold(invariant.name, invariant.excess(outputs.tensors[0]))

    def _outputs(self, strides: Mapping[str, tuple[int, ...]], count: int) -> GuardedOutputs:
        problem = self.planned.problem
        specs = {
            name: replace(spec, strides=strides.get(name, spec.strides))
            for name, spec in self.operator.output_specs(problem).items()
        }
        return self.cache.outputs(problem, specs, self.device, count)

    def _far_outputs(self) -> FarOutputs:
        return FarOutputs(self.operator.output_specs(self.planned.problem), dict(self.planned.far))

    def _conditions(self, reference: Reference) -> tuple[Condition, ...]:
        """How to launch. Where NaN belongs, always twice: else one that was written looks like one that was left."""
        planned = self.planned
        if planned.backwards:
            return ONCE_BACKWARDS
        if planned.far:
            return ONCE
        if not planned.repeat and not reference.joined.has_nan:
            return ONCE
        outputs = self.operator.output_specs(planned.problem).values()
        many = sum(4 * math.prod(spec.shape) for spec in outputs) > _MANY_OUTPUTS
        if self.gpu is None:
            return INTERPRETED
        if not planned.thorough or many:
            return TWICE
        return AT_FULL_SIZE if planned.full_size else THOROUGHLY


class LaunchedCheck:
    """A check whose launches are enqueued. Once its ``readings`` are fetched, it says how the launches fared."""

    def __init__(
        self,
        planned: PlannedCheck,
        reference: Reference,
        variation: Variation,
        runs: Sequence[Run],
        inputs: Inputs,
        outputs: Outputs,
        generic: bool,
    ) -> None:
        self.planned, self._reference, self._variation, self._generic = planned, reference, variation, generic
        self._runs = runs
        self._evidence: tuple[Inputs, Outputs] | None = (inputs, outputs)
        # Where sums are made in no fixed order, every launch is held to the bound; else to the first one's bits.
        self._judged = runs if planned.profile.atomics else runs[:1]
        others = runs[len(self._judged) :]
        self._same = {run: outputs.unlike(run.number) for run in others}
        self._comparisons = [
            JoinedComparison(reference, outputs.tensors[run.number], generic=generic, variation=variation)
            for run in self._judged
        ]
        nan = [t.isnan().any() for name, t in outputs.tensors[0].items() if _never_nan(reference.outputs[name])]
        used = 1 + max(place_of(run.condition) for run in runs)
        self._counts = Reading([outputs.violations(), inputs.changes(used), *nan])
        self._differences = Reading([outputs.differences()] if others else [])
        self._excess = Reading([])
        self._invariant = ""

    def hold(self, invariant: str, excess: torch.Tensor) -> None:
        """Ask for what ``invariant`` says too. ``excess``: the deviation over its tolerance, a scalar on the device."""
        self._invariant, self._excess = invariant, Reading([excess])

    @property
    def readings(self) -> list[Reading]:
        """What has to be fetched, and is not yet."""
        all_of_it = (self._counts, self._differences, self._excess, *(c.reading for c in self._comparisons))
        return [reading for reading in all_of_it if not reading.values]

    @property
    def nbytes(self) -> int:
        """Bytes that are kept for it once it let go of its tensors."""
        return self._reference.nbytes

    @property
    def guarded_inputs(self) -> GuardedInputs | None:
        """Where its inputs lie; None where they are given to the launch as they are."""
        inputs = self._evidence[0] if self._evidence else None
        return inputs if isinstance(inputs, GuardedInputs) else None

    @property
    def compares_a_selection(self) -> bool:
        """Whether there are elements that no reference covers."""
        return any(output.index is not None for output in self._reference.outputs.values())

    def let_go(self) -> None:
        """Forget inputs and outputs, for others to take their place. A failure cannot be explained after that."""
        self._evidence = None

    @property
    def changed(self) -> bool:
        """Whether an input is not what it was."""
        return self._counts.values[1] > 0

    @property
    def passed(self) -> bool:
        """Whether all is as it should be."""
        return (
            not any(self._counts.values)
            and not any(run.strayed for run in self._runs)
            and all(comparison.right for comparison in self._comparisons)
            and not any(self._differs(run) for run in self._same)
            and all(excess <= 1.0 for excess in self._excess.values)
        )

    def report(self, cache: ReferenceCache) -> FamilyReport:
        """What was found, in words where it is wrong; it must not have let go of its tensors then."""
        if self.passed:
            return report_of(self.planned, [comparison.verdict() for comparison in self._comparisons])
        assert self._evidence is not None
        return self._explained(*self._evidence, cache)

    def _differs(self, run: Run) -> bool:
        return self._differences.values[run.number - 1] != self._same[run]

    def _explained(self, inputs: Inputs, outputs: Outputs, cache: ReferenceCache) -> FamilyReport:
        planned, first = self.planned, self._runs[0]
        for violation in (outputs.describe_violation(run.number) for run in self._runs if self._counts.values[0]):
            if violation:
                return failed(planned, violation.partition(":")[0], violation)
        if self.changed:
            cache.forget_inputs(planned.problem)
            name = inputs.changed()
            return failed(planned, name, f"the input {name} was changed, or what surrounds it")
        strayed = next((run for run in self._runs if run.strayed), None)
        if strayed is not None:
            return failed(planned, "launch", f"{strayed.condition} left another device or stream current")
        comparisons = [
            Comparison(name, self._reference.outputs[name], tensor, generic=self._generic, variation=self._variation)
            for run in self._judged
            for name, tensor in outputs.tensors[run.number].items()
        ]
        read_back([], comparisons)
        if any(self._counts.values[2:]) or any(not comparison.right for comparison in comparisons):
            for name, tensor in outputs.tensors[first.number].items():
                if not self._reference.outputs[name].has_nan and bool(tensor.isnan().any()):
                    return failed(planned, name, f"{name}: {_nan_reason(name, outputs, self._runs)}")
        report = report_of(planned, [comparison.verdict() for comparison in comparisons])
        differing = next((run for run in self._same if self._differs(run)), None)
        if report.passed and differing is not None:
            return _differing(report, outputs, first, differing)
        if report.passed and any(not excess <= 1.0 for excess in self._excess.values):
            (excess,) = self._excess.values
            by = f"by {excess:.3g} times what rounding can do, outside of what was compared"
            return replace(report, passed=False, ratio=excess, reason=f"{self._invariant}: not so, {by}")
        return report


def report_of(planned: PlannedCheck, verdicts: Sequence[Verdict]) -> FamilyReport:
    """The first verdict that something is wrong, else the one with the largest ratio."""
    wrong = [v for v in verdicts if v.reason]
    worst = wrong[0] if wrong else max(verdicts, key=lambda v: v.ratio)
    return FamilyReport(
        family=planned.name,
        problem=planned.problem.label,
        passed=not wrong,
        ratio=worst.ratio,
        error=worst.error,
        bound=worst.bound,
        output=worst.output,
        where=worst.where,
        reason=worst.reason,
    )


def failed(planned: PlannedCheck, output: str, reason: str) -> FamilyReport:
    """A failure that no element's error measures."""
    nothing = math.inf
    return FamilyReport(planned.name, planned.problem.label, False, nothing, nothing, 0.0, output, (), reason)


def _never_nan(reference: OutputReference) -> bool:
    """Whether NaN anywhere in the output is wrong and the comparison, of a selection alone, would not see it."""
    return reference.index is not None and not reference.has_nan


def _differing(report: FamilyReport, outputs: Outputs, first: Run, second: Run) -> FamilyReport:
    """``report``, failed because a launch under another condition gave other bits than the first one."""
    for name, tensor in outputs.tensors[first.number].items():
        differing = bits(tensor) != bits(outputs.tensors[second.number][name])
        count = int(differing.sum())
        if count:
            never = int((differing & outputs.left(second.number, name)).sum())
            reason = f"{second.condition} gave other bits at {count} of {tensor.numel()} elements"
            if never:
                reason = f"{never} of {tensor.numel()} elements were never written"
                if not bool((differing & outputs.left(first.number, name)).any()):
                    reason += f" by {second.condition}"
            return replace(report, passed=False, output=name, reason=f"{name}: {reason}")
    return report


def _nan_reason(name: str, outputs: Outputs, runs: Sequence[Run]) -> str:
    left = outputs.left(runs[0].number, name)
    if len(runs) > 1:
        never = int((left & outputs.left(runs[1].number, name)).sum())
        if never:
            return f"{never} of {left.numel()} elements were never written"
    found = int(outputs.tensors[runs[0].number][name].isnan().sum())
    return f"NaN (or never written) at {found} of {left.numel()} elements where none belongs"
