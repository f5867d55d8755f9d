from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import time
from pathlib import Path

import pytest
from store_samples import H200, PROBLEM, STACK, VARIANT, finish_script, spec, start_script, timed

from tuner.errors import StudyBusyError
from tuner.store.store import Store


def sound(path: Path) -> bool:
    other = sqlite3.connect(path)
    try:
        return other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        other.close()


def test_four_processes_open_one_new_file_at_once_and_lose_none_of_their_trials(path: Path) -> None:
    workers = [start_script("store_script.py", "write", path, first, 50, 0) for first in (0, 100, 200, 300)]
    for worker in workers:
        finish_script(worker)
    with Store.open(str(path)) as store:
        known = store.known_trials(PROBLEM.key, H200.key, STACK.key)
        blocks = sorted(dict(trial.config.launch)["BLOCK_COLS"] for trial in known.values())
        assert blocks == [first + i for first in (0, 100, 200, 300) for i in range(50)]
        assert [(study.trials, study.state) for study in store.studies()] == [(50, "finished")] * 4
        assert len({study.name for study in store.studies()}) == 4
    assert sound(path)


def test_four_processes_write_to_one_study_and_store_a_common_config_once(store: Store, path: Path) -> None:
    study = store.start_study(spec())
    workers = [start_script("store_script.py", "share", path, study.id, first, 50) for first in (100, 200, 300, 400)]
    for worker in workers:
        finish_script(worker)
    trials = store.study(study.name).trials
    assert [trial.ordinal for trial in trials] == list(range(205))
    assert all(len(trial.trial.measurements) == 1 for trial in trials)


def test_kill_minus_nine_while_writing_loses_no_committed_trial(path: Path) -> None:
    for attempt in range(3):
        worker = start_script("store_script.py", "write", path, 1000 * attempt, 900, 0)
        assert worker.stdout is not None
        said = [worker.stdout.readline() for _ in range(10)]
        time.sleep(random.Random(attempt).uniform(0.0, 0.1))
        worker.send_signal(signal.SIGKILL)
        out, _ = worker.communicate(timeout=60)
        committed = {int(line) for line in [*said, *out.splitlines(keepends=True)] if line.endswith("\n")}
        with Store.open(str(path)) as store:
            known = store.known_trials(PROBLEM.key, H200.key, STACK.key)
            stored = {dict(trial.config.launch)["BLOCK_COLS"] for trial in known.values()}
            assert committed <= stored
            assert store.studies()[0].state == "interrupted"
            again = store.start_study(spec(space_digest=f"worker-{1000 * attempt}"))
            assert again.resumed and again.trials >= len(committed) >= 10
            store.finish_study(again.id, "finished", 1.0, 0.0)
        assert sound(path)


def test_a_study_that_a_living_process_runs_is_busy_and_is_free_once_that_was_killed(store: Store, path: Path) -> None:
    worker = start_script("store_script.py", "hold", path)
    assert worker.stdout is not None and worker.stdout.readline() == "started\n"
    try:
        with pytest.raises(StudyBusyError) as caught:
            store.start_study(spec())
        assert f"process {worker.pid} on {socket.gethostname()}" in str(caught.value)
        assert store.studies()[0].state == "running"
    finally:
        worker.kill()
    # Not waited for yet: a zombie runs nothing either.
    deadline = time.monotonic() + 10
    while store.studies()[0].state == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert store.start_study(spec()).previous_state == "running"
    worker.communicate(timeout=60)


@pytest.mark.parametrize(("age", "busy"), [("-10 seconds", True), ("-70 seconds", False)])
def test_a_study_on_another_host_is_busy_for_a_minute_after_its_last_sign_of_life(
    store: Store, path: Path, age: str, busy: bool
) -> None:
    study = store.start_study(spec())
    with sqlite3.connect(path) as other:
        moment = other.execute("SELECT strftime('%Y-%m-%d %H:%M:%f000', 'now', ?)", (age,)).fetchone()[0]
        other.execute("UPDATE tuner_study SET owner_host = 'elsewhere', owner_pid = 1, heartbeat_at = ?", (moment,))
    other.close()
    if busy:
        with pytest.raises(StudyBusyError, match="process 1 on elsewhere"):
            store.start_study(spec())
        assert not store.heartbeat(study.id)
        store.finish_study(study.id, "finished", 1.0, 1.0)
        assert store.studies()[0].state == "running"
    else:
        assert store.studies()[0].state == "interrupted"
        assert store.start_study(spec()).id == study.id
        assert store.heartbeat(study.id)


def test_a_process_id_that_was_given_to_another_process_does_not_keep_a_study_busy(store: Store, path: Path) -> None:
    store.start_study(spec())
    with sqlite3.connect(path) as other:
        other.execute("UPDATE tuner_study SET owner_pid = ?, owner_start = '1'", (os.getppid(),))
    other.close()
    assert store.start_study(spec()).resumed


def test_a_store_is_shared_between_threads(store: Store) -> None:
    from concurrent.futures import ThreadPoolExecutor

    study = store.start_study(spec())
    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda block: store.record_trial(study.id, timed(block), VARIANT), range(40)))
    assert len(set(ids)) == 40
    assert store.studies()[0].trials == 40
