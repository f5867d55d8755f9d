"""What the worker that has the GPU keeps for one problem, and how it checks a candidate there, before timing and after.

What needs torch is imported where a worker runs it.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tuner.canonical import digest
from tuner.check_plan import CheckPlan, plan
from tuner.device import Device
from tuner.operators import get
from tuner.problem import Problem
from tuner.trial import CheckReport, DeviceState, FamilyReport
from tuner.worker.messages import WorkerState

if TYPE_CHECKING:
    from tuner.evaluating import Candidate

# Where the clock and the data sheet are right, nothing runs faster than this share of the roofline's time.
IMPOSSIBLE_SHARE = 0.7
# Of copies that together are this many times the cache's size, less than half is found in it again.
_UNCACHED, _READ_SHARE = 4, 0.5
_MOST_PREPARED = 48
_KEPT = "desk/"
# Of the card's memory, what the desks of other problems may take when one more is made.
_DESKS_SHARE = 0.2
_REFERENCE_SHARE = 0.1


def variation_seed(seed: int, candidate: Candidate) -> int:
    """What decides how the inputs of this candidate's check differ from those of other trials of a study.

    From 1 to 2^53 - 1, so that every reader of JSON gets it as it is.
    """
    return 1 + int(digest([seed, candidate.key])[:13], 16) % (2**53 - 1)


class GpuDesk:
    """What a GPU worker keeps for one problem: the timer's tensors, references, prepared launches, the card's
    sensor."""

    def __init__(self, problem: Problem, device: Device, seed: int) -> None:
        from tuner.launches import CudaGpu
        from tuner.nvml import DeviceStateReader
        from tuner.reference_cache import ReferenceCache
        from tuner.timing import Timer, warm_up

        self.problem, self.device, self.seed = problem, device, seed
        self.operator = get(problem.operator)
        # Every tile size has small problems of its own; what does not fit is made anew for each candidate.
        self.references = ReferenceCache(max(2**30, int(_REFERENCE_SHARE * device.memory_bytes)))
        self.prepared: dict[str, Any] = _Recent()
        self.gpu = CudaGpu(device.l2_bytes)
        self.timer = Timer(self.operator, problem, seed, device.l2_bytes)
        self._sensor = DeviceStateReader()
        self._sensor.__enter__()
        self._plans: dict[Any, CheckPlan] = {}
        warm_up()

    @classmethod
    def of(cls, state: WorkerState, problem: Problem, device: Device, seed: int) -> GpuDesk:
        """The desk for ``problem`` of this worker. Those for others stay while the card has room for them."""
        import torch

        name = _name(problem, seed)
        if name not in state.kept:
            for other in [n for n in state.kept if n.startswith(_KEPT)]:
                if torch.cuda.memory_allocated() <= _DESKS_SHARE * device.memory_bytes:
                    break
                del state.kept[other]
            torch.cuda.empty_cache()
        desk: GpuDesk = state.keep(name, lambda: cls(problem, device, seed))
        state.kept[name] = state.kept.pop(name)  # the one that was used last is cleared away last
        return desk

    @staticmethod
    def give_up(state: WorkerState, problem: Problem, seed: int) -> None:
        """Clear away the desk for ``problem``: what it had of the card's memory is free again."""
        import torch

        state.kept.pop(_name(problem, seed), None)
        gc.collect()  # a cycle would keep its tensors until some later moment
        torch.cuda.empty_cache()

    def state(self) -> DeviceState:
        """The card now."""
        return self._sensor.read()

    def foresee(self, candidate: Candidate) -> None:
        """Compute the references that ``candidate``'s check and recheck will ask for, and prove the plan's power."""
        from tuner.power import require_power

        checks = self._plan(candidate)
        require_power(self.operator, checks, "cuda", self.seed, self.references)
        for planned in checks.checks:
            inputs = self.references.inputs(self.operator, planned.problem, planned.family, self.seed, "cuda")
            self.references.reference(
                self.operator, planned.problem, inputs, planned.family, self.seed, planned.profile, "cuda"
            )
        self.references.reference(
            self.operator, self.problem, dict(self.timer.first_inputs), "timing", self.seed, candidate.profile, "cuda"
        )

    def _plan(self, candidate: Candidate) -> CheckPlan:
        """The candidate's plan: the same object for all that promise the same, so that what it takes is done once."""
        tiles, most, profile = candidate.tiles, candidate.max_tiles, candidate.profile
        key = (*(tuple(sorted(of.items())) for of in (tiles, most)), profile)
        if key not in self._plans:
            self._plans[key] = plan(self.operator, self.problem, tiles, most, profile, full_size=True)
        return self._plans[key]

    def check(self, candidate: Candidate) -> CheckReport:
        """The whole check, on the small problems and at the tuned shape."""
        from tuner.checking import check

        return check(
            candidate.launch(),
            self.operator,
            self._plan(candidate),
            "cuda",
            self.seed,
            self.references,
            variation=variation_seed(self.seed, candidate),
            gpu=self.gpu,
        )

    def recheck(self, candidate: Candidate, prepared: Any) -> FamilyReport:
        """Compare what timed launches leave with the reference: of the first copy, and of one with changed inputs.

        The calls of one sample are run once more for it, into outputs that hold NaN: what stands there now could be
        left over from the first of them.
        """
        from tuner.checking import recheck

        if prepared.calls:
            self.timer.run_again(prepared)
        compared = {"timing": self.timer.first_outputs}
        if prepared.calls and len(self.timer.copies) > 1:
            compared["timing (inputs changed in place)"] = self.timer.last_outputs
        for name, outputs in compared.items():
            report = recheck(
                self.operator,
                self.problem,
                candidate.profile,
                self.timer.first_inputs,
                outputs,
                name="timing",
                seed=self.timer.seed,
                device="cuda",
                cache=self.references,
            )
            if not report.passed:
                return replace(report, family=name)
        if self.timer.inputs_changed():
            return replace(report, passed=False, reason="an input was changed while the launches were timed")
        return report

    def plausible(self, problem: Problem, report: FamilyReport, fastest_us: float, calls: int) -> FamilyReport:
        """``report``, failed where the time is below what the hardware can do: then the timing was deceived."""
        if calls == 0:
            return report
        floor_us = max(self._compute_floor_us(problem), self._memory_floor_us())
        if fastest_us >= floor_us:
            return report
        name = self.device.name
        reason = f"{fastest_us:.2f} us is faster than {name} can compute or read this ({floor_us:.2f} us at the least)"
        return replace(report, passed=False, reason=reason)

    def _compute_floor_us(self, problem: Problem) -> float:
        flops, rate = self.operator.flops(problem), self.device.tensor_flops
        return 1e6 * IMPOSSIBLE_SHARE * flops / rate if rate else 0.0

    def _memory_floor_us(self) -> float:
        """The least time for reading the inputs once, where all copies together are too large to stay in the cache."""
        rate, timer = self.device.memory_bandwidth, self.timer
        if not rate or _nbytes(timer.copies[0]) * len(timer.copies) < _UNCACHED * self.device.l2_bytes:
            return 0.0
        return 1e6 * _READ_SHARE * _nbytes(timer.first_inputs) / rate

    def prepare(self, candidate: Candidate) -> Any:
        """The candidate's captured launch, kept between calls."""
        if candidate.key not in self.prepared:
            self.prepared[candidate.key] = self.timer.prepare(candidate.launch())
        return self.prepared[candidate.key]


class _Recent(dict[str, Any]):
    """Keeps the last few entries only: a captured graph holds device memory."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        while len(self) > _MOST_PREPARED:
            del self[next(iter(self))]


def _name(problem: Problem, seed: int) -> str:
    return f"{_KEPT}{problem.key}/{seed}"


def _nbytes(tensors: Mapping[str, Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors.values())
