"""Jobs for workers that check and time candidates. Each says where things are and carries only plain values.

The program that sends them imports this module too, so what needs torch is imported where a worker runs it.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tuner.canonical import digest
from tuner.check_plan import plan
from tuner.compiling import counting_compilations
from tuner.config import Value
from tuner.device import Device
from tuner.gpu_desk import GpuDesk, variation_seed
from tuner.loading import load_source
from tuner.operators import get
from tuner.precision import PrecisionProfile
from tuner.problem import Problem
from tuner.statistics import summarise
from tuner.trial import CheckReport, DeviceState, Measurement
from tuner.worker.child import UnusableError
from tuner.worker.messages import WorkerState

SCREEN_SAMPLES = 3
CUT_SHORT_FACTOR = 3.0
_PROGRAMS, _FEW_PROGRAMS = "NUM_PROGRAMS", 2


@dataclass(frozen=True)
class Candidate:
    """A config as the workers see it: its rendered source, what ``launch`` takes, and what the check needs to know."""

    key: str
    source_path: str
    launch_arguments: Mapping[str, Value]
    tiles: Mapping[str, int]
    max_tiles: Mapping[str, int]
    profile: PrecisionProfile

    @property
    def promise(self) -> str:
        """A hash of what its check holds it to."""
        return digest([self.profile.as_json(), dict(self.tiles), dict(self.max_tiles)])

    def launch(self, few_programs: bool = False) -> Callable[..., None]:
        """The variant's ``launch`` with this config's arguments.

        With ``few_programs`` an argument ``NUM_PROGRAMS`` (how many programs share the work) is small, so that programs
        that walk over several pieces of work do so at small shapes too.
        """
        arguments = dict(self.launch_arguments)
        if few_programs and isinstance(arguments.get(_PROGRAMS), int):
            arguments[_PROGRAMS] = min(int(arguments[_PROGRAMS]), _FEW_PROGRAMS)
        return partial(load_source(Path(self.source_path)).launch, **arguments)


@dataclass(frozen=True)
class Evaluation:
    """What the GPU worker found. ``measurement`` is None where the check failed; ``pruned`` where it was cut short."""

    check: CheckReport
    measurement: Measurement | None
    pruned: bool = False
    recompiled: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SetUpJob:
    """Make what a GPU worker keeps for ``problem``: tensors, warm clocks, and the references that ``typical`` will
    need.

    So that the first candidate pays for none of it. Returns the seconds that it took.
    """

    problem: Problem
    device: Device
    seed: int
    typical: Candidate | None = None

    def __call__(self, state: WorkerState) -> float:
        started = time.perf_counter()
        with _surviving_gpu():
            desk = GpuDesk.of(state, self.problem, self.device, self.seed)
            if self.typical is not None:
                desk.foresee(self.typical)
        return time.perf_counter() - started


@dataclass(frozen=True)
class GiveUpJob:
    """Give up what a GPU worker keeps for ``problem``: the process goes on, with what it keeps for others."""

    problem: Problem
    seed: int

    def __call__(self, state: WorkerState) -> None:
        with _surviving_gpu():
            GpuDesk.give_up(state, self.problem, self.seed)


@dataclass(frozen=True)
class EvaluateJob:
    """Check one candidate on the GPU, then screen it: a few samples, fewer where it is clearly slow.

    ``best_us`` is the fastest time so far (infinity: none); a candidate is cut short beyond ``CUT_SHORT_FACTOR`` of it.
    """

    problem: Problem
    device: Device
    candidate: Candidate
    seed: int
    best_us: float = math.inf
    samples: int = SCREEN_SAMPLES
    measure: bool = True

    def __call__(self, state: WorkerState) -> Evaluation:
        with _surviving_gpu(), counting_compilations() as compiled:
            return self._run(GpuDesk.of(state, self.problem, self.device, self.seed), compiled)

    def _run(self, desk: GpuDesk, compiled: Callable[[], int]) -> Evaluation:
        started = time.perf_counter()
        report = desk.check(self.candidate)
        checked = time.perf_counter()
        seconds = {"check": checked - started}
        if not report.passed or not self.measure:
            return Evaluation(report, None, recompiled=compiled(), seconds=seconds)
        prepared = desk.timer.prepare(self.candidate.launch(), CUT_SHORT_FACTOR * self.best_us)
        if prepared.calls == 0:
            samples = [prepared.first_us]
        else:
            samples = []
            for _ in range(self.samples):
                samples.append(desk.timer.sample(prepared))
                if samples[0] > CUT_SHORT_FACTOR * self.best_us:
                    break
            desk.prepared[self.candidate.key] = prepared
        pruned = len(samples) < self.samples
        measurement = measurement_of("screen", prepared.protocol, samples, (desk.state(),))
        after = desk.recheck(self.candidate, prepared)
        if after.passed:
            after = desk.plausible(self.problem, after, min(samples), prepared.calls)
        report = replace(report, families=(*report.families, after))
        seconds["time"] = time.perf_counter() - checked
        if not report.passed:
            return Evaluation(report, None, recompiled=compiled(), seconds=seconds)
        return Evaluation(report, measurement, pruned, compiled(), seconds)


@dataclass(frozen=True)
class RoundsResult:
    """Interleaved samples: microseconds by candidate key and round, and the card's state at each round."""

    samples: Mapping[str, Mapping[int, float]]
    states: Mapping[int, DeviceState]
    protocols: Mapping[str, str]
    checks: Mapping[str, CheckReport]
    process_id: int


