"""One run of a study: ask, send down the funnel, store, tell; then decide. The only loop there is."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.budget import Budget
from tuner.config import Config
from tuner.errors import StudyFailedError
from tuner.evaluating import RoundsJob
from tuner.events import (
    FinalistsChosen,
    Listener,
    Notice,
    Progress,
    Stage,
    StudyFinished,
    TrialFinished,
)
from tuner.finals import FINAL_PROCESSES, ROUNDS_LIMIT_S, Contender, Finals, Rounds, choose_racers
from tuner.finals import Outcome as FinalOutcome
from tuner.funnel import Funnel, GpuFunnel, Ticket
from tuner.machine import Machine
from tuner.operators import get
from tuner.program import Program
from tuner.search import Proposer
from tuner.sharing import SharedQueue
from tuner.space import BoundSpace
from tuner.store.records import FINISHED, INTERRUPTED, TIE, WINNER, StoredTrial, StudyRecord, WinnerRecord
from tuner.store.store import Store
from tuner.tickets import TicketOffice
from tuner.trial import Measurement, Outcome, TrialRecord
from tuner.worker.messages import Done

TICK_S = 0.2
HEARTBEAT_S = 10.0
_IDLE_RACERS, _IDLE_ROUNDS = 8, 2
_BESIDE_SHARE = 0.05
# Estimates closer than this are called ties: a static model tells no smaller difference.
ESTIMATE_INDIFFERENCE = 0.01


@dataclass(frozen=True)
class _Result:
    """What became of a config, in this run or before it."""

    trial_id: int
    config: Config
    outcome: Outcome
    value_us: float | None
    record: TrialRecord | StoredTrial

    @property
    def program(self) -> Program:
        """What it compiles to and is checked for; its own where that is not known."""
        return Program.of(self.record) or Program(self.config.key, "")


class StudyRun:
    """Everything that one run of a study needs. Call ``run`` once; it returns whether it was interrupted."""

    def __init__(
        self,
        store: Store,
        study: StudyRecord,
        bound: BoundSpace,
        office: TicketOffice,
        proposer: Proposer,
        funnel: Funnel,
        machine: Machine,
        budget: Budget,
        seed: int,
        known: Mapping[str, StoredTrial],
        listener: Listener,
    ) -> None:
        self.store, self.study, self.bound, self.office = store, study, bound, office
        self.funnel, self.machine = funnel, machine
        self.budget, self.seed, self.listener = budget, seed, listener
        self._plain = {config.key for config in bound.plain()}
        self._results: dict[str, _Result] = {}
        self._queue = SharedQueue(store, study, office, proposer, budget.trials)
        self._has_waited = False
        self._raced = Rounds()
        self._stage = Stage.SEARCH
        self._last_progress = self._last_heartbeat = 0.0
        for key, trial in known.items():
            self.store.reuse_trial(study.id, trial.id)
            self._remember(key, _Result(trial.id, trial.config, trial.outcome, trial.value_us, trial))

    def run(self) -> bool:
        """Search, decide, store the winner. Returns True where Ctrl-C ended it first.

        Raises ``StudyFailedError`` where no config survived.
        """
        state, interrupted = INTERRUPTED, False
        try:
            self._search()
            self._queue.give_back(())
            self._take_over(at_once=True)
            self._decide()
            state = FINISHED
        except KeyboardInterrupt:
            interrupted = True
        except StudyFailedError:
            state = FINISHED
            raise
        finally:
            self._queue.give_back(self.funnel.abandon())
            elapsed = time.monotonic() - self.budget.started
            self.store.finish_study(self.study.id, state, elapsed, self.funnel.gpu_busy_seconds)
        return interrupted

    def _search(self) -> None:
        # Estimates are decided at once; only measuring needs time at the end.
        deadline = self.budget.search_deadline if self.machine.measures else self.budget.deadline
        while True:
            over = time.monotonic() >= deadline and self._has_something_to_decide()
            if not over:
                self._take_over()
            while not over and self._may_ask() and self.funnel.capacity() > 0 and (ticket := self._queue.next()):
                self.funnel.submit(ticket)
            if over:
                self._queue.give_back(self.funnel.abandon())
            if self.funnel.in_flight == 0:
                if over or self._queue.exhausted or not self._may_ask():
                    return
                self._wait_for_others()
                continue
            for ticket, record in self.funnel.poll(TICK_S):
                self._store(ticket, record)
            self._use_idle_gpu()
            self._report()

    def _has_something_to_decide(self) -> bool:
        """Whether the search may end: a budget too short for one trial still gives the plain configs theirs."""
        return self._best() is not None or self._plain <= self._results.keys()

    def _may_ask(self) -> bool:
        return self.budget.trials is None or len(self._results) + self.funnel.in_flight < self.budget.trials

    def _take_over(self, at_once: bool = False) -> None:
        """What other processes have found counts as if it were found here; what dead ones held is done here."""
        found, tickets = self._queue.look(at_once)
        for trial in found:
            self._remember(trial.config.key, _Result(trial.id, trial.config, trial.outcome, trial.value_us, trial))
        for ticket in tickets:
            self.funnel.submit(ticket)

    def _wait_for_others(self) -> None:
        if self._queue.aside and not self._has_waited:
            self._has_waited = True
            self._notice(f"other processes work on the last {self._queue.aside} configs; waiting for them")
        time.sleep(TICK_S)
        self._report()

    def _store(self, ticket: Ticket, record: TrialRecord) -> None:
        """Store first, tell the sampler second: what is stored is never asked for again."""
        trial_id = self.store.record_trial(self.study.id, record, ticket.variant)
        self._queue.close(ticket, record)
        before = self._best()
        result = _Result(trial_id, record.config, record.outcome, record.value_us, record)
        self._remember(record.config.key, result)
        best = self._best()
        improved = best is result and best is not before
        self.listener(
            TrialFinished(
                number=len(self._results),
                config=record.config,
                outcome=record.outcome,
                reason=record.reason,
                value_us=record.value_us,
                improved=improved,
                best_label=best.config.label if best else "",
                best_us=best.value_us if best else None,
            )
        )

    def _remember(self, key: str, result: _Result) -> None:
        self._results[key] = result
        record = result.record
        if result.outcome is Outcome.TIMED and result.value_us is not None:
            self.funnel.best_us = min(self.funnel.best_us, result.value_us)
            if record.compile_report is not None and isinstance(record, StoredTrial):
                self.funnel.know(result.program, record.as_record())

    def _best(self) -> _Result | None:
        timed = [r for r in self._results.values() if r.outcome is Outcome.TIMED and r.value_us is not None]
        return min(timed, key=lambda r: r.value_us or math.inf, default=None)

    def _use_idle_gpu(self) -> None:
        """While the GPU waits for compilers, run rounds of the race that the study will end with."""
        if not isinstance(self.funnel, GpuFunnel) or not self.funnel.idle or self.funnel.gpu.busy:
            return
        racers = choose_racers(self._contenders()) if self._best() else []
        if len(racers) < 2:
            return
        job = RoundsJob(
            self.bound.problem,
            self.bound.device,
            tuple(c.candidate for c in racers[:_IDLE_RACERS]),
            self._raced.next_round(),
            _IDLE_ROUNDS,
            self.seed,
        )
        reply = self.funnel.gpu.run(job, ROUNDS_LIMIT_S)
        if isinstance(reply, Done):
            self._raced.add(reply.value)

    def _report(self, force: bool = False) -> None:
        now = time.monotonic()
        if now - self._last_heartbeat >= HEARTBEAT_S:
            self._last_heartbeat = now
            self.store.heartbeat(self.study.id, now - self.budget.started, self.funnel.gpu_busy_seconds)
        if not force and now - self._last_progress < TICK_S:
            return
        self._last_progress = now
        elapsed = now - self.budget.started
        best = self._best()
        busy = min(1.0, self.funnel.gpu_busy_seconds / elapsed) if self.machine.measures else None
        self.listener(
            Progress(
                elapsed_s=elapsed,
                finished=len(self._results),
                outcomes=Counter(r.outcome for r in self._results.values()),
                best_label=best.config.label if best else "",
                best_us=best.value_us if best else None,
                max_trials=self.budget.trials,
                max_seconds=self.budget.seconds,
                in_flight=self.funnel.in_flight,
                compile_queue=self.funnel.compile_queue,
                gpu_busy_share=busy,
                stage=self._stage,
                estimated=not self.machine.measures,
            )
        )

    def _decide(self) -> None:
        if self._best() is None:
            counts = Counter(r.outcome for r in self._results.values())
            what = ", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()) or "none was tried in the budget"
            raise StudyFailedError(
                f"{self.study.name}: no config survived ({what}); `tuner show {self.study.name}` lists the reasons"
            )
        winner = self._measured_winner() if isinstance(self.funnel, GpuFunnel) else self._estimated_winner()
        self.store.record_winner(self.study.id, winner)
        config = next(r.config for r in self._results.values() if r.trial_id == winner.trial_id)
        self.listener(
            StudyFinished(
                study=self.study.name,
                verdict=winner.verdict,
                winner_label=config.label,
                median_us=winner.median_us,
                low_us=winner.low_us,
                high_us=winner.high_us,
                speedup=winner.speedup,
                estimated=winner.estimated,
            )
        )

    def _contenders(self) -> list[Contender]:
        """One config for each program that was timed: the plain one where it is among them."""
        by_program: dict[Program, list[_Result]] = {}
        for result in self._results.values():
            if result.outcome is Outcome.TIMED:
                by_program.setdefault(result.program, []).append(result)
        chosen = [
            min(same, key=lambda r: (r.config.key not in self._plain, bool(r.record.same_as)))
            for same in by_program.values()
        ]
        return [
            Contender(
                config=r.config,
                candidate=self.office.candidate(r.config),
                screen_us=r.value_us,
                compiled=r.record.compile_report,
                is_plain=r.config.key in self._plain,
            )
            for r in chosen
            if r.value_us is not None
        ]

    def _measured_winner(self) -> WinnerRecord:
        assert isinstance(self.funnel, GpuFunnel)
        funnel, finals = self.funnel, Finals(self.bound.problem, self.bound.device, self.seed, self._notice)
        excluded: set[str] = set()
        while True:
            contenders = [c for c in self._contenders() if c.key not in excluded]
            if not contenders:
                raise StudyFailedError(
                    f"{self.study.name}: no finalist could be measured again (each failed the check, or its process "
                    f"ended); `tuner show {self.study.name}` lists the reasons"
                )
            self._stage = Stage.RACE
            self._report(force=True)
            workers = [self.machine.fresh_worker(f"finals-{i}") for i in range(FINAL_PROCESSES)]
            racers = choose_racers(contenders)
            if self._fits_beside():
                finals.set_up(workers, racers[0])
            finalists = finals.race(funnel.gpu, racers, self._raced, self.budget.deadline)
            plain = [c for c in contenders if c.is_plain]
            anchor = min(plain or finalists, key=lambda c: c.screen_us)
            self._stage = Stage.FINALS
            self.listener(FinalistsChosen(tuple(c.config.label for c in finalists)))
            # The search's process gives up the card: what it keeps there must not differ from one finalist to another.
            busy = funnel.gpu.busy_seconds
            funnel.gpu.kill()
            outcome, wrong = finals.finals(workers, finalists, anchor)
            funnel.gpu.busy_seconds = busy + sum(w.busy_seconds for w in workers)
            self._store_wrong(wrong)
            if outcome is not None:
                for key, measurement in outcome.measurements.items():
                    self.store.record_measurements(self._results[key].trial_id, [measurement])
                return self._winner_record(outcome, anchor)
            excluded.update(c.key for c in (*finalists, anchor))

    def _fits_beside(self) -> bool:
        """Whether the tensors of several processes fit into the card's memory at once."""
        needed = get(self.bound.problem.operator).bytes_moved(self.bound.problem)
        return needed < _BESIDE_SHARE * self.bound.device.memory_bytes

    def _store_wrong(self, wrong: Mapping[str, str]) -> None:
        """A finalist that failed the check on new inputs is wrong, whatever it was before, and so are its twins."""
        for key, reason in wrong.items():
            program = self._results[key].program
            for result in [r for r in self._results.values() if r.program == program and r.outcome is Outcome.TIMED]:
                record = TrialRecord(
                    config=result.config,
                    variant_hash=result.record.variant_hash,
                    outcome=Outcome.WRONG,
                    reason=f"in the final re-measurement: {reason}",
                    compile_report=result.record.compile_report,
                    check_report=result.record.check_report,
                    same_as="" if result.config.key == key else key,
                    seed=self.seed,
                )
                self.store.record_trial(self.study.id, record, self.office.variant(result.config))
                wrong_now = _Result(result.trial_id, result.config, Outcome.WRONG, None, record)
                self._results[result.config.key] = wrong_now

    def _winner_record(self, outcome: FinalOutcome, anchor: Contender) -> WinnerRecord:
        winner = outcome.measurements[outcome.winner.key]
        plain = outcome.measurements.get(anchor.key)
        ratios = outcome.decision.ratios
        others = sorted((r for key, r in ratios.items() if key != outcome.decision.winner), key=lambda r: r.ratio)
        return WinnerRecord(
            trial_id=self._results[outcome.winner.key].trial_id,
            kind=outcome.kind,
            verdict=outcome.verdict,
            median_us=winner.median_us,
            low_us=winner.low_us,
            high_us=winner.high_us,
            estimated=False,
            margin=others[0].ratio - 1.0 if others else None,
            interval=(others[0].low - 1.0, others[0].high - 1.0) if others else None,
            tie_set=tuple(outcome.decision.ties),
            plain_key=anchor.key if plain and anchor.is_plain else "",
            plain_us=plain.median_us if plain and anchor.is_plain else None,
            speedup=plain.median_us / winner.median_us if plain and anchor.is_plain else None,
            finalists=tuple(_finalist(key, m, self._results[key].config) for key, m in outcome.measurements.items()),
        )

    def _estimated_winner(self) -> WinnerRecord:
        contenders = sorted(self._contenders(), key=lambda c: (c.screen_us, c.weight))
        best_us = contenders[0].screen_us
        tied = [c for c in contenders if c.screen_us <= (1.0 + ESTIMATE_INDIFFERENCE) * best_us]
        winner = min(tied, key=lambda c: c.weight)
        plain = min((c for c in contenders if c.is_plain), key=lambda c: c.screen_us, default=None)
        verdict = f"estimated, not measured: {winner.config.label}"
        if len(tied) > 1:
            verdict += f" is the simplest of {len(tied)} whose estimates are within 1 %"
        return WinnerRecord(
            trial_id=self._results[winner.key].trial_id,
            kind=WINNER if len(tied) == 1 else TIE,
            verdict=verdict,
            median_us=winner.screen_us,
            low_us=winner.screen_us,
            high_us=winner.screen_us,
            estimated=True,
            tie_set=tuple(c.key for c in tied),
            plain_key=plain.key if plain else "",
            plain_us=plain.screen_us if plain else None,
            speedup=plain.screen_us / winner.screen_us if plain else None,
        )

    def _notice(self, text: str) -> None:
        self.listener(Notice(text))


def _finalist(key: str, measurement: Measurement, config: Config) -> dict[str, object]:
    return {
        "key": key,
        "label": config.label,
        "median_us": measurement.median_us,
        "low_us": measurement.low_us,
        "high_us": measurement.high_us,
    }
