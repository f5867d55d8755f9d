from __future__ import annotations

import random
import signal
import socket
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update
from store_samples import H200, PROBLEM, STACK, VARIANT, config, finish_script, spec, start_script, timed

from tuner.errors import StoreError
from tuner.store.models import RunRow
from tuner.store.records import ClaimState
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


def worked(lines: list[str]) -> list[int]:
    """The blocks that a worker said to have measured."""
    return [int(line.split()[1]) for line in lines if line.startswith("measured ") and line.endswith("\n")]


def test_processes_share_one_study_and_measure_no_config_twice(db_url: str) -> None:
    workers = [start_script("store_script.py", "work", db_url, 60, 0.002, order) for order in range(4)]
    measured = [worked(finish_script(worker).splitlines(keepends=True)) for worker in workers]
    assert sorted(block for blocks in measured for block in blocks) == list(range(60))
    assert sum(bool(blocks) for blocks in measured) >= 2
    with Store.open(db_url) as store:
        (study,) = store.studies()
        assert (study.state, study.trials) == ("finished", 60)
        assert [t.ordinal for t in store.study(study.id).trials] == list(range(60))
        assert all(len(t.trial.measurements) == 1 for t in store.study(study.id).trials)


def test_what_a_killed_process_held_is_measured_by_another(db_url: str) -> None:
    dying = start_script("store_script.py", "work", db_url, 12, 60.0, 0)
    assert dying.stdout is not None and dying.stdout.readline() == "claimed 0\n"
    helper = start_script("store_script.py", "work", db_url, 12, 0.0, 0)
    assert helper.stdout is not None
    assert helper.stdout.readline() == "taken 0\n"
    dying.send_signal(signal.SIGKILL)
    dying.communicate(timeout=60)
    assert sorted(worked(finish_script(helper).splitlines(keepends=True))) == list(range(12))


def test_a_living_process_keeps_its_claim_however_long_it_takes(store: Store, db_url: str) -> None:
    worker = start_script("store_script.py", "work", db_url, 1, 60.0, 0)
    assert worker.stdout is not None and worker.stdout.readline() == "claimed 0\n"
    try:
        study = store.start_study(spec())
        assert (study.resumed, study.others) == (True, 1)
        aged(store, timedelta(hours=1))
        assert store.claim(study.id, config(0), VARIANT.hash, "").state is ClaimState.TAKEN
        store.finish_study(study.id, "finished", 1.0, 0.0)
        assert store.studies()[0].state == "running"
    finally:
        worker.kill()
    # Not waited for yet: a zombie runs nothing either.
    deadline = time.monotonic() + 10
    while store.studies()[0].state == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    study = store.start_study(spec())
    assert study.others == 0
    assert store.claim(study.id, config(0), VARIANT.hash, "").state is ClaimState.CLAIMED
    worker.communicate(timeout=60)


