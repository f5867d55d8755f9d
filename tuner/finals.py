"""The end of a study: race the better configs in interleaved rounds, re-measure the last few, choose the winner."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.config import Config
from tuner.deciding import Decision, decide
from tuner.device import Device
from tuner.evaluating import Candidate, RoundsJob, RoundsResult, SetUpJob
from tuner.problem import Problem
from tuner.racing import fastest, is_machine_unstable, race_survivors, unstable_rounds
from tuner.statistics import summarise
from tuner.steps import Pause, Steps, reply_in_steps
from tuner.store.records import TIE, WINNER
from tuner.trial import CompileReport, DeviceState, Measurement
from tuner.worker.messages import Done
from tuner.worker.process import Worker

RACE_WINDOW = 1.06
MOST_RACERS = 24
MOST_FINALISTS, LEAST_FINALISTS = 6, 2
RACE_CHUNKS = (4, 4, 8, 16)
FINAL_PROCESSES = 2
FINAL_ROUNDS = 15
ROUNDS_LIMIT_S = 120.0


@dataclass(frozen=True)
class Contender:
    """A timed config that may be the winner. ``screen_us`` is its first time; ``is_plain``: its author's own choice."""

    config: Config
    candidate: Candidate
    screen_us: float
    compiled: CompileReport | None
    is_plain: bool

    @property
    def key(self) -> str:
        """The config's key."""
        return self.config.key

    @property
    def weight(self) -> tuple[bool, int, str]:
        """How simple it is, to choose within a tie: plain first, then registers and shared memory, then its label."""
        kernels = self.compiled.kernels if self.compiled else ()
        footprint = sum(4 * k.registers * k.threads + k.shared_bytes for k in kernels)
        return (not self.is_plain, footprint, self.config.label)


@dataclass
class Rounds:
    """Interleaved samples so far: by entry name, then by (process, round)."""

    samples: dict[str, dict[tuple[int, int], float]] = field(default_factory=dict)
    states: dict[tuple[int, int], DeviceState] = field(default_factory=dict)
    protocols: dict[str, str] = field(default_factory=dict)

    def add(self, result: RoundsResult) -> None:
        """Take in what one process measured."""
        for name, rounds in result.samples.items():
            kept = self.samples.setdefault(name, {})
            kept.update({(result.process_id, number): us for number, us in rounds.items()})
        self.states.update({(result.process_id, number): s for number, s in result.states.items()})
        self.protocols.update(result.protocols)

    def next_round(self) -> int:
        """A round number that was not used yet."""
        return 1 + max((number for rounds in self.samples.values() for _, number in rounds), default=-1)

    def measurement(self, name: str, stage: str) -> Measurement:
        """The samples of the entry ``name``, in the order in which they were taken."""
        samples = self.samples[name]
        at = sorted(samples)
        summary = summarise([samples[place] for place in at])
        return Measurement(
            stage=stage,
            protocol=self.protocols[name],
            samples_us=tuple(samples[place] for place in at),
            median_us=summary.median,
            low_us=summary.low,
            high_us=summary.high,
            rounds=tuple(number for _, number in at),
            process=tuple(process for process, _ in at),
            states=tuple(self.states[place] for place in at),
        )

    def steady(self, anchor: str) -> tuple[dict[str, dict[tuple[int, int], float]], bool]:
        """The samples without the rounds in which the card was not itself; and whether too many had to go."""
        clocks = {at: (float(state.sm_clock_mhz),) for at, state in self.states.items()}
        bad = unstable_rounds(clocks, self.samples.get(anchor, {}))
        unstable = is_machine_unstable(len(bad), len(self.states))
        if unstable:
            return self.samples, True
        kept = {name: {at: us for at, us in rounds.items() if at not in bad} for name, rounds in self.samples.items()}
        return kept, False


@dataclass(frozen=True)
class Outcome:
    """What the finals say. ``measurements`` are the finalists' by config key."""

    winner: Contender
    kind: str
    verdict: str
    decision: Decision
    measurements: Mapping[str, Measurement]
    unstable: bool


