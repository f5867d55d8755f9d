"""Databases of every older schema are upgraded with their data."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from store_samples import PROBLEM, VARIANT, measurement, spec, timed

import tuner
from tuner.errors import OlderSchemaError, StoreError
from tuner.shipped import migrations_dir
from tuner.store.migrating import HEAD, known_revisions
from tuner.store.records import WinnerRecord
from tuner.store.store import Store

OLDER = sorted(known_revisions() - {HEAD})


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with sqlite3.connect(path) as other:
        tables = [row[0] for row in other.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {t: other.execute(f"SELECT * FROM {t}").fetchall() for t in tables if "alembic" not in t}
    other.close()
    return found


def indexes(path: Path) -> set[str]:
    with sqlite3.connect(path) as other:
        found = {row[0] for row in other.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    other.close()
    return found


def downgraded(path: Path, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()))
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
    engine.dispose()


@pytest.fixture(params=OLDER)
def older(path: Path, request: pytest.FixtureRequest) -> Path:
    """A database with results, at an older schema."""
    with Store.open(str(path)) as store:
        study = store.start_study(spec())
        trial = store.record_trial(study.id, timed(1), VARIANT)
        store.record_winner(study.id, WinnerRecord(trial, "winner", "only one", 10.0, 9.9, 10.1, False))
        store.record_measurements(trial, [measurement(9.0, "final")])
    downgraded(path, request.param)
    return path


def test_a_command_that_writes_upgrades_it_with_its_data(older: Path) -> None:
    before = contents(older)
    assert "ix_tuner_trial_place" not in indexes(older)
    Store.open(str(older), create=False).close()
    assert contents(older) == before
    assert {"ix_tuner_trial_place", "ix_tuner_trial_created_at", "ix_tuner_measurement_stage"} <= indexes(older)


def test_a_command_that_only_reads_upgrades_it_on_the_way(older: Path) -> None:
    best = tuner.best(PROBLEM, db=str(older))
    assert best is not None and best.record.median_us == 10.0


def test_where_nothing_may_be_written_it_is_refused_and_left_as_it_was(older: Path) -> None:
    with pytest.raises(OlderSchemaError, match="older schema"):
        Store.open(str(older), write=False)
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    before = older.read_bytes()
    older.chmod(0o444)
    with pytest.raises(StoreError, match="may not be written"):
        tuner.best(PROBLEM, db=str(older))
    assert older.read_bytes() == before
