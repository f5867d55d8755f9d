"""The main job without a GPU, from a user's own search space to a stored winner, in this process."""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path

import pytest

import tuner
from tuner import api
from tuner.config import Config
from tuner.errors import MissingError, NoWinnerError, StudyFailedError, TunerError, UsageError
from tuner.events import Event, Notice, Progress, StudyFinished, StudyStarted, TrialFinished
from tuner.known import same_or_none
from tuner.problem import Problem
from tuner.results import TuneResult
from tuner.trial import Outcome
from tuner.worker.zygote import Zygote

PROBLEM = tuner.make_problem("softmax", {"rows": 64, "cols": 100}, "fp32")
SMALL_LABELS = {f"template=small,DIVIDE={d},num_warps={w}" for d in (True, False) for w in (1, 2)}

pytestmark = pytest.mark.usefixtures("tune_environment")


@pytest.fixture(scope="module")
def finished(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TuneResult, list[Event], Path]:
    """One finished study of the small space, in a database that tests copy."""
    path = tmp_path_factory.mktemp("finished") / "tuner.db"
    events: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(cache))
        result = tuner.tune(PROBLEM, space=spaces() / "small.yaml", gpu=False, db=str(path), on_event=events.append)
    return result, events, path


def spaces() -> Path:
    return Path(__file__).parent / "spaces_engine"


@pytest.fixture
def database(finished, tmp_path: Path) -> str:
    """A copy of the finished study's database."""
    shutil.copy(finished[2], tmp_path / "copy.db")
    return str(tmp_path / "copy.db")


def labels(study: str, database: str) -> set[str]:
    return {trial.trial.config.label for trial in tuner.show(study, db=database).trials}


def own_space(folder: Path, text: str) -> Path:
    """``text`` as a space beside a copy of the small template."""
    shutil.copy(spaces() / "small.py", folder / "small.py")
    path = folder / "own.yaml"
    path.write_text(text)
    return path


def test_the_winner_is_stored_and_says_that_it_is_estimated(finished, database):
    result, _, _ = finished
    assert not result.interrupted and result.estimated
    assert result.study.outcomes == {"timed": 4}
    winner = result.winner
    assert winner is not None and winner.record.estimated
    assert winner.config.label in SMALL_LABELS
    assert winner.record.verdict.startswith("estimated, not measured: template=small,")
    assert winner.record.plain_us is not None and winner.record.speedup is not None
    assert winner.record.speedup >= 0.99
    assert winner.device.name == "sm_90 (as NVIDIA H100 80GB HBM3)"
    assert tuner.best(PROBLEM, db=database) is None
    stored = tuner.best(PROBLEM, db=database, estimated=True)
    assert stored == winner


def test_its_events_begin_with_the_study_and_end_with_the_winner(finished):
    _, events, _ = finished
    assert isinstance(events[0], StudyStarted) and isinstance(events[-1], StudyFinished)
    assert (events[0].space_size, events[0].known, events[0].resumed, events[0].mode) == (4, 0, False, "estimated")
    assert events[-1].estimated
    assert sorted(e.number for e in events if isinstance(e, TrialFinished)) == [1, 2, 3, 4]
    assert all(e.estimated and e.gpu_busy_share is None for e in events if isinstance(e, Progress))


@pytest.mark.usefixtures("standing_machine")
def test_the_same_again_repeats_nothing(finished, database, monkeypatch):
    result, _, _ = finished
    submitted: list[object] = []
    monkeypatch.setattr("tuner.funnel.Funnel.submit", lambda self, ticket: submitted.append(ticket))
    again = tuner.tune(PROBLEM, space=spaces() / "small.yaml", gpu=False, db=database)
    assert submitted == []
    assert again.study.name == result.study.name
    assert (again.study.trials, again.winner.config) == (4, result.winner.config)
    assert labels(result.study.name, database) == SMALL_LABELS


