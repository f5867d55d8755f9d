"""Several studies at once on one machine: the ones in front have the GPUs, the next one compiles ahead.

One loop drives the steps of all that are open. A study is in front while it searches on a GPU or decides there (without
a GPU: while its jobs go first). Where each problem has a budget of its own, studies come to the front in order; where
all share a budget of time, they take turns by ``tuner.time_sharing``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tuner.budget import Budget
from tuner.errors import StudyFailedError
from tuner.events import Event, Notice, OverallProgress, Stage
from tuner.gpu_funnel import GpuFunnel
from tuner.gpu_lane import Lane
from tuner.problem import Problem
from tuner.results import TuneResult
from tuner.steps import Pause, Steps, rest
from tuner.study_opening import OpenStudy
from tuner.study_run import StudyRun
from tuner.time_sharing import Standing, next_turn, turn_seconds
from tuner.worker.shared_pool import Share, SharedPool

_TELL_S = 1.0
_AHEAD = 1
"""Studies that are open beside those in front."""
_LEAST_LEFT_S = 10.0
"""A search that ends sooner is not held up for the next problem's set-up."""

Told = Callable[[Problem, Event], None]
Outcome = TuneResult | StudyFailedError


@dataclass
class Wanted:
    """A problem to be tuned. ``open(shares)`` starts its study, given its shares of the pools; ``calls``: counted."""

    problem: Problem
    open: Callable[[Sequence[Share]], OpenStudy]
    calls: int | None = None


@dataclass
class _Study:
    wanted: Wanted
    shares: list[Share] = field(default_factory=list)
    opened: OpenStudy | None = None
    steps: Steps[bool] | None = None
    outcome: Outcome | None = None
    in_front: bool = False
    turn_ends: float = math.inf
    turn_results: int = 0
    results: int = 0
    is_set_up: bool = False

    @property
    def is_open(self) -> bool:
        return self.opened is not None and self.outcome is None

    @property
    def run(self) -> StudyRun:
        assert self.opened is not None
        return self.opened.run

    @property
    def lanes(self) -> list[Lane]:
        funnel = self.run.funnel
        return funnel.lanes if isinstance(funnel, GpuFunnel) else []

    @property
    def set_up_s(self) -> float:
        funnel = self.run.funnel
        return funnel.set_up_s if isinstance(funnel, GpuFunnel) else 0.0

    @property
    def decides(self) -> bool:
        return self.is_open and self.run.stage is not Stage.SEARCH

    def standing(self) -> Standing:
        if self.opened is None:
            return Standing(None, 0.0, 0, None, self.wanted.calls, has_floor=False)
        run, best = self.run, self.run.results.best
        gained = self.results + (len(run.results) - self.turn_results if self.in_front else 0)
        return Standing(
            gain=self.opened.proposer.expected_gain(),
            seconds=run.elapsed_s,
            results=gained,
            best_us=best.value_us if best else None,
            calls=self.wanted.calls,
            has_floor=run.results.plain_have_ended,
        )


