"""Studies that are stopped, killed, or shared by several processes, each in a process of its own."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.programs import environment, eventually, run, start
from tuner.store.store import Store

SPACES = Path(__file__).parent / "spaces_engine"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes as Linux does")


def tune(database: Path, *more: str, cols: int = 100, space: str = "many.yaml") -> list[str]:
    """The words of a command that tunes the softmax of 64 rows without a GPU."""
    shape = f"rows=64,cols={cols}"
    words = ["tune", "softmax", "--shape", shape, "--dtype", "fp32", "--no-gpu", "--space", str(SPACES / space)]
    return ["-m", "tuner", *words, "--workers", "2", "--db", str(database), *more]


def rows(database: Path, query: str) -> list[tuple[object, ...]]:
    """What ``query`` gives, nothing while there is no such table."""
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)
    except sqlite3.Error:
        return []
    try:
        return connection.execute(query).fetchall()
    except sqlite3.Error:
        return []
    finally:
        connection.close()


def trials(database: Path) -> int:
    return len(rows(database, "SELECT id FROM tuner_trial"))


@dataclass(frozen=True)
class Stopped:
    """A run that was stopped with Ctrl-C."""

    database: Path
    first: subprocess.CompletedProcess[str]
    seconds_to_stop: float


@pytest.fixture(scope="module")
def stopped(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    folder = tmp_path_factory.mktemp("stopped")
    database, env = folder / "tuner.db", environment(TUNER_CACHE=str(cache))
    first = start(*tune(database), env=env, cwd=folder)
    try:
        assert eventually(lambda: trials(database) >= 2), "nothing was tried"
        first.send_signal(signal.SIGINT)
        began = time.monotonic()
        out, err = first.communicate(timeout=30)
    finally:
        first.kill()
    done = subprocess.CompletedProcess(first.args, first.returncode, out, err)
    return Stopped(database, done, time.monotonic() - began)


def test_ctrl_c_ends_a_study_at_once_with_the_best_so_far_and_exit_code_130(stopped):
    assert stopped.first.returncode == 130, stopped.first.stderr
    assert stopped.seconds_to_stop < 5
    assert "best so far" in stopped.first.stdout
    assert "template=many,ADDED=" in stopped.first.stdout
    assert "(estimated)" in stopped.first.stdout
    assert "interrupted; run the same command to go on" in stopped.first.stderr
    assert "Traceback" not in stopped.first.stderr


def test_an_interrupted_study_says_so_and_has_no_winner(stopped):
    assert rows(stopped.database, "SELECT state FROM tuner_study") == [("interrupted",)]
    assert rows(stopped.database, "SELECT id FROM tuner_run UNION ALL SELECT run_id FROM tuner_claim") == []
    assert rows(stopped.database, "SELECT id FROM tuner_winner") == []


def test_kill_9_at_any_moment_costs_only_what_was_in_flight(cache, tmp_path):
    database, env, chance = tmp_path / "tuner.db", environment(TUNER_CACHE=str(cache)), random.Random(0)
    command = tune(database, "--trials", "12", "--json")
    for least in (1, 4, 8):
        program = start(*command, env=env, cwd=tmp_path)
        assert eventually(lambda least=least: trials(database) >= least)
        time.sleep(chance.uniform(0.0, 0.1))
        program.kill()
        program.communicate()
    before = set(rows(database, "SELECT id, config_key, value_us FROM tuner_trial"))
    assert len(before) >= 8
    done = run(*command, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = rows(database, "SELECT id, config_key, value_us FROM tuner_trial")
    assert before <= set(after)
    assert len(after) == len({key for _, key, _ in after}) == 12
    answer = json.loads(done.stdout)
    assert answer["study"]["trials"] == 12
    assert answer["winner"]["config"]["key"] in {key for _, key, _ in after}
    assert rows(database, "SELECT state FROM tuner_study") == [("finished",)]
    states = dict(rows(database, "SELECT state, count(*) FROM trials GROUP BY state"))
    assert states.get("RUNNING", 0) == 0
    assert states["COMPLETE"] == 12


SHARED = """
import sys, tuner
from tuner.events import TrialFinished
database, space, trials = sys.argv[1:]
def said(event):
    if isinstance(event, TrialFinished):
        print(event.config.key, flush=True)
