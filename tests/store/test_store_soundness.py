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
        "tuner_trial": 3,
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
        ("UPDATE tuner_trial SET outcome = 'great' WHERE id = 2", "content", "tuner_trial 2", "cannot be read"),
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