@pytest.mark.usefixtures("standing_machine")
def test_an_extended_space_keeps_every_result_and_tries_what_is_new(finished, database, tmp_path):
    text = (spaces() / "small.yaml").read_text().replace("num_warps: [1, 2]", "num_warps: [1, 2, 4]")
    events: list[Event] = []
    result = tuner.tune(PROBLEM, space=own_space(tmp_path, text), gpu=False, db=database, on_event=events.append)
    assert events[0].known == 4
    tried = {e.config.label for e in events if isinstance(e, TrialFinished)}
    assert tried == {f"template=small,DIVIDE={d},num_warps=4" for d in (True, False)}
    assert result.study.name != finished[0].study.name
    assert (result.study.trials, result.study.reused) == (6, 4)


@pytest.mark.usefixtures("standing_machine")
def test_another_source_is_tried_anew(finished, database, tmp_path):
    text = (spaces() / "small.yaml").read_text()
    path = own_space(tmp_path, text)
    source = tmp_path / "small.py"
    source.write_text(source.read_text().replace("1.0 / tl.sum(p, axis=0)", "1.0 / tl.sum(p, 0)"))
    events: list[Event] = []
    tuner.tune(PROBLEM, space=path, gpu=False, db=database, on_event=events.append)
    tried = {e.config.label for e in events if isinstance(e, TrialFinished)}
    # The switch DIVIDE leaves the changed line out of half of the variants, and those are known.
    assert tried == {f"template=small,DIVIDE=False,num_warps={w}" for w in (1, 2)}


@pytest.mark.usefixtures("standing_machine")
def test_where_no_config_survives_the_study_fails_with_the_counts(tmp_path):
    text = (spaces() / "faults.yaml").read_text()
    text = text.replace("[none, wrong, type, shared, exit, endless]", "[wrong, type]").replace("[1, 2, 3]", "[1]")
    text = text.replace("PROGRAMS_PER_SM: [1, 2]", "PROGRAMS_PER_SM: [1]").replace("FAULT: none", "FAULT: wrong")
    shutil.copy(spaces() / "faults.py", tmp_path / "faults.py")
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(StudyFailedError) as caught:
        tuner.tune(PROBLEM, space=tmp_path / "bad.yaml", gpu=False)
    assert caught.value.exit_code == 1
    assert "no config survived (2 wrong, 2 compile_error)" in str(caught.value) or (
        "no config survived (2 compile_error, 2 wrong)" in str(caught.value)
    )
    (study,) = tuner.studies()
    assert (study.state, study.outcomes) == ("finished", {"wrong": 2, "compile_error": 2})
    assert tuner.best(PROBLEM, estimated=True) is None


@pytest.mark.usefixtures("standing_machine")
def test_a_time_budget_is_kept_in_a_space_that_is_far_too_large(tmp_path):
    started = time.monotonic()
    result = tuner.tune(PROBLEM, space=spaces() / "many.yaml", gpu=False, time_s=8, workers=2)
    assert time.monotonic() - started < 12
    assert result.winner is not None
    assert 1 <= result.study.trials < result.study.space_size == 240


@pytest.mark.usefixtures("standing_machine")
def test_a_trial_budget_is_kept_exactly(tmp_path):
    result = tuner.tune(PROBLEM, space=spaces() / "many.yaml", gpu=False, trials=3)
    assert result.study.trials == 3
    assert "template=many,ADDED=0,DOUBLED=False,num_warps=1,MAXIMUM=1" in labels(result.study.name, None)


@pytest.mark.usefixtures("standing_machine")
def test_one_config_is_checked_in_the_interpreter(monkeypatch, interpreters, machine):
    worker = interpreters._workers[0]
    monkeypatch.setattr(machine, "interpreter", lambda: worker)
    good = tuner.check(PROBLEM, space=spaces() / "faults.yaml", gpu=False)
    assert good.passed and good.mode == "interpreter"
    bad = tuner.check(PROBLEM, space=spaces() / "faults.yaml", config="FAULT=wrong", gpu=False)
    assert not bad.passed
    assert 0 < bad.worst_ratio < float("inf")


@pytest.mark.usefixtures("standing_machine")
def test_a_config_that_cannot_be_run_is_an_error_that_names_it(monkeypatch, interpreters, machine):
    worker = interpreters._workers[0]
    monkeypatch.setattr(machine, "interpreter", lambda: worker)
    with pytest.raises(TunerError, match=r"FAULT=exit.*crashed: the process that ran it crashed"):
        tuner.check(PROBLEM, space=spaces() / "faults.yaml", config="FAULT=exit", gpu=False)