problem = tuner.make_problem("softmax", {"rows": 64, "cols": 100}, "fp32")
result = tuner.tune(problem, space=space, trials=int(trials), gpu=False, workers=1, db=database, on_event=said)
print("winner", result.winner.config.key, result.study.trials, flush=True)
"""


@pytest.mark.parametrize("kill", [False, True])
def test_processes_share_one_study_and_try_no_config_twice(kill, cache, tmp_path, request):
    # One of them on each database, so that both are seen without waiting twice.
    database = request.getfixturevalue("postgres_url") if kill else f"sqlite:///{tmp_path / 'tuner.db'}"
    script = tmp_path / "shared.py"
    script.write_text(SHARED, encoding="utf-8")
    words = [str(script), database, str(SPACES / "many.yaml"), "14"]
    programs = [start(*words, env=environment(TUNER_CACHE=str(cache)), cwd=tmp_path) for _ in range(2)]
    begun = []
    if kill:
        assert programs[0].stdout is not None
        begun = [programs[0].stdout.readline() for _ in range(3)]
        programs[0].kill()
    ended = [program.communicate(timeout=120) for program in programs]
    said = [[*begun, *ended[0][0].splitlines()], ended[1][0].splitlines()]
    tried = [[line.strip() for line in lines if line and not line.startswith("winner")] for lines in said]
    assert len({*tried[0], *tried[1]}) == len(tried[0]) + len(tried[1])
    with Store.open(database, create=False) as store:
        (study,) = store.studies()
        stored = {t.trial.config.key for t in store.study(study.id).trials}
        assert (study.state, study.trials, len(stored)) == ("finished", 14, 14)
    for program, (out, err), own in zip(programs, ended, tried, strict=True):
        assert "locked" not in err
        if program.returncode != -signal.SIGKILL:
            assert program.returncode == 0, err
            assert out.splitlines()[-1].startswith("winner ") and out.splitlines()[-1].endswith(" 14")
        assert len(own) >= 2, "one process did everything"
    if not kill:
        assert {*tried[0], *tried[1]} == stored
    else:  # what was stored just before the kill was perhaps not said any more
        assert {*tried[0], *tried[1]} <= stored and len(tried[0]) + len(tried[1]) >= 12


def test_two_studies_in_one_database_at_once_both_finish(cache, tmp_path):
    database, env = tmp_path / "tuner.db", environment(TUNER_CACHE=str(cache))
    both = [
        start(*tune(database, "--json", cols=cols, space="small.yaml"), env=env, cwd=tmp_path) for cols in (100, 228)
    ]
    for program in both:
        out, err = program.communicate(timeout=60)
        assert program.returncode == 0, err
        assert json.loads(out)["study"]["trials"] == 4
    assert rows(database, "SELECT state FROM tuner_study") == [("finished",)] * 2
    assert trials(database) == 8
    assert len(rows(database, "SELECT id FROM tuner_winner")) == 2


def test_kill_9_of_several_problems_at_once_costs_only_what_was_in_flight(cache, tmp_path):
    problems = tmp_path / "problems.yaml"
    problems.write_text("- {operator: softmax, shape: {rows: 64, cols: [100, 228]}, dtype: fp32}\n", encoding="utf-8")
    database, env = tmp_path / "tuner.db", environment(TUNER_CACHE=str(cache))
    words = ["tune", "--problems", str(problems), "--space", str(SPACES / "small.yaml"), "--no-gpu", "--json"]
    command = ["-m", "tuner", *words, "--workers", "2", "--db", str(database)]
    program = start(*command, env=env, cwd=tmp_path)
    assert eventually(lambda: trials(database) >= 3)
    program.kill()
    program.communicate()
    before = set(rows(database, "SELECT id, config_key, value_us FROM tuner_trial"))
    done = run(*command, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert before <= set(rows(database, "SELECT id, config_key, value_us FROM tuner_trial"))
    assert trials(database) == 8
    assert [answer["study"]["trials"] for answer in json.loads(done.stdout)] == [4, 4]
    assert rows(database, "SELECT state FROM tuner_study") == [("finished",)] * 2