class ManyStudies:
    """Drives the studies of ``wanted`` with the GPUs ``lanes`` (none: estimates) and the shared ``pools``.

    ``total_s``: seconds from ``started`` on for all of them together (None: each has a budget of its own). ``told`` is
    given each event with its problem; events of ``tuner.events.OverallProgress`` come with the problem in front.
    """

    def __init__(
        self,
        wanted: Sequence[Wanted],
        lanes: Sequence[Lane],
        pools: Sequence[SharedPool],
        told: Told,
        started: float,
        total_s: float | None = None,
    ) -> None:
        self._studies = [_Study(each) for each in wanted]
        self._lanes, self._pools, self._told = lanes, pools, told
        self._started, self._total_s = started, total_s
        self._most_in_front = max(1, len(lanes))
        self._last_told = 0.0

    def run(self) -> list[Outcome | None]:
        """What became of each, in order; None where Ctrl-C came before it was begun. The others then say so."""
        try:
            while any(study.outcome is None for study in self._studies):
                self._advance()
        except KeyboardInterrupt:
            self._interrupt()
        finally:
            for study in self._studies:
                if study.is_open and study.steps is not None:
                    study.steps.close()
                    self._close(study)
        self._tell(force=True)
        self._say_what_was_saved()
        return [study.outcome for study in self._studies]

    def _advance(self) -> None:
        self._end_searches_in_time()
        self._choose_those_in_front()
        self._open_ahead()
        self._hand_out_lanes()
        self._set_up_ahead()
        pauses = [pause for study in self._studies if study.is_open and (pause := self._step(study)) is not None]
        self._tell()
        if pauses:
            rest(pauses)

    def _step(self, study: _Study, stop: KeyboardInterrupt | None = None) -> Pause | None:
        """One step; None where it was the last one. With ``stop`` Ctrl-C is raised in it."""
        assert study.opened is not None and study.steps is not None
        try:
            return next(study.steps) if stop is None else study.steps.throw(stop)
        except StopIteration as end:
            study.outcome = study.opened.result(interrupted=end.value)
        except StudyFailedError as error:
            study.outcome = error
        except KeyboardInterrupt:
            if stop is None:
                raise
            study.outcome = study.opened.result(interrupted=True)  # it came just when this one had ended
        self._close(study)
        if isinstance(study.outcome, TuneResult) and study.outcome.interrupted and stop is None:
            raise KeyboardInterrupt  # it came while this one was at work, and is meant for all
        return None

    def _close(self, study: _Study) -> None:
        assert study.opened is not None
        for lane in list(study.lanes):
            study.run.funnel.leave(lane)  # type: ignore[attr-defined]
        for share in study.shares:
            share.close()
        study.opened.close()
        study.in_front = False

    def _interrupt(self) -> None:
        for study in self._studies:
            while study.is_open and self._step(study, KeyboardInterrupt()) is not None:
                pass

    # Who is in front

    def _choose_those_in_front(self) -> None:
        now = time.monotonic()
        for study in self._studies:
            if study.in_front and not study.decides and now >= study.turn_ends:
                self._end_turn(study)
        while sum(study.in_front for study in self._studies) < self._most_in_front:
            waiting = [s for s in self._studies if s.outcome is None and not s.in_front]
            if not waiting:
                break
            self._begin_turn(self._next_of(waiting))
        ranked = sorted((s for s in self._studies if s.is_open), key=lambda s: not s.in_front)
        for at, pool in enumerate(self._pools):
            pool.rank([study.shares[at] for study in ranked])

    def _next_of(self, waiting: Sequence[_Study]) -> _Study:
        deciding = [study for study in waiting if study.decides]
        if deciding:
            return deciding[0]
        return waiting[0] if self._total_s is None else waiting[next_turn([study.standing() for study in waiting])]

    def _begin_turn(self, study: _Study) -> None:
        if study.opened is None:
            self._open(study)
        if study.outcome is not None:
            return
        now = time.monotonic()
        study.in_front = study.is_set_up = True
        study.turn_results = len(study.run.results)
        if self._total_s is not None:
            study.turn_ends = now + turn_seconds(self._total_s, len(self._studies), study.set_up_s)
        study.run.begin_turn(now)

    def _end_turn(self, study: _Study) -> None:
        study.run.end_turn(time.monotonic())
        study.results += len(study.run.results) - study.turn_results
        study.in_front = False

    def _open_ahead(self) -> None:
        """The next one compiles while those in front are at the GPU, once they have begun to have results."""
        front = [study for study in self._studies if study.in_front]
        if any(len(study.run.results) == 0 for study in front):
            return
        ahead = sum(study.is_open and not study.in_front for study in self._studies)
        unopened = [study for study in self._studies if study.opened is None]
        if unopened and ahead < _AHEAD:
            self._open(unopened[0])

    def _open(self, study: _Study) -> None:
        study.shares = [pool.share() for pool in self._pools]
        study.opened = study.wanted.open(study.shares)
        study.steps = study.run.steps()
        self._step(study)

    def _end_searches_in_time(self) -> None:
        """Where all share a budget: the searches end where the time that is left is what the finals need."""
        if self._total_s is None:
            return
        reserve = Budget(None, self._total_s / len(self._studies), 0.0).reserve_s if self._lanes else 0.0
        left = sum(study.outcome is None for study in self._studies)
        ends = self._started + self._total_s - reserve * left / self._most_in_front
        if time.monotonic() >= ends:
            for study in self._studies:
                if study.is_open and not study.decides:
                    study.run.end_search(reserve)

    # Who has which GPU

    def _hand_out_lanes(self) -> None:
        """The studies in front have the GPUs: one each, and the others as well while fewer study than there are GPUs.

        A lane changes hands when nothing runs there. A study that decides keeps the one on which it races.
        """
        holders = {id(lane): study for study in self._studies if study.is_open for lane in study.lanes}
        front = [study for study in self._studies if study.in_front]
        for study in (s for s in self._studies if s.is_open):
            for place, lane in enumerate(list(study.lanes)):
                lane.ending = not study.in_front or (study.decides and place > 0)
                if lane.ending and lane.free:
                    study.run.funnel.leave(lane)  # type: ignore[attr-defined]
                    del holders[id(lane)]
        for lane in self._lanes:
            takers = [s for s in front if not s.lanes or not s.decides]
            if id(lane) not in holders and takers:
                taker = min(takers, key=lambda s: len(s.lanes))
                taker.run.funnel.take(lane)  # type: ignore[attr-defined]

    def _set_up_ahead(self) -> None:
        """Where the one GPU waits for compilers, it makes the tensors and references of the next problem meanwhile."""
        if len(self._lanes) != 1:
            return
        front = [s.run for s in self._studies if s.in_front and not s.decides]
        ahead = [s for s in self._studies if s.is_open and not s.in_front and not s.is_set_up]
        if not front or not ahead or front[0].search_seconds_left < _LEAST_LEFT_S:
            return
        now, then = front[0].funnel, ahead[0].run.funnel
        if isinstance(now, GpuFunnel) and isinstance(then, GpuFunnel) and now.idle and then.fits_beside:
            ahead[0].is_set_up = True
            now.set_up_another(then.set_up_job())

    # What is said

    def _tell(self, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._last_told < _TELL_S:
            return
        self._last_told = now
        done = [study.outcome for study in self._studies if study.outcome is not None]
        front = next((s for s in self._studies if s.in_front), self._studies[-1])
        event = OverallProgress(
            elapsed_s=now - self._started,
            problems=len(self._studies),
            done=len(done),
            failed=sum(isinstance(outcome, StudyFailedError) for outcome in done),
            in_front=tuple(s.wanted.problem for s in self._studies if s.in_front),
            max_seconds=self._total_s,
        )
        self._told(front.wanted.problem, event)

    def _say_what_was_saved(self) -> None:
        funnels = [study.run.funnel for study in self._studies if study.opened is not None]
        compiled, found = sum(f.compiled for f in funnels), sum(f.found_compiled for f in funnels)
        if found:
            text = f"{found} of {compiled} configs needed no compilation: the same kernels were in the cache"
            self._told(self._studies[-1].wanted.problem, Notice(text))
