"""What ``check_database`` finds: one damaged, edited or foreign thing at a time, and where it is."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from store_samples import ESTIMATED_STACK, PROBLEM, VARIANT, failed, fingerprint, measurement, spec, timed

import tuner
from tuner.errors import StoreError
from tuner.store.contents import MOST_FINDINGS
from tuner.store.models import Base
from tuner.store.records import WinnerRecord
from tuner.store.store import Store
from tuner.trial import Outcome


@pytest.fixture
def filled(path: Path) -> Path:
    """A sound database: three trials, two measurements, a winner, and a study of estimates."""
    with Store.open(str(path)) as store:
        study = store.start_study(spec())
        best = store.record_trial(study.id, timed(1), VARIANT)
        store.record_trial(study.id, failed(2, Outcome.WRONG, "off by one"), VARIANT)
        store.record_measurements(best, [measurement(9.0, "final")])
        store.record_winner(study.id, WinnerRecord(best, "winner", "only one", 10.0, 9.9, 10.1, False))
        guess = store.start_study(spec(stack=ESTIMATED_STACK))
        guessed = store.record_trial(guess.id, timed(1, 7.0), VARIANT)
        store.record_winner(guess.id, WinnerRecord(guessed, "winner", "by estimate", 7.0, 7.0, 7.0, True))
        store.finish_study(guess.id, "finished", 1.0, 0.0)
        store.finish_study(study.id, "finished", 1.0, 0.0)
    return path


def edit(path: Path, *statements: str) -> None:
    with sqlite3.connect(path, isolation_level=None) as other:
        for statement in statements:
            other.execute(statement)
    other.close()


def test_a_sound_database_is_sound_and_is_left_as_it_was(filled: Path) -> None:
    before = fingerprint(filled)
    found = tuner.check_database(db=str(filled))
    assert found.sound and found.findings == ()
    assert found.rows == {
        "tuner_device": 1,
        "tuner_stack": 2,
        "tuner_problem": 1,
        "tuner_variant": 1,
        "tuner_space": 1,
        "tuner_study": 2,
        "tuner_run": 0,
        "tuner_claim": 0,
        "tuner_trial": 3,
        "tuner_study_trial": 3,
        "tuner_measurement": 3,
        "tuner_winner": 2,
    }
    assert fingerprint(filled) == before


@pytest.mark.parametrize(
    ("statement", "kind", "where", "said"),
    [
        (
            "UPDATE tuner_variant SET source = source || '# x'",
            "content",
            f"tuner_variant {VARIANT.hash[:16]}",
            "the source was changed",
        ),
        (
            "UPDATE tuner_problem SET shape = '{\"rows\":1}'",
            "content",
            f"tuner_problem {PROBLEM.key}",
            "the problem in it was changed",
        ),
        ("UPDATE tuner_problem SET shape = '{'", "content", f"tuner_problem {PROBLEM.key}", "cannot be read"),
        ("UPDATE tuner_device SET data = json_set(data, '$.sms', 1)", "content", "tuner_device", "the device in it"),
        (
            "UPDATE tuner_stack SET data = json_set(data, '$.triton', '9') WHERE mode = 'measured'",
            "content",
            "tuner_stack",
            "the stack in it",
        ),
        (
            "UPDATE tuner_trial SET config = json_set(config, '$.launch.num_warps', 32) WHERE id = 1",
            "content",
            "tuner_trial 1",
            "the config in it was changed",
        ),
        (
            "UPDATE tuner_measurement SET median_us = 1.0 WHERE id = 2",
            "content",
            "tuner_measurement 2",
            "what it holds was changed",
        ),
        (
            "UPDATE tuner_trial SET outcome = 'great' WHERE id = 2",
            "content",
            "tuner_trial 2",
            "its outcome is 'great', not one of pruned",
        ),
        (
            "UPDATE tuner_trial SET check_report = NULL WHERE id = 1",
            "winner",
            "tuner_winner 1",
            "trial 1 has passed no check",
        ),
        (
            "UPDATE tuner_trial SET check_report = json_set(check_report, '$.families[0].passed', json('false')) "
            "WHERE id = 1",
            "winner",
            "tuner_winner 1",
            "trial 1 has passed no check",
        ),
        ("UPDATE tuner_winner SET trial_id = 2 WHERE id = 1", "winner", "tuner_winner 1", ""),
        ("UPDATE tuner_winner SET trial_id = 3 WHERE id = 1", "winner", "tuner_winner 1", "another problem, device"),
        ("UPDATE tuner_winner SET estimated = 1 WHERE id = 1", "winner", "tuner_winner 1", "its stack says measured"),
        ("DELETE FROM tuner_measurement WHERE trial_id = 3", "winner", "tuner_winner 2", "trial 3 has no measurement"),
        ("UPDATE tuner_measurement SET trial_id = 99 WHERE id = 1", "reference", "tuner_measurement 1", "trial_id 99"),
        ("DELETE FROM tuner_space", "reference", "tuner_study 1", "space_digest"),
        ("UPDATE tuner_device SET name = 'H300'", "content", "tuner_device", "its name 'H300' was changed"),
        (
            "UPDATE tuner_device SET data = json_set(data, '$.memory_bytes', -1)",
            "content",
            "tuner_device",
            "memory_bytes in data is -1, not 0 or more",
        ),
        ("UPDATE tuner_stack SET triton = '9' WHERE mode = 'measured'", "content", "tuner_stack", "its triton '9' was"),
        ("UPDATE tuner_trial SET template = 'other' WHERE id = 1", "content", "tuner_trial 1", "its template 'other'"),
        ("UPDATE tuner_trial SET label = 'other' WHERE id = 2", "content", "tuner_trial 2", "its label 'other' was"),
        (
            "UPDATE tuner_trial SET binary_hash = 'b' WHERE id = 1",
            "content",
            "tuner_trial 1",
            "its binary_hash 'b' was",
        ),
        ("UPDATE tuner_trial SET value_us = 20.2 WHERE id = 1", "content", "tuner_trial 1", "20.2 us is none that was"),
        (
            "UPDATE tuner_trial SET value_us = -1 WHERE id = 1",
            "content",
            "tuner_trial 1",
            "its value_us is -1.0, not pos",
        ),
        (
            "UPDATE tuner_trial SET value_us = 9e999 WHERE id = 1",
            "content",
            "tuner_trial 1",
            "inf, not a finite number",
        ),
        (
            "UPDATE tuner_trial SET seconds = json_set(seconds, '$.check', -1) WHERE id = 1",
            "content",
            "tuner_trial 1",
            "its seconds of check are -1",
        ),
        ("UPDATE tuner_trial SET same_as = 'me' WHERE id = 1", "content", "tuner_trial 1", "'me', not 16 hex digits"),
        (
            "UPDATE tuner_trial SET label = CAST(X'74FF' AS TEXT) WHERE id = 2",
            "content",
            "tuner_trial 2",
            "its label is not UTF-8",
        ),
        (
            "UPDATE tuner_trial SET label = CAST(X'740074' AS TEXT) WHERE id = 2",
            "content",
            "tuner_trial 2",
            "its label holds a zero byte",
        ),
        (
            "UPDATE tuner_trial SET compile_report = '{\"binary_hash\":NaN}' WHERE id = 1",
            "content",
            "tuner_trial 1",
            "its compile_report cannot be read (NaN is no number)",
        ),
        (
            "UPDATE tuner_measurement SET sample_count = 7 WHERE id = 1",
            "content",
            "tuner_measurement 1",
            "sample_count 7",
        ),
        (
            "UPDATE tuner_measurement SET created_at = 'now' WHERE id = 1",
            "content",
            "tuner_measurement 1",
            "not a moment",
        ),
        (
            "UPDATE tuner_winner SET low_us = 11 WHERE id = 1",
            "content",
            "tuner_winner 1",
            "is not in its interval from 11",
        ),
        ("UPDATE tuner_winner SET tie_set = '{}' WHERE id = 1", "content", "tuner_winner 1", "'{}', not a list"),
        ("UPDATE tuner_winner SET kind = 'best' WHERE id = 1", "content", "tuner_winner 1", "not one of winner, tie"),
        (
            "UPDATE tuner_study SET state = 'done' WHERE id = 1",
            "content",
            "tuner_study 1",
            "'done', not one of running",
        ),
        (
            "UPDATE tuner_study SET mode = 'estimated' WHERE id = 1",
            "content",
            "tuner_study 1",
            "and its stack measured",
        ),
        ("UPDATE tuner_study SET max_trials = -7 WHERE id = 1", "content", "tuner_study 1", "-7, not from 0 to"),
        ("UPDATE tuner_study SET wall_s = -1 WHERE id = 1", "content", "tuner_study 1", "its wall_s is -1.0, not 0 or"),
        (
            "UPDATE tuner_study_trial SET reused = 7 WHERE trial_id = 1",
            "content",
            "tuner_study_trial 1 1",
            "not true or",
        ),
        ("ALTER TABLE tuner_trial ADD COLUMN extra TEXT", "schema", "tuner.db", "tuner_trial extra"),
        ("DROP INDEX ix_tuner_trial_place", "schema", "tuner.db", "ix_tuner_trial_place"),
        ("DROP VIEW winners", "schema", "tuner.db", "the view winners is missing"),
        ("UPDATE tuner_alembic_version SET version_num = '0001'", "schema", "tuner_alembic_version", "schema 0001"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(filled: Path, statement: str, kind: str, where: str, said: str) -> None:
    edit(filled, statement)
    found = tuner.check_database(db=str(filled))
    if said == "":  # a winner whose trial was found wrong later is history, and is no fault
        assert found.sound
        return
    matching = [f for f in found.findings if f.kind == kind and where in f.where and said in f.problem]
    assert len(matching) == 1, found.findings
    assert not found.sound and all(f.remedy for f in found.findings)


ROWS = {
    "tuner_run": "1, 1, 'host', 7, '', '2026-01-01 00:00:00', '2026-01-01 00:00:00', NULL, 1.0, 0.0",
    "tuner_claim": "'p', 'd', 's', 'c', 'v', 1, '2026-01-01 00:00:00'",
}


@pytest.mark.parametrize("table", sorted(Base.metadata.tables))
def test_no_cell_of_another_type_goes_unnoticed(filled: Path, table: str) -> None:
    edit(filled, *(f"INSERT INTO {name} VALUES ({values})" for name, values in ROWS.items()))
    whole = filled.read_bytes()
    for column in Base.metadata.tables[table].columns:
        if column.name == "id" and column.type.python_type is int:
            continue  # SQLite itself lets nothing but a number in
        filled.write_bytes(whole)
        edit(filled, f"UPDATE {table} SET {column.name} = X'FFFE' WHERE rowid = (SELECT min(rowid) FROM {table})")
        found = tuner.check_database(db=str(filled)).findings
        assert any(f.where.startswith(table) and column.name in f.problem for f in found), (column.name, found)


def test_a_damaged_page_is_found(filled: Path) -> None:
    with sqlite3.connect(filled) as other:
        page = other.execute("SELECT rootpage FROM sqlite_master WHERE name = 'tuner_measurement'").fetchone()[0]
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    with open(filled, "r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 200)
    found = tuner.check_database(db=str(filled))
    assert {f.kind for f in found.findings} == {"damage"}
    assert str(filled) in found.findings[0].where


def test_many_rows_with_one_fault_are_counted(path: Path) -> None:
    with Store.open(str(path)) as store:
        study = store.start_study(spec())
        for block in range(MOST_FINDINGS + 5):
            store.record_trial(study.id, replace(timed(block), measurements=()), VARIANT)
    edit(path, "UPDATE tuner_trial SET config_key = 'x' || id")
    found = tuner.check_database(db=str(path))
    assert len(found.findings) == MOST_FINDINGS + 1
    assert found.findings[-1].problem.startswith("5 or more other rows")


def test_what_is_no_database_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database at all", encoding="utf-8")
    edit(tmp_path / "other.db", "CREATE TABLE cats (name TEXT)")
    for name, said in (
        ("text.db", "not a SQLite database"),
        ("other.db", "another program"),
        ("none.db", "no database"),
    ):
        with pytest.raises(StoreError, match=said):
            tuner.check_database(db=str(tmp_path / name))