def test_the_stored_winner_renders_to_one_file(finished, database):
    text = tuner.render(PROBLEM, space=spaces() / "small.yaml", best=True, db=database, estimated=True)
    compile(text, "winner.py", "exec")
    assert "def launch(" in text and "DIVIDE:" not in text
    with pytest.raises(NoWinnerError, match=r"only an estimated winner is stored for .*; --estimated takes it"):
        tuner.render(PROBLEM, best=True, db=database)
    with pytest.raises(UsageError, match="ask for the best config or name one, not both"):
        tuner.render(PROBLEM, best=True, config="num_warps=1", db=database)


def test_a_winner_is_rendered_from_its_stored_source_whatever_the_space_holds_now(finished, database, tmp_path):
    text = (spaces() / "small.yaml").read_text().replace("num_warps: [1, 2]", "num_warps: [8]")
    path = own_space(tmp_path, text.replace("num_warps: 1}", "num_warps: 8}"))
    again = tuner.render(PROBLEM, space=path, best=True, db=database, estimated=True)
    assert again == tuner.render(PROBLEM, space=spaces() / "small.yaml", best=True, db=database, estimated=True)
    assert f"num_warps={finished[0].winner.config.values['num_warps']}" in again
    with pytest.raises(NoWinnerError, match="run `tuner tune` first"):
        tuner.render(tuner.make_problem("softmax", {"rows": 8, "cols": 8}, "fp32"), best=True, db=database)


@pytest.mark.parametrize(
    ("trials", "time_s"), [(0, None), (-1, None), (None, 0.0), (None, -1.0), (None, math.nan), (None, math.inf)]
)
def test_a_budget_that_cannot_be_is_refused_before_anything_is_made(tmp_path, trials, time_s):
    with pytest.raises(UsageError, match="must be"):
        tuner.tune(PROBLEM, trials=trials, time_s=time_s, db=str(tmp_path / "new.db"))
    assert not (tmp_path / "new.db").exists()


def test_an_unknown_target_is_refused_before_a_database_is_made(tmp_path):
    with pytest.raises(UsageError, match="sm_91"):
        tuner.tune(PROBLEM, target="sm_91", db=str(tmp_path / "new.db"))
    assert not (tmp_path / "new.db").exists()


