"""A stranger's database holds rows and nothing that acts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import optuna
import pytest
from sqlalchemy import text

from tests.exports.stored_winners import softmax, store_winner
from tuner.errors import StoreError
from tuner.plain_json import read_json, write_json
from tuner.store.engine import MOST_VALUE_BYTES
from tuner.store.store import Store

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
CONFIG = "template=whole_row,num_warps=4"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "tuner.db"
    store_winner(path, softmax(64, 1024), CONFIG)
    return path


def changed(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as other:
        for statement in statements:
            other.execute(statement)
    other.close()


ACTS = {
    "trigger": ("the trigger 't'", "CREATE TRIGGER t AFTER INSERT ON tuner_trial BEGIN DELETE FROM tuner_trial; END"),
    "trigger on Optuna's": (
        "the trigger 't'",
        "CREATE TABLE trials (trial_id INTEGER)",
        "CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM trials; END",
    ),
    "endless view": (
        "a view in place of the table 'tuner_study'",
        "PRAGMA legacy_alter_table = ON",
        "ALTER TABLE tuner_study RENAME TO hidden",
        f"CREATE VIEW tuner_study AS {ENDLESS} i AS id FROM n",
    ),
    "view of Optuna's name": ("a view in place of the table 'trials'", f"CREATE VIEW trials AS {ENDLESS} i FROM n"),
    "computed column": (
        "the table 'tuner_device', which computes",
        "ALTER TABLE tuner_device ADD COLUMN x TEXT AS (hex(zeroblob(100000000)))",
    ),
    "check": (
        "the table 'studies', which computes",
        "CREATE TABLE studies (study_id INTEGER CHECK (length(hex(zeroblob(100000000))) > 1))",
    ),
    "hidden check": (
        "the table 'studies', which computes",
        "CREATE TABLE studies (a INTEGER CHECK (a=1), \"CHECK (a=1)\" TEXT CHECK/**/(a LIKE '%a%a%a%a%b'))",
    ),
    "default": (
        "the table 'studies', which computes",
        "CREATE TABLE studies (study_id INTEGER DEFAULT (length(hex(zeroblob(100000000)))))",
    ),
    "expression index": (
        "the index 'i', which computes",
        "CREATE INDEX i ON tuner_trial (length(replace(label, 'a', 'aaaa')))",
    ),
    "partial index": ("the index 'i', which computes", "CREATE INDEX i ON tuner_trial (label) WHERE label LIKE '%a%'"),
}


@pytest.mark.parametrize("what", ACTS)
@pytest.mark.parametrize("write", [False, True])
def test_a_schema_that_acts_by_itself_is_refused_before_anything_of_it_runs(database, what, write):
    said, *statements = ACTS[what]
    changed(database, *statements)
    with pytest.raises(StoreError) as caught:
        Store.open(str(database), create=False, write=write)
    assert f"has {said}: it would act by itself" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tables_and_views_of_the_users_own_are_no_harm(database):
    changed(
        database,
        "CREATE VIEW mine AS SELECT label FROM tuner_trial",
        "CREATE TABLE notes (text TEXT CHECK (length(text) < 10))",
        "CREATE INDEX mine_too ON tuner_trial (label)",
    )
    with Store.open(str(database)) as store:
        assert len(store.studies()) == 1


def test_optunas_own_tables_are_no_harm(database):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study(storage=f"sqlite:///{database}")
    with Store.open(str(database)) as store:
        assert len(store.studies()) == 1


def test_a_schema_may_call_no_function_that_does_harm(database):
    with Store.open(str(database)) as store:
        assert store._database.read(lambda c: c.exec_driver_sql("PRAGMA trusted_schema").scalar()) == 0
        assert store._database.read(lambda c: c.exec_driver_sql("PRAGMA cell_size_check").scalar()) == 1


def test_a_value_that_would_fill_memory_is_not_read(database):
    with sqlite3.connect(database) as other:
        other.execute("UPDATE tuner_trial SET reason = hex(zeroblob(?))", (MOST_VALUE_BYTES // 2 + 1,))
    other.close()
    with (
        Store.open(str(database), create=False, write=False) as store,
        pytest.raises(StoreError, match="a value in it is larger than any that this program writes"),
    ):
        store.trial(1)


@pytest.mark.parametrize("written", ["[" * 100_000, "9" * 5000, str(2**63), "NaN", "[Infinity]", "-Infinity", "{"])
def test_json_that_this_program_cannot_have_written_is_refused(written):
    with pytest.raises(ValueError):
        read_json(written)


@pytest.mark.parametrize("value", [{"a": [1, -(2**63), 2**63 - 1, 0.5, None, True, "\N{GRINNING FACE}"]}, [], "x"])
def test_json_that_was_written_is_read(value):
    assert read_json(write_json(value)) == value


def test_nothing_is_written_once_another_version_changed_the_schema(database):
    with Store.open(str(database)) as store:
        before = store.studies()
        changed(database, "UPDATE tuner_alembic_version SET version_num = '0999'")
        with pytest.raises(StoreError, match=r"another version .* changed its schema meanwhile .*'0999'.* nothing was"):
            store.finish_study(before[0].id, "finished", 99.0, 99.0)
        count = store._database.read(lambda c: c.execute(text("SELECT max(wall_s) FROM tuner_study")).scalar())
        assert count == 1.0