@pytest.mark.parametrize(("age_s", "state"), [(50, ClaimState.TAKEN), (70, ClaimState.CLAIMED)])
def test_a_claim_of_another_host_ends_a_minute_after_its_last_sign_of_life(
    store: Store, monkeypatch: pytest.MonkeyPatch, age_s: int, state: ClaimState
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        first = store.start_study(spec())
        assert store.claim(first.id, config(1), VARIANT.hash, "").state is ClaimState.CLAIMED
    aged(store, timedelta(seconds=age_s))
    study = store.start_study(spec())
    assert study.others == (state is ClaimState.TAKEN)
    assert store.claim(study.id, config(1), VARIANT.hash, "").state is state
    assert store.claim(study.id, config(2), VARIANT.hash, "").state is ClaimState.CLAIMED
    with monkeypatch.context() as elsewhere:
        # It was only asleep: its result is taken, and it goes on.
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        assert store.heartbeat(first.id, 1.0, 0.5)
        store.record_trial(first.id, timed(1), VARIANT)
    known = store.claim(study.id, config(1), VARIANT.hash, "")
    assert known.state is ClaimState.KNOWN and known.trial is not None and known.trial.value_us == 10.1


def test_a_lease_goes_by_the_clock_of_the_database(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(postgres_url) as store:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
            study = store.start_study(spec())
            store.claim(study.id, config(1), VARIANT.hash, "")
        monkeypatch.setattr("tuner.store.runs.now", lambda: datetime.now(UTC) + timedelta(hours=1))
        monkeypatch.setattr("tuner.store.studies.now", lambda: datetime.now(UTC) + timedelta(hours=1))
        assert store.start_study(spec()).others == 1  # this machine's clock is an hour ahead
        assert store.claim(study.id, config(1), VARIANT.hash, "").state is ClaimState.TAKEN


def test_a_process_id_that_was_given_to_another_process_holds_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("tuner.store.owner._start_time", lambda pid: "1")
        study = store.start_study(spec())
        store.claim(study.id, config(1), VARIANT.hash, "")
    again = store.start_study(spec())
    assert again.others == 0
    assert store.claim(again.id, config(1), VARIANT.hash, "").state is ClaimState.CLAIMED


def test_a_budget_counts_what_the_others_work_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        study = store.start_study(spec())
        store.claim(study.id, config(1), VARIANT.hash, "")
        store.record_trial(study.id, timed(1), VARIANT)
        store.claim(study.id, config(2), VARIANT.hash, "")
    store.start_study(spec())

    def claim(block: int) -> ClaimState:
        return store.claim(study.id, config(block), VARIANT.hash, "", most=3).state

    assert [claim(3), claim(4), claim(3), claim(1)] == [
        ClaimState.CLAIMED,
        ClaimState.FULL,
        ClaimState.CLAIMED,
        ClaimState.KNOWN,
    ]
    store.give_back(study.id, config(3), VARIANT.hash)
    assert [claim(4), claim(3)] == [ClaimState.CLAIMED, ClaimState.FULL]


def test_two_studies_of_one_problem_do_not_measure_one_config_at_once(store: Store) -> None:
    first, second = store.start_study(spec()), store.start_study(spec(space_digest="wider"))
    worker = start_script("store_script.py", "work", store.url, 1, 60.0, 0)
    assert worker.stdout is not None and worker.stdout.readline() == "claimed 0\n"
    try:
        assert store.claim(second.id, config(0), VARIANT.hash, "").state is ClaimState.TAKEN
        store.record_trial(first.id, timed(0), VARIANT)
        assert store.claim(second.id, config(0), VARIANT.hash, "").state is ClaimState.KNOWN
        assert store.claim(second.id, config(0), VARIANT.hash, "other").state is not ClaimState.KNOWN
    finally:
        worker.kill()
        worker.communicate(timeout=60)


def test_seconds_of_runs_side_by_side_are_added(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study = store.start_study(spec())
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        store.start_study(spec())
        store.heartbeat(study.id, 3.0, 1.0)
    store.heartbeat(study.id, 10.0, 5.0)
    store.finish_study(study.id, "interrupted", 12.0, 6.0)
    assert (store.studies()[0].state, store.studies()[0].wall_s) == ("running", 15.0)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        store.finish_study(study.id, "finished", 4.0, 2.0)
    summary = store.studies()[0]
    assert (summary.state, summary.wall_s, summary.gpu_busy_s) == ("finished", 16.0, 8.0)


def test_who_runs_no_study_claims_nothing(store: Store) -> None:
    study = store.start_study(spec())
    store.finish_study(study.id, "finished", 1.0, 0.0)
    assert not store.heartbeat(study.id)
    with pytest.raises(StoreError, match="this process does not run the study softmax-"):
        store.claim(study.id, config(1), VARIANT.hash, "")
    with pytest.raises(StoreError, match="no study 77"):
        store.claim(77, config(1), VARIANT.hash, "")


def aged(store: Store, age: timedelta) -> None:
    """Every run gave its last sign of life that long ago."""
    with store._database.engine.begin() as connection:
        connection.execute(update(RunRow).values(heartbeat_at=datetime.now(UTC) - age))


def test_a_store_is_shared_between_threads(store: Store) -> None:
    from concurrent.futures import ThreadPoolExecutor

    study = store.start_study(spec())
    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda block: store.record_trial(study.id, timed(block), VARIANT), range(40)))
    assert len(set(ids)) == 40
    assert store.studies()[0].trials == 40