def test_a_gpu_that_is_insisted_on_and_not_there_is_an_error(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(MissingError, match="no GPU was found here; "):
        tuner.time(PROBLEM, space=spaces() / "small.yaml")


def test_operators_are_listed_with_the_size_of_their_spaces():
    listed = {summary.name: summary for summary in tuner.list_operators(target="a100")}
    assert set(listed) >= {"softmax", "attention_fwd"}
    assert all(summary.valid_configs > 0 for summary in listed.values())
    assert "A100" in listed["softmax"].target
    assert isinstance(listed["softmax"].example, Problem)


def test_a_config_of_another_space_is_none_of_this_one():
    bound = api.load_space(spaces() / "small.yaml").bind(PROBLEM, api.named_target("sm_90"))
    plain = bound.plain()[0]
    assert same_or_none(bound, plain) == plain
    others = [
        Config("large", plain.switches, plain.launch, plain.chosen),
        Config("small", (), plain.launch, plain.chosen),
        Config("small", plain.switches, (("BLOCK_COLS", 256), ("num_warps", 1)), plain.chosen),
        Config("small", plain.switches, (("BLOCK_COLS", 128), ("num_warps", 3)), plain.chosen),
    ]
    assert [same_or_none(bound, other) for other in others] == [None] * 4


def test_outcomes_of_the_small_space_are_all_timed(finished, database):
    detail = tuner.show(finished[0].study.name, db=database)
    assert {t.trial.outcome for t in detail.trials} == {Outcome.TIMED}
    assert all(t.trial.check_report.passed for t in detail.trials)


def test_every_trial_was_checked_on_inputs_of_its_own_and_says_which(finished, database):
    trials = [t.trial for t in tuner.show(finished[0].study.name, db=database).trials]
    reports = [trial.check_report for trial in trials if trial.check_report is not None and not trial.same_as]
    assert len(reports) >= 2
    assert {report.seed for report in reports} == {0}
    assert len({report.variation for report in reports}) == len(reports) and 0 not in {r.variation for r in reports}


def test_a_session_tunes_one_problem_after_the_other_with_the_same_processes(tmp_path, monkeypatch):
    started: list[str] = []
    monkeypatch.setattr(
        "tuner.machine.Zygote", lambda environment, log: started.append(log.name) or Zygote(environment, log)
    )
    other = tuner.make_problem("softmax", {"rows": 7, "cols": 90}, "fp32")
    with tuner.Session(gpu=False, db=str(tmp_path / "new.db"), workers=1) as session:
        results = [session.tune(p, space=spaces() / "small.yaml", trials=2) for p in (PROBLEM, other)]
    assert [result.problem for result in results] == [PROBLEM, other]
    assert all(result.winner is not None and result.study.trials == 2 for result in results)
    assert sorted(started) == ["interpreter.log", "zygote.log"]


def test_a_session_that_tunes_nothing_makes_no_database(tmp_path):
    with tuner.Session(gpu=False, db=str(tmp_path / "new.db")):
        pass
    assert not (tmp_path / "new.db").exists()


def test_a_search_in_which_nothing_better_is_left_ends_by_itself_unless_it_is_told_not_to(tmp_path, monkeypatch):
    for name, value in (("LOOK_EVERY", 1), ("LOOKS", 1), ("LEAST_RESULTS", 1), ("NEGLIGIBLE", 2.0)):
        monkeypatch.setattr(f"tuner.search.stopping.{name}", value)
    monkeypatch.setattr("tuner.search.optuna_proposer.LEAST_TO_GO_BY", 1)
    said: list[str] = []

    def listen(event) -> None:
        if isinstance(event, Notice):
            said.append(event.text)

    with tuner.Session(gpu=False, db=str(tmp_path / "new.db"), workers=1) as session:
        space = spaces() / "small.yaml"
        ended = session.tune(PROBLEM, space=space, trials=4, on_event=listen)
        assert ended.winner is not None and ended.study.trials < 4
        assert any("a better one is left with a chance of" in text for text in said)
        assert ended.chance_of_better is not None and 0.0 <= ended.chance_of_better <= 1.0
        whole = session.tune(PROBLEM, space=space, trials=4, early_stop=False)
    assert whole.study.trials == 4


@pytest.mark.usefixtures("standing_machine")
def test_many_problems_at_once_find_what_each_finds_alone_and_share_compilations(finished, tmp_path):
    other = tuner.make_problem("softmax", {"rows": 96, "cols": 100}, "fp32")
    told: list[tuple[Problem, Event]] = []
    with tuner.Session(gpu=False, db=str(tmp_path / "new.db")) as session:
        space = spaces() / "small.yaml"
        outcomes = session.tune_many([PROBLEM, other], space=space, on_event=lambda p, e: told.append((p, e)))
        with pytest.raises(UsageError, match="not both"):
            session.tune_many([PROBLEM], time_s=1, total_s=1)
        with pytest.raises(UsageError, match="calls must be 1 numbers, one a problem, but got 2"):
            session.tune_many([PROBLEM], calls=[1, 2])
    assert [outcome.problem for outcome in outcomes] == [PROBLEM, other]
    alone = finished[0]
    assert outcomes[0].winner.config == alone.winner.config
    assert outcomes[0].winner.record.verdict == alone.winner.record.verdict
    assert all(outcome.study.outcomes == {"timed": 4} for outcome in outcomes)
    first_of_other = next(i for i, (p, e) in enumerate(told) if p == other and isinstance(e, StudyStarted))
    last_of_first = next(i for i, (p, e) in enumerate(told) if p == PROBLEM and isinstance(e, StudyFinished))
    assert first_of_other < last_of_first
    said = [event.text for _, event in told if isinstance(event, Notice)]
    assert said[-1] == "8 of 8 configs needed no compilation: the same kernels were in the cache"