class Finals:
    """Runs the race and the finals on one GPU, in steps. ``notice`` is told what people should know."""

    def __init__(self, problem: Problem, device: Device, seed: int, notice: Callable[[str], None]) -> None:
        self.problem, self.device, self.seed, self._notice = problem, device, seed, notice

    def race(
        self, gpu: Worker, contenders: Sequence[Contender], raced: Rounds, deadline: float
    ) -> Steps[list[Contender]]:
        """Interleaved rounds among ``contenders`` until few are left, or nothing but ties, or time is up.

        ``raced`` holds rounds that were run while the GPU waited for compilers, and takes the new ones. Returns the
        finalists, fastest first.
        """
        by_key = {c.key: c for c in contenders}
        alive = list(by_key)
        for chunk in RACE_CHUNKS:
            if len(alive) < 2 or time.monotonic() >= deadline:
                break
            job = RoundsJob(
                self.problem,
                self.device,
                tuple(by_key[key].candidate for key in alive),
                raced.next_round(),
                chunk,
                self.seed,
            )
            reply = yield from reply_in_steps(gpu, job, ROUNDS_LIMIT_S)
            if not isinstance(reply, Done):
                self._notice("the GPU process ended during the race; it goes on with the rounds before")
                break
            raced.add(reply.value)
            race = race_survivors({key: raced.samples[key] for key in alive if key in raced.samples})
            alive = [key for key in alive if key in race.survivors]
            if race.settled or len(alive) <= 2:
                break
        order = self._by_speed(alive, raced, by_key)
        return [by_key[key] for key in order[:MOST_FINALISTS]]

    def set_up(self, workers: Sequence[Worker], typical: Contender) -> Steps[None]:
        """Start the processes of the finals side by side, each with its own inputs: that takes seconds in each."""
        for process, worker in enumerate(workers):
            job = SetUpJob(self.problem, self.device, self.seed + 1 + process, typical.candidate)
            worker.send(job, ROUNDS_LIMIT_S)
        while busy := [worker for worker in workers if worker.busy]:
            yield Pause(busy, 1.0)
            for worker in busy:
                worker.poll()

    def finals(
        self, workers: Sequence[Worker], finalists: Sequence[Contender], anchor: Contender
    ) -> Steps[tuple[Outcome | None, dict[str, str]]]:
        """Re-measure ``finalists`` interleaved, in one process after the other, checked anew.

        Returns the outcome (None where none survived), and why by config key for those that failed the check now.
        """
        field_ = list({c.key: c for c in (*finalists, anchor)}.values())
        entries = (*(c.candidate for c in field_), anchor.candidate)  # the anchor twice: the A/A control
        rounds = Rounds()
        wrong: dict[str, str] = {}
        for process, worker in enumerate(workers):
            job = RoundsJob(
                self.problem, self.device, entries, 0, FINAL_ROUNDS, self.seed + 1 + process, check_first=True
            )
            reply = yield from reply_in_steps(worker, job, ROUNDS_LIMIT_S)
            worker.kill()
            if not isinstance(reply, Done):
                self._notice("a process of the final re-measurement ended; its rounds are left out")
                continue
            rounds.add(reply.value)
            wrong.update({key: report.reason for key, report in reply.value.checks.items() if not report.passed})
        for key in wrong:
            rounds.samples.pop(key, None)
            rounds.samples.pop(f"{key}/again", None)
        field_ = [c for c in field_ if c.key in rounds.samples]
        return (self._outcome(field_, anchor, rounds) if field_ else None), wrong

    def _outcome(self, field_: list[Contender], anchor: Contender, rounds: Rounds) -> Outcome:
        samples, unstable = rounds.steady(anchor.key)
        control = f"{anchor.key}/again" if f"{anchor.key}/again" in samples else ""
        decision = decide(
            samples,
            anchor=anchor.key if control else "",
            control=control,
            seed=self.seed,
            labels={c.key: c.config.label for c in field_},
        )
        tied = [c for c in field_ if c.key in decision.ties]
        clear = len(tied) == 1 and decision.noise_model_ok and not unstable
        winner = min(tied, key=lambda c: c.weight)
        verdict = decision.verdict
        if len(tied) > 1:
            verdict = f"{verdict}; the simplest of them is chosen: {winner.config.label}"
        if unstable:
            verdict = f"the card was unsteady (clocks or anchor moved in over a fifth of the rounds); {verdict}"
        steady = Rounds(samples, rounds.states, rounds.protocols)
        measurements = {c.key: steady.measurement(c.key, "final") for c in field_}
        return Outcome(winner, WINNER if clear else TIE, verdict, decision, measurements, unstable)

    @staticmethod
    def _by_speed(alive: list[str], raced: Rounds, by_key: Mapping[str, Contender]) -> list[str]:
        remaining, order = list(alive), []
        while remaining:
            seen = {key: raced.samples[key] for key in remaining if key in raced.samples}
            best = fastest(seen) if seen else min(remaining, key=lambda key: by_key[key].screen_us)
            order.append(best)
            remaining.remove(best)
        return order


def affordable(finalists: Sequence[Contender], check_s: float, left_s: float) -> list[Contender]:
    """Those of ``finalists`` (fastest first) that the finals have time for, and the fastest two in any case.

    ``check_s``: seconds that the check of one takes, which each process of the finals does for each finalist and the
    anchor; beside it their rounds take no time. ``left_s``: seconds that are left of the budget.
    """
    most = left_s / (FINAL_PROCESSES * check_s) - 1.0 if check_s > 0.0 else math.inf
    return [c for place, c in enumerate(finalists) if place < max(LEAST_FINALISTS, most)]


def choose_racers(contenders: Sequence[Contender]) -> list[Contender]:
    """Those whose first time is within ``RACE_WINDOW`` of the best, the fastest first, not too many."""
    ordered = sorted(contenders, key=lambda c: (c.screen_us, c.weight))
    return [c for c in ordered if c.screen_us <= RACE_WINDOW * ordered[0].screen_us][:MOST_RACERS]
