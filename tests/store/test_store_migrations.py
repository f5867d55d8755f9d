"""Databases of every older schema, kept as SQL with data, are upgraded on SQLite and on PostgreSQL; nothing is lost."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, Table, create_engine
from store_samples import H200, PROBLEM, STACK, VARIANT

import tuner
from tests.checkout import checkout
from tests.postgres import PostgresServer
from tuner.errors import OlderSchemaError, StoreError
from tuner.store.migrating import HEAD, known_revisions, upgrade
from tuner.store.store import Store

DUMPS = Path(__file__).parent / "revisions"
OLDER = sorted(known_revisions() - {HEAD})
Rows = dict[str, list[dict[str, Any]]]

# What a revision has moved elsewhere, and where to.
MOVED = {
    "tuner_study": {
        "owner_host",
        "owner_pid",
        "owner_start",
        "heartbeat_at",
        "wall_s_before",
        "gpu_busy_s_before",
    }
}


def load(path: Path, revision: str) -> None:
    with sqlite3.connect(path) as database:
        database.executescript((DUMPS / f"{revision}.sql").read_text(encoding="utf-8"))
    database.close()


def contents(url: str) -> Rows:
    """Every row of our tables, in the order of their keys."""
    engine = create_engine(url)
    try:
        metadata = MetaData()
        metadata.reflect(engine, only=lambda name, _: name.startswith("tuner_") and "alembic" not in name)
        with engine.connect() as connection:
            return {
                table.name: [
                    dict(row) for row in connection.execute(table.select().order_by(*table.primary_key)).mappings()
                ]
                for table in metadata.sorted_tables
            }
    finally:
        engine.dispose()


def copy(source: str, target: str, revision: str) -> None:
    """A SQLite database as a PostgreSQL one: the schema from the migrations, the rows as they are."""
    here, there = create_engine(source), create_engine(target)
    try:
        with there.begin() as connection:
            upgrade(connection, revision)
            metadata = MetaData()
            metadata.reflect(connection, only=lambda name, _: name.startswith("tuner_") and "alembic" not in name)
            with here.connect() as reading:
                for table in metadata.sorted_tables:
                    old = Table(table.name, MetaData(), autoload_with=here)
                    if rows := [dict(row) for row in reading.execute(old.select()).mappings()]:
                        connection.execute(table.insert(), rows)
                    if "id" in table.c and str(table.c.id.type) == "INTEGER":
                        sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
                        connection.exec_driver_sql(f"SELECT setval({sequence}, (SELECT max(id) FROM {table.name}))")
    finally:
        here.dispose()
        there.dispose()


@pytest.fixture(params=OLDER)
def older(path: Path, request: pytest.FixtureRequest) -> Path:
    """A database with results, at an older schema."""
    load(path, request.param)
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def older_url(request: pytest.FixtureRequest, older: Path) -> str:
    """The same on both databases."""
    source = f"sqlite:///{older}"
    if request.param == "sqlite":
        return source
    server: PostgresServer = request.getfixturevalue("postgres")
    target = server.url(server.create())
    with sqlite3.connect(older) as database:
        (revision,) = database.execute("SELECT version_num FROM tuner_alembic_version").fetchone()
    database.close()
    copy(source, target, revision)
    return target


def test_there_is_a_dump_of_every_older_revision() -> None:
    assert sorted(p.stem for p in DUMPS.glob("*.sql")) == OLDER
    for revision in OLDER:
        assert f"INSERT INTO \"tuner_alembic_version\" VALUES('{revision}')" in (DUMPS / f"{revision}.sql").read_text()


def test_the_command_that_makes_the_dumps_makes_one_of_the_newest(tmp_path: Path) -> None:
    from make_revision_dump import fill

    fill(tmp_path / "tuner.db")
    found = tuner.check_database(db=str(tmp_path / "tuner.db"))
    assert found.sound and found.revision == HEAD
    assert (checkout() / "db/README.md").read_text(encoding="utf-8").count("tests/store/make_revision_dump.py") == 1


def test_a_command_that_writes_upgrades_it_with_its_data(older_url: str) -> None:
    before = contents(older_url)
    assert len(before["tuner_trial"]) == 5 and len(before["tuner_measurement"]) == 4
    Store.open(older_url, create=False).close()
    after = contents(older_url)
    for table, rows in before.items():
        moved = MOVED.get(table, set())
        assert [{k: v for k, v in row.items() if k not in moved} for row in rows] == [
            {k: row[k] for k in old if k not in moved} for old, row in zip(rows, after[table], strict=True)
        ]
    found = tuner.check_database(db=older_url)
    assert found.sound, found.findings
    assert found.revision == HEAD


def test_who_ran_a_study_is_a_run_afterwards(older_url: str) -> None:
    stored = contents(older_url)
    if "tuner_run" in stored:  # it was one before
        (known,) = [run for run in stored["tuner_run"] if run["host"] == "a-host"]
        owner = {"id": known["study_id"], "owner_pid": known["pid"], "owner_start": known["start"]}
    else:
        (owner,) = [row for row in stored["tuner_study"] if row["owner_pid"] is not None]
    with Store.open(older_url, create=False) as store:
        assert sorted(s.state for s in store.studies()) == ["finished", "interrupted", "interrupted"]
    (run,) = [run for run in contents(older_url)["tuner_run"] if run["study_id"] == owner["id"]]
    assert (run["study_id"], run["host"], run["pid"]) == (owner["id"], "a-host", owner["owner_pid"])
    assert (run["start"], run["lost_at"], run["wall_s"], run["gpu_busy_s"]) == (owner["owner_start"], None, 2.5, 1.5)


def test_what_was_stored_answers_as_before(older_url: str) -> None:
    best = tuner.best(PROBLEM, db=older_url)
    assert best is not None and (best.record.median_us, best.record.verdict) == (9.1, "2 % faster")
    assert best.record.finalists == ({"key": "k", "median_us": 9.1},)
    with Store.open(older_url, create=False) as store:
        assert store.variant(VARIANT.hash) == VARIANT
        assert len(store.known_trials(PROBLEM.key, H200.key, STACK.key)) == 4
        assert [m.measurement.stage for m in store.trial(1).measurements] == ["screen", "final"]


def test_the_newest_goes_back_to_every_older_revision_and_up_again(older: Path) -> None:
    with sqlite3.connect(older) as database:
        (revision,) = database.execute("SELECT version_num FROM tuner_alembic_version").fetchone()
    database.close()
    before = contents(f"sqlite:///{older}")
    Store.open(str(older)).close()
    downgraded(older, revision)
    again = contents(f"sqlite:///{older}")
    assert again.keys() == before.keys()
    for old, new in zip(before["tuner_study"], again["tuner_study"], strict=True):
        # What was before the current run means nothing where there is none.
        compared = old.keys() if old.get("owner_pid", True) else old.keys() - {"wall_s_before", "gpu_busy_s_before"}
        assert {k: new[k] for k in compared} == {k: old[k] for k in compared}
    Store.open(str(older)).close()
    assert tuner.check_database(db=str(older)).sound


def test_stored_winners_replace_those_before_them_of_their_study(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    load(path, "0003")
    with sqlite3.connect(path) as database:
        names = [row[1] for row in database.execute("PRAGMA table_info(tuner_winner)")]
        later = {"id": "9", "uid": "'later'", "created_at": "'2999-01-01 00:00:00.000000'", "median_us": "9.3"}
        values = ", ".join(later.get(name, name) for name in names)
        database.execute(f"INSERT INTO tuner_winner SELECT {values} FROM tuner_winner WHERE id = 1")
    database.close()
    before = contents(f"sqlite:///{path}")["tuner_winner"]
    best = tuner.best(PROBLEM, db=str(path))
    assert best is not None and best.id == 9
    rows = {row["id"]: row["replaces"] for row in contents(f"sqlite:///{path}")["tuner_winner"]}
    assert rows == {1: [], 2: [], 9: [before[0]["uid"]]}


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


def downgraded(path: Path, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    from tuner.shipped import migrations_dir

    config = Config()
    config.set_main_option("script_location", str(migrations_dir()))
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
    engine.dispose()
