"""The one loop: ask for a config, compile it ahead, check it, time it on copies, store it; then race the best."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tuner.autotuning.bench import Bench
from tuner.autotuning.card import Card
from tuner.autotuning.compile_queue import CompileQueue
from tuner.autotuning.ledger import Held, Ledger
from tuner.autotuning.referee import MADE, NotComparedError, Referee
from tuner.config import Config
from tuner.deciding import Decision, decide
from tuner.errors import StudyFailedError
from tuner.evaluating import CUT_SHORT_FACTOR, SCREEN_SAMPLES, measurement_of
from tuner.finals import MOST_FINALISTS, RACE_CHUNKS, RACE_WINDOW
from tuner.outcomes import outcome_of
from tuner.protocols import CALLER_PROTOCOL, EVENT_PROTOCOL
from tuner.racing import race_survivors
from tuner.resources import fits
from tuner.search.base import Proposal, Proposer
from tuner.store.records import TIE, WINNER, WinnerRecord
from tuner.trial import CheckReport, CompileReport, DeviceState, Outcome, TrialRecord
from tuner.worker.messages import Done, Raised, Reply

_MS = 1e-3
_FEWEST_BLOCKS = 2


@dataclass(frozen=True)
class Timing:
    """How configs are timed. ``do_bench``: the caller's own function, else None. Both times are milliseconds."""

    do_bench: Any = None
    warmup_ms: float = 0.0
    rep_ms: float = 0.0

    @property
    def protocol(self) -> str:
        """The name of the way to time."""
        return CALLER_PROTOCOL if self.do_bench is not None else EVENT_PROTOCOL


@dataclass
class Contender:
    """A config that is right and timed: ``us`` so far; ``order`` is when it was asked for."""

    config: Config
    launchable: Any
    us: float
    order: int
    compiled: CompileReport | None

    @property
    def weight(self) -> tuple[int, int]:
        """How simple it is, to choose within a tie: registers and shared memory, then its place in the list."""
        kernels = self.compiled.kernels if self.compiled else ()
        return (sum(4 * k.registers * k.threads + k.shared_bytes for k in kernels), self.order)


@dataclass
class Result:
    """What was chosen. ``timings``: milliseconds by config (median, fast end, slow end), infinite where it failed."""

    winner: Contender
    verdict: str
    timings: dict[Config, list[float]] = field(default_factory=dict)