@dataclass(frozen=True)
class RoundsJob:
    """Time every candidate once a round, in a random order that differs by round.

    With ``check_first`` (finalists, in a fresh process) each candidate passes the check on new inputs before the first
    round; one that does not is left out, and its report says why. After the last round what the timed launches leave is
    compared once more, and a report that failed then is in ``checks`` as well.
    """

    problem: Problem
    device: Device
    candidates: tuple[Candidate, ...]
    first_round: int
    rounds: int
    seed: int
    check_first: bool = False

    def __call__(self, state: WorkerState) -> RoundsResult:
        with _surviving_gpu():
            return self._run(GpuDesk.of(state, self.problem, self.device, self.seed))

    def _run(self, desk: GpuDesk) -> RoundsResult:
        checks: dict[str, CheckReport] = {}
        running = list(self.candidates)
        if self.check_first:
            checks = {c.key: desk.check(c) for c in {c.key: c for c in running}.values()}
            running = [c for c in running if checks[c.key].passed]
        names = entry_names(running)
        prepared = [desk.prepare(c) for c in running]
        samples: dict[str, dict[int, float]] = {name: {} for name in names}
        states: dict[int, DeviceState] = {}
        for number in range(self.first_round, self.first_round + self.rounds):
            order = list(range(len(running)))
            random.Random(f"{self.seed}/{number}").shuffle(order)
            for place in order:
                samples[names[place]][number] = desk.timer.sample(prepared[place])
            states[number] = desk.state()
        if self.check_first:
            for c, p in {c.key: (c, p) for c, p in zip(running, prepared, strict=True)}.values():
                after = desk.recheck(c, p)
                checks[c.key] = replace(checks[c.key], families=(*checks[c.key].families, after))
        protocols = {c.key: p.protocol for c, p in zip(running, prepared, strict=True)}
        return RoundsResult(samples, states, protocols, checks, os.getpid())


def entry_names(candidates: list[Candidate] | tuple[Candidate, ...]) -> list[str]:
    """One name per entry: a candidate entered twice (the A/A control) is ``KEY`` and ``KEY/again``."""
    names: list[str] = []
    for candidate in candidates:
        names.append(f"{candidate.key}/again" if candidate.key in names else candidate.key)
    return names


@dataclass(frozen=True)
class InterpretJob:
    """Check one candidate in Triton's interpreter, at small shapes, on the CPU."""

    problem: Problem
    candidate: Candidate
    seed: int

    def __call__(self, state: WorkerState) -> Evaluation:
        from tuner.checking import check
        from tuner.interpreter import is_interpreting, repair_interpreter
        from tuner.reference_cache import ReferenceCache

        if not is_interpreting():
            raise RuntimeError("this worker was not started for the interpreter")
        state.keep("interpreter", repair_interpreter)
        cache = state.keep("references", ReferenceCache)
        candidate, operator = self.candidate, get(self.problem.operator)
        started = time.perf_counter()
        checks = plan(operator, self.problem, candidate.tiles, candidate.max_tiles, candidate.profile, full_size=False)
        report = check(
            candidate.launch(few_programs=True),
            operator,
            checks,
            "cpu",
            self.seed,
            cache,
            variation=variation_seed(self.seed, candidate),
        )
        return Evaluation(report, None, seconds={"check": time.perf_counter() - started})


class _surviving_gpu:
    """Around GPU work: an error that has poisoned the CUDA context ends this process, any other is just raised."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import torch

        try:
            torch.cuda.synchronize()
        except RuntimeError as poisoned:
            message = str(error or poisoned).strip().splitlines()[0]
            raise UnusableError("GpuError", message) from poisoned
        if error is not None:
            # A traceback holds the tensors of every frame; a failed candidate must not keep device memory.
            error.__traceback__ = None
            torch.cuda.empty_cache()


def measurement_of(stage: str, protocol: str, samples: list[float], states: tuple[DeviceState, ...]) -> Measurement:
    """The measurement of samples that this process took, one a round; microseconds."""
    summary = summarise(samples)
    return Measurement(
        stage=stage,
        protocol=protocol,
        samples_us=tuple(samples),
        median_us=summary.median,
        low_us=summary.low,
        high_us=summary.high,
        rounds=tuple(range(len(samples))),
        process=(os.getpid(),) * len(samples),
        states=states,
    )
