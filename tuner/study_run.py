"""One run of a study: ask, send down the funnel, store, tell; then decide. The only loop there is, in steps."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace

from tuner.budget import Budget
from tuner.errors import StudyFailedError
from tuner.evaluating import RoundsJob
from tuner.events import Progress, Stage, StudyFinished, TrialFinished
from tuner.finals import ROUNDS_LIMIT_S, Rounds, choose_racers
from tuner.funnel import Funnel, Ticket
from tuner.gpu_funnel import GpuFunnel
from tuner.search import Proposer
from tuner.sharing import SharedQueue
from tuner.steps import Pause, Steps, finish, reply_in_steps
from tuner.store.records import FINISHED, INTERRUPTED, StoredTrial, WinnerRecord
from tuner.study_end import StudyEnd, StudyPlace
from tuner.study_results import Result, Results
from tuner.trial import Outcome, TrialRecord
from tuner.worker.messages import Done

TICK_S = 0.2
HEARTBEAT_S = 10.0
# How long configs are asked for and rendered before it looks after the workers again, which wait meanwhile.
ASK_S = 0.1
_IDLE_RACERS, _IDLE_ROUNDS = 8, 2


class StudyRun:
    """Everything that one run of a study needs. Call ``run`` once, or drive ``steps`` once."""

    def __init__(
        self,
        place: StudyPlace,
        proposer: Proposer,
        funnel: Funnel,
        budget: Budget,
        known: Mapping[str, StoredTrial],
    ) -> None:
        self.place, self.proposer, self.funnel, self.budget = place, proposer, funnel, budget
        self.results = Results(config.key for config in place.bound.plain())
        self.stage = Stage.SEARCH
        self._queue = SharedQueue(place.store, place.study, place.office, proposer, budget.trials)
        self._has_waited = self._search_is_over = False
        self._end_s: float | None = None
        self._spent_s = 0.0
        self._turn_began: float | None = None if math.isinf(budget.started) else budget.started
        self._raced = Rounds()
        self._last_progress = self._last_heartbeat = 0.0
        for key, trial in known.items():
            place.store.reuse_trial(place.study.id, trial.id)
            self._remember(key, Result(trial.id, trial.config, trial.outcome, trial.value_us, trial))

    def run(self) -> bool:
        """Search, decide, store the winner. Returns True where Ctrl-C ended it first.

        Raises ``StudyFailedError`` where no config survived.
        """
        return finish(self.steps())

    def steps(self) -> Steps[bool]:
        """``run`` in steps."""
        state, interrupted = INTERRUPTED, False
        try:
            yield from self._search()
            self._queue.give_back(())
            self._take_over(at_once=True)
            yield from self._decide()
            state = FINISHED
        except KeyboardInterrupt:
            interrupted = True
        except StudyFailedError:
            state = FINISHED
            raise
        finally:
            self._queue.give_back(self.funnel.abandon())
            self.place.store.finish_study(self.place.study.id, state, self.elapsed_s, self.funnel.gpu_busy_seconds)
        return interrupted

    def begin_turn(self, now: float) -> None:
        """Its time runs from ``now`` (``time.monotonic()``) on, for a budget that begins with infinity: the first time
        its deadlines count from here."""
        if math.isinf(self.budget.started):
            self.budget = replace(self.budget, started=now)
        self._turn_began = now

    def end_turn(self, now: float) -> None:
        """Its time stands still."""
        self._spent_s, self._turn_began = self.elapsed_s, None

    def end_search(self, end_s: float) -> None:
        """Let the search end at its next step, once there is something to decide; the race then has ``end_s`` seconds,
        from when it begins."""
        self._search_is_over, self._end_s = True, end_s

    @property
    def elapsed_s(self) -> float:
        """Seconds for which its time has run."""
        turn = 0.0 if self._turn_began is None else time.monotonic() - self._turn_began
        return self._spent_s + turn

    @property
    def search_seconds_left(self) -> float:
        """Seconds of its time budget that are left for the search; infinite without one."""
        return self.budget.search_deadline - time.monotonic()

    @property
    def has_something_to_decide(self) -> bool:
        """Whether the search may end: a budget too short for one trial still gives the plain configs theirs."""
        return self.results.best is not None or self.results.plain_have_ended

    def _search(self) -> Steps[None]:
        while True:
            over = self._time_is_up() and self.has_something_to_decide
            if not over:
                self._take_over()
            there_is_more = not over and self._ask()
            if over:
                self._queue.give_back(self.funnel.abandon())
            if self.funnel.in_flight == 0:
                if over or self._queue.exhausted or not self._may_ask():
                    return
                yield from self._wait_for_others()
                continue
            finished = self.funnel.poll(0.0)
            for ticket, record in finished:
                self._store(ticket, record)
            if not there_is_more:
                yield from self._use_idle_gpu()
            self._report()
            yield Pause((), 0.0) if finished or there_is_more else self._pause()

    def _ask(self) -> bool:
        """Send configs down the funnel. Returns whether it has room for more."""
        until = time.monotonic() + ASK_S
        while self._may_ask() and self.funnel.capacity() > 0:
            if time.monotonic() >= until:
                return True
            if (ticket := self._queue.next()) is None:
                break
            self.funnel.submit(ticket)
        return False

    def _time_is_up(self) -> bool:
        # Estimates are decided at once; only measuring needs time at the end.
        deadline = self.budget.search_deadline if self.place.machine.measures else self.budget.deadline
        return self._search_is_over or time.monotonic() >= deadline

    def _pause(self) -> Pause:
        busy = self.funnel.busy_workers()
        return Pause(busy, TICK_S) if busy else Pause()

    def _may_ask(self) -> bool:
        return self.budget.trials is None or len(self.results) + self.funnel.in_flight < self.budget.trials

    def _take_over(self, at_once: bool = False) -> None:
        """What other processes have found counts as if it were found here; what dead ones held is done here."""
        found, tickets = self._queue.look(at_once)
        for trial in found:
            self._remember(trial.config.key, Result(trial.id, trial.config, trial.outcome, trial.value_us, trial))
        for ticket in tickets:
            self.funnel.submit(ticket)

    def _wait_for_others(self) -> Steps[None]:
        if self._queue.aside and not self._has_waited:
            self._has_waited = True
            self.place.notice(f"other processes work on the last {self._queue.aside} configs; waiting for them")
        yield Pause((), TICK_S)
        self._report()

    def _store(self, ticket: Ticket, record: TrialRecord) -> None:
        """Store first, tell the sampler second: what is stored is never asked for again."""
        trial_id = self.place.store.record_trial(self.place.study.id, record, ticket.variant)
        self._queue.close(ticket, record)
        before = self.results.best
        result = Result(trial_id, record.config, record.outcome, record.value_us, record)
        self._remember(record.config.key, result)
        best = self.results.best
        improved = best is result and best is not before
        self.place.listener(
            TrialFinished(
                number=len(self.results),
                config=record.config,
                outcome=record.outcome,
                reason=record.reason,
                value_us=record.value_us,
                improved=improved,
                best_label=best.config.label if best else "",
                best_us=best.value_us if best else None,
            )
        )

    def _remember(self, key: str, result: Result) -> None:
        self.results.by_key[key] = result
        record = result.record
        if result.outcome is Outcome.TIMED and result.value_us is not None:
            self.funnel.best_us = min(self.funnel.best_us, result.value_us)
            if record.compile_report is not None and isinstance(record, StoredTrial):
                self.funnel.know(result.program, record.as_record())

    def _use_idle_gpu(self) -> Steps[None]:
        """While the GPU waits for compilers, run rounds of the race that the study will end with."""
        if not isinstance(self.funnel, GpuFunnel) or not self.funnel.idle:
            return
        racers = choose_racers(self.results.contenders(self.place.office)) if self.results.best else []
        if len(racers) < 2:
            return
        job = RoundsJob(
            self.place.bound.problem,
            self.place.bound.device,
            tuple(c.candidate for c in racers[:_IDLE_RACERS]),
            self._raced.next_round(),
            _IDLE_ROUNDS,
            self.place.seed,
        )
        reply = yield from reply_in_steps(self.funnel.lanes[0].worker, job, ROUNDS_LIMIT_S)
        if isinstance(reply, Done):
            self._raced.add(reply.value)

    def _report(self, force: bool = False) -> None:
        now = time.monotonic()
        busy = self.funnel.gpu_busy_seconds
        if now - self._last_heartbeat >= HEARTBEAT_S:
            self._last_heartbeat = now
            self.place.store.heartbeat(self.place.study.id, self.elapsed_s, busy)
        if not force and now - self._last_progress < TICK_S:
            return
        self._last_progress = now
        best, elapsed = self.results.best, self.elapsed_s
        measures = self.place.machine.measures
        self.place.listener(
            Progress(
                elapsed_s=elapsed,
                finished=len(self.results),
                outcomes=self.results.counts,
                best_label=best.config.label if best else "",
                best_us=best.value_us if best else None,
                max_trials=self.budget.trials,
                max_seconds=self.budget.seconds,
                in_flight=self.funnel.in_flight,
                compile_queue=self.funnel.compile_queue,
                gpu_busy_share=min(1.0, busy / elapsed if elapsed else 0.0) if measures else None,
                stage=self.stage,
                estimated=not measures,
            )
        )

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        self._report(force=stage is Stage.RACE)

    def _decide(self) -> Steps[None]:
        name = self.place.study.name
        if self.results.best is None:
            counts = self.results.counts
            what = ", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()) or "none was tried in the budget"
            raise StudyFailedError(f"{name}: no config survived ({what}); `tuner show {name}` lists the reasons")
        end = StudyEnd(self.place, self.results, self._enter)
        if isinstance(self.funnel, GpuFunnel):
            self.stage = Stage.RACE
            while not self._has_its_gpu(self.funnel):
                self.funnel.poll(0.0)
                yield self._pause()
            deadline = self.budget.deadline if self._end_s is None else time.monotonic() + self._end_s
            winner = yield from end.measured(self.funnel, self._raced, deadline)
        else:
            winner = end.estimated()
        self._announce(winner)

    @staticmethod
    def _has_its_gpu(funnel: GpuFunnel) -> bool:
        """Whether nobody else wants its first GPU, or is at work there: its turn may be over, and it gets one for the
        end."""
        return bool(funnel.lanes) and funnel.lanes[0].free and not funnel.lanes[0].ending

    def _announce(self, winner: WinnerRecord) -> None:
        self.place.store.record_winner(self.place.study.id, winner)
        config = next(r.config for r in self.results.by_key.values() if r.trial_id == winner.trial_id)
        self.place.listener(
            StudyFinished(
                study=self.place.study.name,
                verdict=winner.verdict,
                winner_label=config.label,
                median_us=winner.median_us,
                low_us=winner.low_us,
                high_us=winner.high_us,
                speedup=winner.speedup,
                estimated=winner.estimated,
            )
        )
