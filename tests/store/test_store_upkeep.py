"""Backups that are one moment's, what pruning may delete, and how large a database is."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection
from store_samples import H200, PROBLEM, STACK, VARIANT, failed, finish_script, measurement, spec, start_script, timed

import tuner
from tuner.errors import StoreError, UsageError
from tuner.store import pruning
from tuner.store.migrating import HEAD
from tuner.store.records import WinnerRecord
from tuner.store.store import Store
from tuner.trial import Outcome

LATER = datetime.now(UTC) + timedelta(days=1)
REVISIONS = Path(__file__).parent / "revisions"


@pytest.fixture
def filled(db_url: str) -> str:
    """Ten trials: one that won, one that it was compared with, one that it tied with, and seven others."""
    with Store.open(db_url) as store:
        study = store.start_study(spec())
        ids = [store.record_trial(study.id, timed(block), VARIANT) for block in range(9)]
        store.record_trial(study.id, failed(9, Outcome.WRONG, "off by one"), VARIANT)
        keys = [store.trial(i).config.key for i in ids]
        winner = WinnerRecord(
            ids[0], "tie", "v", 9.0, 8.9, 9.1, False, plain_key=keys[1], plain_us=10.0, speedup=1.1, tie_set=(keys[2],)
        )
        store.record_winner(study.id, winner)
        store.record_measurements(ids[5], [measurement(9.0, "final")])
        store.finish_study(study.id, "finished", 1.0, 0.0)
    return db_url


# backup


def test_a_backup_holds_everything_and_is_one_file(filled: str, tmp_path: Path) -> None:
    made = tuner.backup_database(tmp_path / "copy.db", db=filled)
    assert sorted(p.name for p in tmp_path.glob("copy*")) == ["copy.db"]
    assert not list(tmp_path.glob(".copy*"))
    assert made.bytes == (tmp_path / "copy.db").stat().st_size
    assert tuner.check_database(db=made.path).sound
    mine, copy = (tuner.database_stats(db=db).tables for db in (filled, made.path))
    assert copy == mine
    best, there = (tuner.best(PROBLEM, db=db) for db in (filled, made.path))
    assert best is not None and there is not None
    assert (there.record.median_us, there.created_at) == (best.record.median_us, best.created_at)


def test_a_backup_keeps_the_marks_of_where_variants_came_from(filled: str, tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "new.db")) as store:
        assert store.studies() == []
    tuner.merge_database(filled, db=str(tmp_path / "new.db"))
    made = tuner.backup_database(tmp_path / "copy.db", db=str(tmp_path / "new.db"))
    assert tuner.database_stats(db=made.path).unproven == 1
    made = tuner.backup_database(tmp_path / "own.db", db=filled)
    assert tuner.database_stats(db=made.path).unproven == 0


def test_a_backup_while_others_write_is_sound_and_has_what_was_there(path: Path, tmp_path: Path) -> None:
    writers = [start_script("store_script.py", "write", path, first, 150, 0.001) for first in (0, 1000)]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline()
    sizes = []
    for number in range(4):
        made = tuner.backup_database(tmp_path / f"copy-{number}.db", db=str(path))
        found = tuner.check_database(db=made.path)
        assert found.sound, found.findings
        sizes.append(found.rows["tuner_trial"])
        assert found.rows["tuner_measurement"] == found.rows["tuner_trial"]
    for writer in writers:
        finish_script(writer)
    assert 0 < sizes[0] < 300 and sizes == sorted(sizes)


def test_a_backup_replaces_nothing(filled: str, tmp_path: Path) -> None:
    (tmp_path / "there.db").write_text("mine")
    with pytest.raises(StoreError, match=r"there\.db exists already"):
        tuner.backup_database(tmp_path / "there.db", db=filled)
    assert (tmp_path / "there.db").read_text() == "mine"
    with pytest.raises(StoreError, match=r"the folder .* does not exist"):
        tuner.backup_database(tmp_path / "no" / "copy.db", db=filled)
    with pytest.raises(StoreError, match=r"^/proc/copy\.db cannot be written"):
        tuner.backup_database("/proc/copy.db", db=filled)


# prune


def test_pruning_says_what_would_go_and_changes_nothing(filled: str) -> None:
    before = tuner.database_stats(db=filled).tables
    found = tuner.prune_database(LATER, db=filled)
    assert not found.done and found.kept == 3
    assert found.rows == {"tuner_trial": 7, "tuner_measurement": 7, "tuner_study_trial": 7}
    assert found.bytes > 1000
    assert tuner.database_stats(db=filled).tables == before


def test_pruning_keeps_what_a_winner_chose_tied_with_or_was_compared_with(filled: str) -> None:
    assert tuner.prune_database(LATER, db=filled, yes=True).done
    with Store.open(filled) as store:
        known = store.known_trials(PROBLEM.key, H200.key, STACK.key)
        assert sorted(dict(t.config.launch)["BLOCK_COLS"] for t in known.values()) == [0, 1, 2]
    assert tuner.best(PROBLEM, db=filled) is not None
    assert tuner.check_database(db=filled).sound


def test_pruning_keeps_the_measurement_of_the_twin_that_stands_for_a_winner(db_url: str) -> None:
    with Store.open(db_url) as store:
        study = store.start_study(spec())
        measured = store.record_trial(study.id, timed(1, binary="b" * 64), VARIANT)
        twin = replace(timed(2, binary="b" * 64), measurements=(), same_as=store.trial(measured).config.key)
        of_twin = replace(timed(3, binary="b" * 64), measurements=(), same_as=twin.config.key)
        store.record_trial(study.id, twin, VARIANT)
        won = store.record_trial(study.id, of_twin, VARIANT)
        store.record_trial(study.id, timed(4), VARIANT)
        store.record_winner(study.id, WinnerRecord(won, "winner", "v", 9.0, 8.9, 9.1, False))
        store.finish_study(study.id, "finished", 1.0, 0.0)
        found = tuner.prune_database(LATER, db=db_url, yes=True)
        assert (found.rows["tuner_trial"], found.kept) == (1, 3)
        assert len(store.trial(measured).measurements) == 1


def test_pruning_is_of_what_is_older_and_of_one_operator(filled: str) -> None:
    assert tuner.prune_database("2020-01-01", db=filled).rows["tuner_trial"] == 0
    assert tuner.prune_database(LATER, operator="attention_fwd", db=filled).rows["tuner_trial"] == 0
    assert tuner.prune_database(LATER, operator="softmax", db=filled).rows["tuner_trial"] == 7
    with pytest.raises(UsageError, match="--before: cannot read 'yesterday'"):
        tuner.prune_database("yesterday", db=filled)


def test_pruning_leaves_a_study_that_is_being_run(filled: str) -> None:
    with Store.open(filled) as store:
        store.start_study(spec())
        found = tuner.prune_database(LATER, db=filled, yes=True)
        assert (found.rows["tuner_trial"], found.kept) == (0, 10)
        assert found.rows["tuner_run"] == 0
        assert store.heartbeat(store.studies()[0].id)


def test_pruning_leaves_a_study_that_was_started_after_it_was_decided_what_goes(
    filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(filled) as store:
        measured_bytes = pruning.content_bytes

        def started_meanwhile(connection: Connection, trial_ids: Sequence[int]) -> int:
            store.start_study(spec())
            return measured_bytes(connection, trial_ids)

        monkeypatch.setattr(pruning, "content_bytes", started_meanwhile)
        tuner.prune_database(LATER, db=filled, yes=True)
        assert tuner.database_stats(db=filled).tables["tuner_trial"] == 10


def test_pruning_takes_along_what_nothing_names_any_more(db_url: str) -> None:
    with Store.open(db_url) as store:
        study = store.start_study(spec())
        store.record_trial(study.id, timed(1), VARIANT)
        store.finish_study(study.id, "finished", 1.0, 0.0)
    tuner.prune_database(LATER, db=db_url, yes=True)
    assert set(tuner.database_stats(db=db_url).tables.values()) == {0}


def test_a_sqlite_file_gets_smaller(path: Path) -> None:
    with Store.open(str(path)) as store:
        study = store.start_study(spec())
        for block in range(150):
            store.record_trial(study.id, timed(block), VARIANT)
        store.finish_study(study.id, "finished", 1.0, 0.0)
    before = tuner.database_stats(db=str(path)).bytes
    tuner.prune_database(LATER, db=str(path), yes=True)
    assert tuner.database_stats(db=str(path)).bytes < before / 1.5


# stats, upgrade


def test_stats_are_rows_and_bytes(filled: str) -> None:
    found = tuner.database_stats(db=filled)
    assert (found.revision, found.tables["tuner_trial"], found.tables["tuner_measurement"]) == (HEAD, 10, 10)
    assert found.bytes > sum(found.table_bytes.values()) / 2 > 0
    assert found.bytes_per_trial == sum(found.table_bytes.values()) / 10


def test_an_upgrade_says_from_what_to_what(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.executescript((REVISIONS / "0001.sql").read_text(encoding="utf-8"))
    database.close()
    found = tuner.upgrade_database(db=str(path))
    assert (found.before, found.after) == ("0001", HEAD)
    assert tuner.upgrade_database(db=str(path)).before == HEAD
    with pytest.raises(StoreError, match="no database at"):
        tuner.upgrade_database(db=str(path.with_name("none.db")))
