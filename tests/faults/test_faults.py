"""A few faults of each kind that is quick; ``benchmarks/faults.py`` does all of them, many times."""

from __future__ import annotations

import random
import sqlite3
import threading
import time

import pytest
from sqlalchemy import event
from store_samples import VARIANT, spec, timed

import tuner
from tests.engine_jobs import PROBLEM
from tests.faults.files import base_database, clock_backwards, damaged_database, damaged_log, power_cuts
from tests.faults.injections import KINDS, may_mount
from tests.faults.studies import FALSE, kill_worker, rows
from tuner.errors import StoreError
from tuner.events import TrialFinished
from tuner.store.store import Store

SEED = random.SystemRandom().randrange(2**32)


@pytest.fixture
def chance() -> random.Random:
    print(f"seed {SEED}")  # shown where the test fails
    return random.Random(SEED)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zygote"])
def test_a_study_survives(kind, cache, tmp_path, chance):
    done = KINDS[kind](tmp_path, cache, chance)
    assert (done.problems, done.lost) == ((), 0)


@pytest.mark.slow
def test_a_study_survives_a_full_disk_under_its_cache(cache, tmp_path, chance):
    if not may_mount(tmp_path / "mount"):
        pytest.skip("mounting a small file system needs a privileged user")
    done = KINDS["full-cache"](tmp_path, cache, chance)
    assert (done.problems, done.lost) == ((), 0)


@pytest.mark.parametrize("name", ["compile", "interpret-"])
def test_a_worker_that_is_killed_costs_no_trial_and_no_false_result(
    name, machine, standing_machine, engine_spaces, tmp_path, chance
):
    database = tmp_path / "tuner.db"
    killed: list[bool] = []

    def kill() -> None:
        deadline = time.monotonic() + 10
        while not killed and time.monotonic() < deadline:
            if any(kill_worker(zygote.process_id, name, chance) for zygote in machine._zygotes):
                killed.append(True)
            time.sleep(0.01)

    def on_event(happened: object) -> None:
        if isinstance(happened, TrialFinished) and happened.number == 2:
            threading.Timer(chance.uniform(0.0, 0.2), kill).start()

    done = tuner.tune(
        PROBLEM, space=engine_spaces / "many.yaml", trials=8, gpu=False, db=str(database), on_event=on_event
    )
    assert killed
    assert done.study.trials == 8
    assert {outcome for (outcome,) in rows(database, "SELECT outcome FROM tuner_trial")} & set(FALSE) == set()


def test_power_cuts_lose_no_trial_that_was_reported(tmp_path, chance):
    done = list(power_cuts(tmp_path, chance, 6))
    assert [cut.problems for cut in done] == [()] * 6


def test_a_damaged_file_is_reported_and_never_a_traceback(tmp_path, chance):
    base_database(tmp_path / "base.db")
    for number in range(12):
        done = damaged_database(tmp_path / "base.db", tmp_path / str(number), chance)
        # A bit may flip in a text or a date that nothing vouches for; everything else is found.
        assert [p for p in done.problems if not p.endswith("nothing was said")] == []


def test_a_damaged_log_loses_what_it_held_and_nothing_else(tmp_path, chance):
    assert damaged_log(tmp_path, chance).problems == ()


def test_a_clock_that_steps_back_changes_no_order(tmp_path, chance, monkeypatch):
    assert clock_backwards(tmp_path, chance, monkeypatch.setattr).problems == ()


def test_a_full_disk_refuses_a_trial_whole_and_the_next_run_goes_on(tmp_path):
    path = tmp_path / "tuner.db"
    with Store.open(str(path)) as store:
        study = store.start_study(spec())
        store.record_trial(study.id, timed(0), VARIANT)
        pages = store._database.read(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar())

        def limit(connection: sqlite3.Connection, record: object) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages + 4}")

        store._database.engine.dispose()
        event.listen(store._database.engine, "connect", limit)
        stored = 0
        with pytest.raises(StoreError, match="the disk is full; free some space and run the same command again"):
            for block in range(1, 1000):
                store.record_trial(study.id, timed(block), VARIANT)
                stored = block
        event.remove(store._database.engine, "connect", limit)  # engines are kept for those who open it next
        store._database.engine.dispose()
    with Store.open(str(path)) as store:
        again = store.start_study(spec())
        assert again.resumed and again.trials == stored + 1
        store.record_trial(again.id, timed(stored + 1), VARIANT)
        assert len(store.study(again.id).trials) == stored + 2
        assert all(len(trial.trial.measurements) == 1 for trial in store.study(again.id).trials)
