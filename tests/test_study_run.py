"""The loop of a study, with a GPU that is played: what is stored, what wins, and what happens when time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine_jobs import PROBLEM
from tests.fakes import FakeCompilers, FakeWorker
from tests.played import DEVICE, SPACE, STACK, FakeMachine, Played, binary_of
from tuner.budget import Budget
from tuner.errors import StudyFailedError
from tuner.evaluating import EvaluateJob, RoundsJob, SetUpJob
from tuner.events import Event, FinalistsChosen, Notice, Progress, Stage, StudyFinished, TrialFinished
from tuner.funnel import Ticket
from tuner.gpu_funnel import GpuFunnel
from tuner.gpu_lane import Lane
from tuner.search import make_proposer
from tuner.space import load_space
from tuner.store.records import StoredTrial, StudyDetail, StudySpec
from tuner.store.store import Store
from tuner.study_end import StudyPlace
from tuner.study_run import StudyRun
from tuner.tickets import TicketOffice
from tuner.trial import Outcome
from tuner.worker.messages import Died, Done, Reply
from tuner.workspace import Workspace


@dataclass
class Ran:
    interrupted: bool
    detail: StudyDetail
    events: list[Event]

    def outcomes(self) -> dict[tuple[Any, ...], Outcome]:
        """By the values of FAULT, IGNORED and num_warps."""
        return {key: trial.outcome for key, trial in self.trials().items()}

    def trials(self) -> dict[tuple[Any, ...], StoredTrial]:
        def key(trial: StoredTrial) -> tuple[Any, ...]:
            values = trial.config.values
            return values["FAULT"], values["IGNORED"], values["num_warps"]

        return {key(t.trial): t.trial for t in self.detail.trials}


Run = Callable[..., Ran]


@pytest.fixture
def run(cache: Path, tmp_path: Path, engine_spaces: Path) -> Run:
    """Runs a study once; again with the same database."""

    def once(
        played: Played,
        *,
        ignored: str = "[1]",
        warps: str = "[1, 2, 4]",
        plain: int = 1,
        rescales: str = "1",
        budget: Budget | None = None,
        listener: Callable[[Event], None] = lambda event: None,
    ) -> Ran:
        path = tmp_path / "space.yaml"
        source = engine_spaces / "faults.py"
        path.write_text(SPACE.format(source=source, ignored=ignored, warps=warps, plain=plain, rescales=rescales))
        space = load_space(path)
        bound = space.bind(PROBLEM, DEVICE)
        office = TicketOffice(bound, Workspace(cache), STACK.triton)
        events: list[Event] = []
        with Store.open(str(tmp_path / "tuner.db")) as store:
            spec = StudySpec(PROBLEM, DEVICE, STACK, "space", space.digest, path.read_text(), "tpe", 0, "graph-1")
            study = store.start_study(spec)
            known = dict(store.known_trials(PROBLEM.key, DEVICE.key, STACK.key))
            keys = {config.key for config in bound.configs()}
            known = {key: trial for key, trial in known.items() if key in keys}
            proposer = make_proposer(
                bound, study_name=study.optuna_name, known={k: (t.outcome, t.value_us) for k, t in known.items()}
            )
            compilers: Any = FakeCompilers(binary=binary_of)
            gpu: Any = played.worker()
            funnel = GpuFunnel(PROBLEM, DEVICE, compilers, 0, [Lane(gpu)])

            def listen(event: Event) -> None:
                events.append(event)
                listener(event)

            machine: Any = FakeMachine(played)
            limits = budget or Budget(None, None, time.monotonic())
            place = StudyPlace(store, study, bound, office, machine, 0, listen)
            study_run = StudyRun(place, proposer, funnel, limits, known)
            try:
                interrupted = study_run.run()
            finally:
                once.detail = store.study(study.id)  # type: ignore[attr-defined]
        return Ran(interrupted, once.detail, events)  # type: ignore[attr-defined]

    once.folder = tmp_path  # type: ignore[attr-defined]
    return once


def test_a_study_ends_with_a_measured_winner_and_all_that_was_tried(run):
    ran = run(Played())
    assert not ran.interrupted
    assert ran.outcomes() == {
        ("none", 1, 1): Outcome.TIMED, ("none", 1, 2): Outcome.TIMED, ("none", 1, 4): Outcome.TIMED,
        ("wrong", 1, 1): Outcome.WRONG, ("wrong", 1, 2): Outcome.WRONG, ("wrong", 1, 4): Outcome.WRONG,
    }  # fmt: skip
    assert ran.detail.summary.state == "finished"
    winner = ran.detail.winner
    assert winner is not None and winner.config.values["num_warps"] == 2
    record = winner.record
    assert (record.kind, record.estimated) == ("winner", False)
    assert record.median_us == pytest.approx(10.0, rel=0.01)
    assert record.plain_us == pytest.approx(20.0, rel=0.01)
    assert record.speedup == pytest.approx(2.0, rel=0.01)
    assert record.margin == pytest.approx(1.0, rel=0.05)  # the plain config is the only other finalist
    finals = [m for m in ran.trials()["none", 1, 2].measurements if m.measurement.stage == "final"]
    assert len(finals) == 1
    assert set(finals[0].measurement.process) == {2, 3}


def test_what_happens_is_told_in_order(run):
    events = run(Played()).events
    kinds = [type(event) for event in events if not isinstance(event, Progress)]
    assert kinds == [TrialFinished] * 6 + [FinalistsChosen, StudyFinished]
    best = [e.best_us for e in events if isinstance(e, TrialFinished) and e.best_us is not None]
    assert best == sorted(best, reverse=True) and best[-1] == 10.0
    improved = [e.value_us for e in events if isinstance(e, TrialFinished) and e.improved]
    assert improved[0] == 20.0 and improved[-1] == 10.0
    assert {e.stage for e in events if isinstance(e, Progress)} >= {Stage.RACE}
    assert all(not e.estimated for e in events if isinstance(e, Progress))


def test_the_gpu_does_not_wait_until_every_config_is_rendered(run, monkeypatch):
    rendered, before_set_up = [], []

    def slowly(office: TicketOffice, *given: Any) -> Ticket:
        time.sleep(0.12)
        rendered.append(office)
        return ticket(office, *given)

    def send(worker: FakeWorker, job: Any, limit_s: float) -> None:
        if isinstance(job, SetUpJob) and not before_set_up:
            before_set_up.append(len(rendered))
        plain_send(worker, job, limit_s)

    ticket, plain_send = TicketOffice.ticket, FakeWorker.send
    monkeypatch.setattr(TicketOffice, "ticket", slowly)
    monkeypatch.setattr(FakeWorker, "send", send)
    run(Played())
    assert len(rendered) >= 6
    assert before_set_up == [1]


def test_a_known_config_is_not_tried_again(run):
    run(Played())
    again = Played()
    ran = run(again)
    assert [job for worker in again.workers for job in worker.jobs if isinstance(job, EvaluateJob)] == []
    assert len(ran.detail.trials) == 6
    assert ran.detail.winner is not None and ran.detail.winner.config.values["num_warps"] == 2


def test_a_finalist_that_fails_the_last_check_is_stored_as_wrong_and_so_is_its_twin(run):
    ran = run(Played(wrong_at_last={2}), ignored="[1, 2]")
    trials = ran.trials()
    for ignored in (1, 2):
        assert trials["none", ignored, 2].outcome is Outcome.WRONG
        assert trials["none", ignored, 2].value_us is None
        assert trials["none", ignored, 2].reason == "in the final re-measurement: randn at softmax rows=9: NaN"
    assert ran.detail.winner is not None
    assert ran.detail.winner.config.values["num_warps"] == 1
    assert ran.detail.summary.best_us == pytest.approx(20.0, rel=0.01)


def test_where_every_finalist_fails_the_next_ones_are_measured_and_the_failures_are_stored(run):
    ran = run(Played(us={1: 10.0, 2: 10.1, 4: 15.0}, wrong_at_last={1, 2}))
    assert ran.detail.winner is not None
    assert ran.detail.winner.config.values["num_warps"] == 4
    assert {w: o for (fault, _, w), o in ran.outcomes().items() if fault == "none"} == {
        1: Outcome.WRONG, 2: Outcome.WRONG, 4: Outcome.TIMED
    }  # fmt: skip


def test_a_study_whose_finalists_all_fail_fails_and_has_no_winner(run):
    with pytest.raises(StudyFailedError, match="no finalist could be measured again"):
        run(Played(wrong_at_last={1, 2, 4}))
    assert run.detail.winner is None
    assert run.detail.summary.state == "finished"
    assert run.detail.summary.outcomes == {"wrong": 6}


def test_dead_finals_make_no_finalist_wrong(run):
    with pytest.raises(StudyFailedError, match="or its process ended"):
        run(Played(dies_at_last=True))
    assert run.detail.winner is None
    assert run.detail.summary.outcomes == {"timed": 3, "wrong": 3}


def test_one_binary_is_in_the_race_once_and_the_plain_config_stands_for_it(run):
    played = Played(us={1: 10.0, 2: 20.0, 4: 20.0})
    run(played, ignored="[1, 2]", plain=2)
    finals = [job for worker in played.workers for job in worker.jobs if isinstance(job, RoundsJob) and job.check_first]
    assert len({c.key for c in finals[0].candidates}) == 1
    assert run.detail.winner.config.values["IGNORED"] == 2
    assert run.detail.winner.record.plain_us == pytest.approx(10.0, rel=0.01)


def test_one_binary_with_two_promises_is_checked_and_measured_for_each(run):
    played = Played(us={1: 10.0, 2: 20.0, 4: 20.0}, wrong_at_last={2})
    ran = run(played, ignored="[1, 2]", rescales="IGNORED")
    finals = [job for worker in played.workers for job in worker.jobs if isinstance(job, RoundsJob) and job.check_first]
    assert len({c.key for c in finals[0].candidates}) == 2
    assert {ran.trials()["none", ignored, 1].same_as for ignored in (1, 2)} == {""}


def test_a_twin_wins_where_the_config_that_was_timed_left_the_space(run):
    first = run(Played(), ignored="[1, 2]", plain=1)
    twin = first.trials()["none", 2, 2]
    narrowed = next(i for i in (1, 2) if first.trials()["none", i, 2].same_as)
    ran = run(Played(), ignored=f"[{narrowed}]", plain=narrowed)
    assert ran.detail.winner is not None
    assert ran.detail.winner.config.values == {**twin.config.values, "IGNORED": narrowed}


def test_no_config_that_survives_is_a_failed_study_with_the_counts(run):
    def nothing(self: Played, job: Any, number: int) -> Reply:
        return Done(0.1, 0.1) if isinstance(job, SetUpJob) else Died(False, 20.0)

    class Dying(Played):
        _answer = nothing

    with pytest.raises(StudyFailedError, match=r"no config survived \(6 crashed\); `tuner show softmax-.*` lists"):
        run(Dying())
    assert run.detail.summary.state == "finished"


def test_a_budget_too_short_for_one_trial_still_gives_the_plain_config_its_own(run):
    ran = run(Played(), budget=Budget(None, 0.001, time.monotonic()))
    assert ran.trials()["none", 1, 1].outcome is Outcome.TIMED
    assert ran.detail.winner is not None


def test_a_budget_too_short_ends_once_the_plain_config_has_failed(run):
    class Dying(Played):
        def _answer(self, job: Any, number: int) -> Reply | None:
            return Done(0.1, 0.1) if isinstance(job, SetUpJob) else Died(False, 20.0)

    with pytest.raises(StudyFailedError, match="no config survived"):
        run(Dying(), ignored=str(list(range(1, 40))), budget=Budget(None, 0.001, 0.0))
    assert 1 <= len(run.detail.trials) < 39 * 3


def test_time_that_runs_out_while_a_candidate_is_on_the_gpu_still_ends_with_a_winner(run, monkeypatch):
    monkeypatch.setattr("tuner.gpu_funnel._PATIENCE_S", 0.1)
    started = time.monotonic()
    ran = run(Played(stuck={4}), budget=Budget(None, 2.0, started))
    assert time.monotonic() - started < 6
    assert ran.detail.winner is not None and ran.detail.winner.record.kind in ("winner", "tie")
    assert all(trial.outcome is not Outcome.TIMED_OUT for trial in ran.trials().values())


def test_where_the_finals_would_take_longer_than_there_is_time_only_the_fastest_two_are_finalists(run):
    times = {1: 10.0, 2: 10.0, 4: 10.0}
    for check_s, finalists in ((0.1, 3), (25.0, 2)):
        ran = run(Played(us=times, check_s=check_s), budget=Budget(None, 60.0, time.monotonic()))
        assert len(next(e.labels for e in ran.events if isinstance(e, FinalistsChosen))) == finalists
        said = [e.text for e in ran.events if isinstance(e, Notice)]
        assert said == (["the time left is enough for 2 of 3 finalists"] if finalists == 2 else [])
        (run.folder / "tuner.db").unlink()


def test_ctrl_c_stops_the_search_and_leaves_what_was_stored(run):
    def stop(event: Event) -> None:
        if isinstance(event, TrialFinished) and event.number == 2:
            raise KeyboardInterrupt

    ran = run(Played(), listener=stop)
    assert ran.interrupted
    assert ran.detail.summary.state == "interrupted"
    assert ran.detail.winner is None
    assert len(ran.detail.trials) >= 2
    finished = run(Played())
    assert finished.detail.summary.state == "finished"
    assert len(finished.detail.trials) == 6


def test_a_trial_budget_counts_known_trials(run):
    first = run(Played(), budget=Budget(2, None, time.monotonic()))
    assert len(first.detail.trials) == 2
    second = run(Played(), budget=Budget(3, None, time.monotonic()))
    assert len(second.detail.trials) == 3


def test_a_share_of_a_time_budget_is_kept_for_the_end():
    budget = Budget(None, 60.0, 100.0)
    assert (budget.reserve_s, budget.search_deadline, budget.deadline) == (12.0, 148.0, 160.0)
    assert replace(budget, seconds=1000.0).reserve_s == 20.0
    assert replace(budget, seconds=2.0).reserve_s == 1.0
    unlimited = replace(budget, seconds=None)
    assert (unlimited.reserve_s, unlimited.search_deadline) == (0.0, float("inf"))
