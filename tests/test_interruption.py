"""Studies that are stopped, killed, or run twice at once, through the command line in processes of their own."""

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
    """A run that was stopped with Ctrl-C, and a second one that was started while it went on."""

    database: Path
    first: subprocess.CompletedProcess[str]
    second: subprocess.CompletedProcess[str]
    seconds_to_stop: float


@pytest.fixture(scope="module")
def stopped(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    folder = tmp_path_factory.mktemp("stopped")
    database, env = folder / "tuner.db", environment(TUNER_CACHE=str(cache))
    first = start(*tune(database), env=env, cwd=folder)
    try:
        assert eventually(lambda: trials(database) >= 2), "nothing was tried"
        second = run(*tune(database, "--json"), env=env, cwd=folder)
        first.send_signal(signal.SIGINT)
        began = time.monotonic()
        out, err = first.communicate(timeout=30)
    finally:
        first.kill()
    done = subprocess.CompletedProcess(first.args, first.returncode, out, err)
    return Stopped(database, done, second, time.monotonic() - began)


def test_ctrl_c_ends_a_study_at_once_with_the_best_so_far_and_exit_code_130(stopped):
    assert stopped.first.returncode == 130, stopped.first.stderr
    assert stopped.seconds_to_stop < 5
    assert "best so far" in stopped.first.stdout
    assert "template=many,ADDED=" in stopped.first.stdout
    assert "(estimated)" in stopped.first.stdout
    assert "interrupted; run the same command to go on" in stopped.first.stderr
    assert "Traceback" not in stopped.first.stderr


def test_an_interrupted_study_says_so_and_has_no_winner(stopped):
    assert rows(stopped.database, "SELECT state, owner_pid FROM tuner_study") == [("interrupted", None)]
    assert rows(stopped.database, "SELECT id FROM tuner_winner") == []


def test_a_study_that_is_being_run_refuses_a_second_run_in_one_line(stopped):
    assert stopped.second.returncode == 2
    assert stopped.second.stdout == ""
    (line,) = stopped.second.stderr.splitlines()
    assert line.startswith("error: the study softmax-") and "is being run by process" in line


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