class Tuning:
    """Tunes one kernel for one call.

    ``launchables`` gives the ``triton.Config`` of a stored one. ``budget``: at most so many configs are tried.
    """

    def __init__(
        self,
        label: str,
        bench: Bench,
        queue: CompileQueue,
        proposer: Proposer,
        launchables: Callable[[Config], Any],
        ledger: Ledger,
        held: Held,
        timing: Timing,
        card: Card | None,
        referee: Referee | None,
        budget: float,
    ) -> None:
        self._label, self._bench, self._queue, self._proposer = label, bench, queue, proposer
        self._launchables, self._ledger, self._held, self._timing = launchables, ledger, held, timing
        self._card, self._referee, self._budget = card, referee, budget
        self._contenders: list[Contender] = []
        self._failures: list[TrialRecord] = []
        self._timings: dict[Config, list[float]] = {}
        self._plain: Config | None = None

    def run(self) -> Result:
        """The choice. Raises ``StudyFailedError`` where no config works, and says why by kind."""
        if self._card is not None:
            self._card.warm_up()
        self._search()
        if not self._contenders:
            raise StudyFailedError(self._why_none())
        winner, record = self._choose()
        self._ledger.record_winner(winner.config, record)
        return Result(winner, record.verdict, self._timings)

    def _search(self) -> None:
        known = self._ledger.known(self._held)
        waiting: dict[int, tuple[Proposal, int]] = {}
        asked = 0
        while True:
            while asked < self._budget and len(waiting) < self._queue.capacity:
                proposal = self._proposer.ask()
                if proposal is None:
                    asked = math.inf  # type: ignore[assignment]
                    break
                if self._plain is None:
                    self._plain = proposal.config
                stored = known.get(proposal.config.key)
                if stored is not None:
                    self._ledger.reuse(stored)
                    self._settle(proposal, stored.as_record(), asked)
                else:
                    waiting[proposal.number] = (proposal, asked)
                    self._queue.submit(proposal.number, self._launchables(proposal.config))
                asked += 1
            if not waiting:
                return
            for number, reply in self._queue.poll():
                proposal, order = waiting.pop(number)
                record = self._try(proposal.config, reply)
                self._ledger.record(record)
                self._settle(proposal, record, order)

    def _settle(self, proposal: Proposal, record: TrialRecord, order: int) -> None:
        """Take a config's outcome in, and tell the search."""
        config = record.config
        if record.outcome is Outcome.TIMED:
            assert record.value_us is not None
            samples = tuple(s for m in record.measurements for s in m.samples_us)
            launchable = self._launchables(config)
            self._contenders.append(Contender(config, launchable, record.value_us, order, record.compile_report))
            low, high = (min(samples), max(samples)) if samples else (record.value_us, record.value_us)
            self._timings[config] = [_MS * us for us in (record.value_us, low, high)]
        else:
            self._timings[config] = [math.inf] * 3
            if record.outcome is not Outcome.PRUNED:
                self._failures.append(record)
        self._proposer.tell(proposal, record.outcome, record.value_us)

    def _try(self, config: Config, reply: Reply | None) -> TrialRecord:
        """Everything that is done with one config. ``reply``: what compiling it ahead gave; None where it was not."""
        compiled: CompileReport | None = None
        if isinstance(reply, Done):
            compiled = reply.value
            device = self._queue.device
            refusals = [why for why in (fits(kernel, device) for kernel in compiled.kernels) if why]
            if refusals:
                return TrialRecord(config, self._queue.variant, Outcome.OUT_OF_RESOURCES, refusals[0], None, compiled)
        elif reply is not None:
            outcome, reason = outcome_of(reply, "compile")
            return TrialRecord(config, self._queue.variant, outcome, reason)
        launchable = self._launchables(config)
        report: CheckReport | None = None
        try:
            if self._referee is None:
                self._bench.launch_once(launchable)
            else:
                report = self._referee.examine(self._bench, launchable, self._label, self._held.promise)
        except NotComparedError:
            raise
        except Exception as error:  # a config's own failure is its outcome, whatever its launch raises
            return self._failed(config, error, compiled)
        if report is not None and not report.passed:
            return TrialRecord(config, self._queue.variant, Outcome.WRONG, report.reason, None, compiled, report)
        try:
            samples, pruned = self._samples(launchable)
        except Exception as error:  # as above: the caller's hooks and benchmark run here too
            return self._failed(config, error, compiled)
        if not samples:
            reason = "its time is not a positive number"
            return TrialRecord(config, self._queue.variant, Outcome.CRASHED, reason, None, compiled, report)
        measurement = measurement_of("screen", self._timing.protocol, samples, self._state())
        value, why = measurement.median_us, ""
        if pruned:
            why = f"{value / self._best_us:.1f} times slower than the best; cut short"
        return TrialRecord(
            config, self._queue.variant, Outcome.PRUNED if pruned else Outcome.TIMED, why,
            None if pruned else value, compiled, report, (measurement,),
        )  # fmt: skip

    def _failed(self, config: Config, error: Exception, compiled: CompileReport | None) -> TrialRecord:
        # Not the traceback: its frames would keep the tensors of a failed launch alive.
        raised = Raised(type(error).__name__, str(error), usable=True)
        doing = "compile" if _is_from_compiler(error) else "run"
        outcome, reason = outcome_of(raised, doing)
        error.__traceback__ = None
        if self._card is not None:
            try:
                self._card.synchronize()
            except RuntimeError as poisoned:
                said = str(poisoned).strip().splitlines()[0]
                raise StudyFailedError(
                    f"{self._label}: {config.label} broke this process's GPU context ({said}); "
                    "start the program again without that config"
                ) from None
        return TrialRecord(config, self._queue.variant, outcome, reason, None, compiled)

    @property
    def _best_us(self) -> float:
        return min((c.us for c in self._contenders), default=math.inf)

    def _samples(self, launchable: Any) -> tuple[list[float], bool]:
        """Samples, and whether they were cut short; none where the caller's own function gave no time."""
        if self._timing.do_bench is not None:
            times = self._bench.by_caller(launchable, self._timing.do_bench)
            return ([] if not all(0.0 < us < math.inf for us in times) else times[:1]), False
        give_up = CUT_SHORT_FACTOR * self._best_us
        samples = self._bench.samples(launchable, SCREEN_SAMPLES, give_up, self._timing.warmup_ms, self._timing.rep_ms)
        if not all(0.0 < us < math.inf for us in samples):
            return [], False
        return samples, len(samples) < SCREEN_SAMPLES

    def _choose(self) -> tuple[Contender, WinnerRecord]:
        """Interleaved rounds among those that are close, and of a tie the simplest."""
        ordered = sorted(self._contenders, key=lambda c: (c.us, c.order))
        close = [c for c in ordered if c.us <= RACE_WINDOW * ordered[0].us][:MOST_FINALISTS]
        # One that was known has not run in this process yet, and may fail in it.
        racers = [c for c in close if self._timing.do_bench is not None or self._is_ready(c)]
        if len(racers) < 2 or self._timing.do_bench is not None:
            chosen = (racers or ordered)[0]
            return chosen, self._winner(
                chosen, None, chosen.us, chosen.us, chosen.us, f"{chosen.config.label} is ahead"
            )
        rounds = self._race(racers)
        alive = {key: samples for key, samples in rounds.items() if len(samples) == max(map(len, rounds.values()))}
        decision = decide(alive, labels={c.config.key: c.config.label for c in racers})
        chosen = min((c for c in racers if c.config.key in decision.ties), key=lambda c: c.weight)
        finals = {
            key: measurement_of("final", self._timing.protocol, list(samples.values()), self._state())
            for key, samples in rounds.items()
        }
        self._ledger.record_final(finals)
        final = finals[chosen.config.key]
        record = self._winner(chosen, decision, final.median_us, final.low_us, final.high_us, decision.verdict)
        return chosen, record

    def _is_ready(self, contender: Contender) -> bool:
        try:
            self._bench.get_ready(contender.launchable)
        except Exception as error:  # whatever its launch raises
            self._failed(contender.config, error, contender.compiled)
            return False
        return True

    def _race(self, racers: list[Contender]) -> dict[str, dict[int, float]]:
        """By config key, the sample of each round; who is slower drops out."""
        rounds: dict[str, dict[int, float]] = {c.config.key: {} for c in racers}
        alive, number = list(racers), 0
        for chunk in RACE_CHUNKS:
            for _ in range(max(chunk, _FEWEST_BLOCKS)):
                # Turned by one each round, so that none always follows the same other.
                turn = number % len(alive)
                for contender in (*alive[turn:], *alive[:turn]):
                    rounds[contender.config.key][number] = self._bench.sample(contender.launchable)
                number += 1
            race = race_survivors({c.config.key: rounds[c.config.key] for c in alive})
            alive = [c for c in alive if c.config.key in race.survivors]
            if race.settled or len(alive) < 2:
                break
        return rounds

    def _winner(
        self, chosen: Contender, decision: Decision | None, median: float, low: float, high: float, verdict: str
    ) -> WinnerRecord:
        plain = next((c for c in self._contenders if self._plain and c.config.key == self._plain.key), None)
        ties = decision.ties if decision is not None else (chosen.config.key,)
        checked = "; not checked: no reference was given"
        if self._referee is not None:
            checked = f"; checked on the call's own inputs alone: {self._referee.alone}" if self._referee.alone else ""
        return WinnerRecord(
            trial_id=0,
            kind=TIE if len(ties) > 1 else WINNER,
            verdict=f"{verdict}{checked}",
            median_us=median,
            low_us=low,
            high_us=high,
            estimated=False,
            tie_set=tuple(ties),
            plain_key=plain.config.key if plain else "",
            plain_us=plain.us if plain else None,
            speedup=plain.us / median if plain else None,
            finalists=tuple(
                {"key": c.config.key, "label": c.config.label, "median_us": c.us} for c in self._contenders
                if c.config.key in ties
            ),
        )  # fmt: skip

    def _state(self) -> tuple[DeviceState, ...]:
        return () if self._card is None else (self._card.state(),)

    def _why_none(self) -> str:
        groups: dict[Outcome, list[TrialRecord]] = {}
        for record in self._failures:
            groups.setdefault(record.outcome, []).append(record)
        said = "; ".join(
            f"{len(records)} {outcome}, such as {records[0].config.label}: {records[0].reason}"
            for outcome, records in groups.items()
        )
        hint = ""
        if any(record.reason.startswith(f"{MADE} ") for record in self._failures):
            hint = "; where the kernel is right on inputs as it gets them, and on no others, say made_inputs=False"
        return f"{self._label}: none of {len(self._failures)} configs works: {said or 'there is none'}{hint}"


def _is_from_compiler(error: BaseException) -> bool:
    module = type(error).__module__
    return module.startswith("triton.compiler") or type(error).__name__ in ("CompilationError", "PTXASError")
