"""Several studies at once on GPUs that are played: who has which GPU, what is shared, and what an end costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.engine_jobs import PROBLEM
from tests.fakes import FakeCompilers, FakeWorker
from tests.played import SPACE, FakeMachine, Played, binary_of
from tuner.errors import MissingError, StudyFailedError
from tuner.evaluating import EvaluateJob, GiveUpJob, RoundsJob, SetUpJob
from tuner.events import Event, Notice, OverallProgress, StudyFinished, TrialFinished
from tuner.gpu_lane import Lane
from tuner.many_studies import ManyStudies, Outcome, Wanted
from tuner.operators import get
from tuner.problem import Problem
from tuner.results import TuneResult
from tuner.space import Space, load_space
from tuner.store.records import StudyDetail
from tuner.store.store import Store
from tuner.study_opening import StudyRequest, Way, open_study
from tuner.trial import CompileReport
from tuner.trial import Outcome as TrialOutcome
from tuner.worker.messages import Died, Done, Reply
from tuner.worker.shared_pool import SharedPool
from tuner.workspace import Workspace

OTHER = get("softmax").problem({"rows": 200, "cols": 70}, "fp32")
THIRD = get("softmax").problem({"rows": 200, "cols": 75}, "fp32")
Told = list[tuple[Problem, Event]]


class Many:
    """Runs ``ManyStudies`` over one database, as often as is wanted."""

    def __init__(self, cache: Path, folder: Path, source: Path) -> None:
        self.path, self.source, self.store_path = folder / "space.yaml", source, str(folder / "tuner.db")
        self.workspace = Workspace(cache)
        self.told: Told = []
        self.compilers: Any = FakeCompilers(binary=binary_of)

    def space(self, ignored: str = "[1]") -> Space:
        self.path.write_text(
            SPACE.format(source=self.source, ignored=ignored, warps="[1, 2, 4]", plain=1, rescales="1")
        )
        return load_space(self.path)

    def __call__(
        self,
        problems: list[Problem],
        workers: list[FakeWorker],
        played: Played,
        *,
        total_s: float | None = None,
        ignored: str = "[1]",
        listener: Callable[[Problem, Event], None] = lambda problem, event: None,
        calls: int | None = None,
    ) -> list[Outcome | None]:
        machine: Any = FakeMachine(played, self.workspace)
        self.machine, self.told = machine, []
        self.lanes = [Lane(w, i, alone=len(workers) == 1) for i, w in enumerate(workers)]  # type: ignore[arg-type]
        machine.gpu = workers[0]
        pool = SharedPool(self.compilers)
        space, request = self.space(ignored), StudyRequest(space=self.path, sampler="tpe")

        def tell(problem: Problem, event: Event) -> None:
            self.told.append((problem, event))
            listener(problem, event)

        with Store.open(self.store_path) as store:

            def opening(problem: Problem) -> Callable[..., Any]:
                return lambda shares: open_study(
                    store, machine, problem, space, request, Way(shares[0], shares_gpu=True),
                    partial(tell, problem), math.inf,
                )  # fmt: skip

            wanted = [Wanted(problem, opening(problem), calls) for problem in problems]
            return ManyStudies(wanted, self.lanes, [pool], tell, time.monotonic(), total_s).run()

    def detail(self, problem: Problem) -> StudyDetail:
        with Store.open(self.store_path) as store:
            (study,) = [s for s in store.studies() if s.problem == problem]
            return store.study(study.id)

    def outcomes(self, problem: Problem) -> dict[str, TrialOutcome]:
        return {t.trial.config.label: t.trial.outcome for t in self.detail(problem).trials}


@pytest.fixture
def many(cache: Path, tmp_path: Path, engine_spaces: Path) -> Many:
    return Many(cache, tmp_path, engine_spaces / "faults.py")


def evaluated(worker: FakeWorker) -> list[Problem]:
    return [job.problem for job in worker.jobs if isinstance(job, EvaluateJob)]


def winners(outcomes: list[Outcome | None]) -> list[Any]:
    return [o.winner.config.values["num_warps"] for o in outcomes if isinstance(o, TuneResult) and o.winner]


@dataclass
class Alone:
    """Two problems on one GPU, and what became of them."""

    many: Many
    gpu: FakeWorker
    outcomes: list[Outcome | None]


@pytest.fixture(scope="module")
def alone(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    source = Path(__file__).parent / "spaces_engine/faults.py"
    many, played = Many(cache, tmp_path_factory.mktemp("alone"), source), Played()
    gpu = played.worker()
    return Alone(many, gpu, many([PROBLEM, OTHER], [gpu], played))


def test_one_after_the_other_on_one_gpu_with_one_process_that_gives_up_the_card_for_each_finals(alone):
    assert winners(alone.outcomes) == [2, 2]
    assert alone.many.outcomes(PROBLEM).keys() == alone.many.outcomes(OTHER).keys()
    assert len(alone.many.outcomes(PROBLEM)) == 6
    assert evaluated(alone.gpu) == [PROBLEM] * 6 + [OTHER] * 6
    assert alone.gpu.starts == 1 and alone.gpu.kills == 0
    assert [job.problem for job in alone.gpu.jobs if isinstance(job, GiveUpJob)] == [PROBLEM, OTHER]


def test_compilers_work_for_the_next_problem_while_the_gpu_is_at_the_one_before(many):
    played = Played()
    gpu = played.worker()
    at_first_finals: list[int] = []

    def listen(problem: Problem, event: Event) -> None:
        if problem == PROBLEM and type(event).__name__ == "FinalistsChosen":
            at_first_finals.append(sum(job.problem == OTHER for job in many.compilers.jobs))

    many([PROBLEM, OTHER], [gpu], played, listener=listen)
    assert at_first_finals == [4]  # twice as many as there are compilers


def test_two_problems_on_two_gpus_have_one_each_and_find_what_one_gpu_finds(many, alone):
    played = Played()
    workers = [played.worker(), played.worker()]
    outcomes = many([PROBLEM, OTHER], workers, played)
    assert winners(outcomes) == winners(alone.outcomes)
    assert set(evaluated(workers[0])) == {PROBLEM} and set(evaluated(workers[1])) == {OTHER}
    for problem in (PROBLEM, OTHER):
        assert many.outcomes(problem) == alone.many.outcomes(problem)


def test_one_problem_on_two_gpus_is_one_queue_and_its_race_and_finals_are_on_one_of_them(many):
    played = Played()
    workers = [played.worker(), played.worker()]
    many([PROBLEM], workers, played, ignored="[1, 2]")
    assert all(len(evaluated(worker)) >= 2 for worker in workers)
    assert len(evaluated(workers[0])) + len(evaluated(workers[1])) == 6  # one of each binary
    gpus = {t.trial.seconds["gpu"] for t in many.detail(PROBLEM).trials if not t.trial.same_as}
    assert gpus == {0.0, 1.0}
    assert not any(isinstance(job, RoundsJob) for job in workers[1].jobs)
    assert many.machine.given == [many.lanes[0]] * 2


def test_a_gpu_process_that_is_killed_in_the_middle_is_started_again_while_the_other_goes_on(many):
    played = Played()
    steady, shaky = played.worker(), played.worker()
    answer, died = shaky._answer, []

    def dies_once(job: Any) -> Reply | None:
        if isinstance(job, EvaluateJob) and not died:
            died.append(job)
            return Died(timed_out=False, limit_s=20.0)
        return answer(job)

    shaky._answer = dies_once
    outcomes = many([PROBLEM], [steady, shaky], played)
    assert winners(outcomes) == [2]
    assert (steady.starts, shaky.starts, len(died)) == (1, 2, 1)
    assert sorted(many.outcomes(PROBLEM).values()) == ["timed"] * 3 + ["wrong"] * 3


def test_a_gpu_that_waits_for_compilers_is_set_up_for_the_next_problem_and_keeps_its_process(many):
    class Slow(FakeCompilers):
        polls = 0

        def poll(self) -> Any:
            self.polls += 1
            if self.polls % 8 or not self._replies:
                return []
            return [self._replies.pop(0)]

    many.compilers = Slow(binary=binary_of)
    played = Played()
    gpu = played.worker()
    assert winners(many([PROBLEM, OTHER], [gpu], played)) == [2, 2]
    assert [job.problem for job in many.compilers.jobs[:5]] == [PROBLEM] * 5  # whoever is in front goes first
    set_ups = [at for at, job in enumerate(gpu.jobs) if isinstance(job, SetUpJob) and job.problem == OTHER]
    evaluations = [at for at, job in enumerate(gpu.jobs) if isinstance(job, EvaluateJob) and job.problem == PROBLEM]
    assert set_ups[0] < evaluations[-1] < set_ups[1]  # once ahead, and again, which is quick, when it has the GPU
    assert gpu.starts == 1
    assert sorted(many.outcomes(OTHER).values()) == ["timed"] * 3 + ["wrong"] * 3


def test_a_study_that_decides_lets_the_others_have_all_gpus_but_the_one_of_its_race(many):
    played = Played()
    workers = [played.worker() for _ in range(3)]
    poll, when_it_ended = workers[1].poll, []
    # The other problem's own GPU is slow, so it is not through when the first one decides.
    workers[1].poll = lambda: poll() if OTHER in evaluated(workers[2]) else None

    quick = played.worker

    def slow(name: str) -> FakeWorker:
        """A process of the finals that takes a few looks."""
        made, looks = quick(name), iter(range(6))
        answer = made.poll
        made.poll = lambda: answer() if next(looks, 6) > 4 else None
        return made

    played.worker = slow

    def listen(problem: Problem, event: Event) -> None:
        if problem == PROBLEM and isinstance(event, StudyFinished):
            when_it_ended.append(OTHER in [job.problem for job in workers[2].jobs])

    assert winners(many([PROBLEM, OTHER], workers, played, listener=listen)) == [2, 2]
    assert PROBLEM in evaluated(workers[2]) and when_it_ended == [True]


def test_a_third_problem_gets_the_gpu_that_is_free_first(many):
    played = Played()
    workers = [played.worker(), played.worker()]
    outcomes = many([PROBLEM, OTHER, THIRD], workers, played)
    assert winners(outcomes) == [2, 2, 2]
    assert len(evaluated(workers[0])) + len(evaluated(workers[1])) == 18


def test_with_one_budget_for_all_each_problem_has_its_plain_config_and_finals_however_short_it_is(many):
    played = Played()
    outcomes = many([PROBLEM, OTHER, THIRD], [played.worker()], played, total_s=0.001)
    assert len(winners(outcomes)) == 3
    for problem in (PROBLEM, OTHER, THIRD):
        detail = many.detail(problem)
        assert detail.winner is not None and detail.winner.record.plain_us == pytest.approx(20.0, rel=0.01)
        assert len(detail.trials) < 6  # nothing that the budget has no time for


def test_with_one_budget_for_all_they_take_turns_and_all_is_tried_where_it_lasts(many, monkeypatch):
    for name, value in (("TURN_S", 0.0), ("_TURNS_EACH", 10**6), ("_SET_UPS", 0.0)):
        monkeypatch.setattr(f"tuner.time_sharing.{name}", value)
    played = Played()
    gpu = played.worker()
    outcomes = many([PROBLEM, OTHER], [gpu], played, total_s=60.0)
    assert winners(outcomes) == [2, 2]
    order = evaluated(gpu)
    assert sorted(map(repr, order)) == sorted(map(repr, [PROBLEM] * 6 + [OTHER] * 6))
    assert order not in ([PROBLEM] * 6 + [OTHER] * 6, [OTHER] * 6 + [PROBLEM] * 6)


def test_one_that_no_config_survives_does_not_stop_the_others(many):
    played = Played()
    gpu = played.worker()
    answer = gpu._answer

    def bad(job: Any) -> Reply | None:
        if isinstance(job, EvaluateJob) and job.problem == PROBLEM:
            return Died(timed_out=True, limit_s=20.0)
        return answer(job)

    gpu._answer = bad
    outcomes = many([PROBLEM, OTHER], [gpu], played)
    assert isinstance(outcomes[0], StudyFailedError) and "no config survived" in str(outcomes[0])
    assert winners(outcomes) == [2]
    done = [event for _, event in many.told if isinstance(event, OverallProgress)][-1]
    assert (done.problems, done.done, done.failed) == (2, 2, 1)


def test_ctrl_c_ends_all_that_are_open_and_the_same_again_repeats_nothing(many):
    played = Played()

    def stop(problem: Problem, event: Event) -> None:
        if problem == PROBLEM and isinstance(event, TrialFinished) and event.number == 3:
            raise KeyboardInterrupt

    outcomes = many([PROBLEM, OTHER, THIRD], [played.worker()], played, listener=stop)
    assert [None if o is None else o.interrupted for o in outcomes] == [True, True, None]  # type: ignore[union-attr]
    assert [many.detail(problem).summary.state for problem in (PROBLEM, OTHER)] == ["interrupted"] * 2
    stored = len(many.detail(PROBLEM).trials)
    again = Played()
    gpu = again.worker()
    assert winners(many([PROBLEM, OTHER, THIRD], [gpu], again)) == [2, 2, 2]
    assert evaluated(gpu).count(PROBLEM) == 6 - stored
    assert len(many.outcomes(PROBLEM)) == 6


def test_an_error_of_the_machine_ends_all_and_says_which_gpu(many):
    played = Played()
    broken = FakeWorker(lambda job: Died(timed_out=False, limit_s=180.0))
    with pytest.raises(MissingError, match="GPU 1 cannot be used for softmax rows=200 cols=70"):
        many([PROBLEM, OTHER], [played.worker(), broken], played)
    assert many.detail(OTHER).summary.state == "interrupted"


def test_what_needed_no_compilation_is_said_at_the_end(many):
    played = Played()
    reply = many.compilers.submit

    def cached(key: Any, job: Any) -> None:
        reply(key, job)
        last, done = many.compilers._replies[-1]
        many.compilers._replies[-1] = last, Done(_found(done.value), 0.1)

    many.compilers.submit = cached
    many([PROBLEM], [played.worker()], played)
    said = [event.text for _, event in many.told if isinstance(event, Notice)]
    assert said[-1] == "6 of 6 configs needed no compilation: the same kernels were in the cache"


def _found(report: CompileReport) -> CompileReport:
    return replace(report, compilations=0)
