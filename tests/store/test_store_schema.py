from __future__ import annotations

import ast
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from store_samples import ESTIMATED_STACK, VARIANT, failed, measurement, spec, timed

from tests.checkout import checkout
from tuner.shipped import migrations_dir
from tuner.store.migrating import HEAD, known_revisions
from tuner.store.models import VERSION_TABLE, Base
from tuner.store.records import WinnerRecord
from tuner.store.schema import schema_sql
from tuner.store.schema_page import schema_page
from tuner.store.store import Store
from tuner.trial import Outcome


def rows(path: Path, sql: str) -> list[dict[str, object]]:
    with sqlite3.connect(path) as other:
        other.row_factory = sqlite3.Row
        found = [dict(row) for row in other.execute(sql)]
    other.close()
    return found


def test_the_models_are_what_the_migrations_make(store: Store) -> None:
    with store._database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []


def test_the_schema_as_text_is_that_of_the_migrations() -> None:
    committed = (migrations_dir() / "schema.sql").read_text(encoding="utf-8")
    assert committed == schema_sql(), "run: python -m tuner.store.schema db/schema.sql"


def test_the_page_about_the_schema_is_that_of_the_models() -> None:
    page = (checkout() / "docs/schema.md").read_text(encoding="utf-8")
    assert page == schema_page(), "run: python -m tuner.store.schema_page docs/schema.md"


def test_the_newest_migration_is_the_one_that_the_program_wants() -> None:
    files = sorted(path.name[:4] for path in (migrations_dir() / "versions").glob("[0-9]*.py"))
    assert known_revisions() == frozenset(files)
    assert files[-1] == HEAD


def test_migrations_do_not_import_the_program() -> None:
    for path in [migrations_dir() / "env.py", *(migrations_dir() / "versions").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "tuner"], path


def test_every_table_is_named_as_ours() -> None:
    assert {name[:6] for name in Base.metadata.tables} == {"tuner_"}


def test_migrations_run_by_hand_up_and_down(tmp_path: Path) -> None:
    database = tmp_path / "by-hand.db"
    command = [sys.executable, "-m", "alembic", "-c", str(migrations_dir() / "alembic.ini")]
    command += ["-x", f"db=sqlite:///{database}"]
    subprocess.run([*command, "upgrade", "head"], check=True, capture_output=True, cwd=tmp_path)
    Store.open(str(database), create=False).close()
    subprocess.run([*command, "downgrade", "base"], check=True, capture_output=True, cwd=tmp_path)
    assert rows(database, "SELECT name FROM sqlite_master WHERE type != 'index'") == [{"name": VERSION_TABLE}]


def test_the_views_are_readable(store: Store, path: Path) -> None:
    study = store.start_study(spec())
    first = store.record_trial(study.id, timed(1, 11.0), VARIANT)
    second = store.record_trial(study.id, timed(2, 10.0), VARIANT)
    store.record_trial(study.id, failed(3, Outcome.OUT_OF_RESOURCES, "too much shared memory"), VARIANT)
    store.record_trial(study.id, failed(4, Outcome.PRUNED, "slow"), VARIANT)
    store.record_winner(study.id, WinnerRecord(first, "tie", "a tie", 11.0, 10.9, 11.1, False))
    store.record_winner(study.id, WinnerRecord(second, "winner", "by 9 %", 10.0, 9.9, 10.1, False, plain_us=15.0))
    store.record_measurements(second, [measurement(9.0, "finalists")])
    guess = store.start_study(spec(stack=ESTIMATED_STACK))
    guessed = store.record_trial(guess.id, timed(1, 7.0), VARIANT)
    store.record_winner(guess.id, WinnerRecord(guessed, "winner", "by estimate", 7.0, 7.0, 7.0, True))

    wanted = "operator, problem, shape, dtype, device, stack, basis, template, config, median_us, verdict, plain_us"
    assert rows(path, f"SELECT {wanted} FROM winners ORDER BY basis DESC") == [
        {
            "operator": "softmax",
            "problem": "softmax rows=4096 cols=1024 bf16",
            "shape": '{"rows":4096,"cols":1024}',
            "dtype": "bf16",
            "device": "NVIDIA H200",
            "stack": "Triton 3.6.0, torch 2.11.0, driver 580.159",
            "basis": "measured",
            "template": "online",
            "config": "template=online,BLOCK_COLS=2,num_warps=4",
            "median_us": 10.0,
            "verdict": "by 9 %",
            "plain_us": 15.0,
        },
        {
            "operator": "softmax",
            "problem": "softmax rows=4096 cols=1024 bf16",
            "shape": '{"rows":4096,"cols":1024}',
            "dtype": "bf16",
            "device": "NVIDIA H200",
            "stack": "Triton 3.6.0, torch 2.11.0",
            "basis": "estimated",
            "template": "online",
            "config": "template=online,BLOCK_COLS=1,num_warps=4",
            "median_us": 7.0,
            "verdict": "by estimate",
            "plain_us": None,
        },
    ]
    history = rows(path, "SELECT config, stage, median_us, basis FROM history ORDER BY median_us")
    assert [tuple(row.values()) for row in history] == [
        ("template=online,BLOCK_COLS=1,num_warps=4", "screen", 7.1, "estimated"),
        ("template=online,BLOCK_COLS=2,num_warps=4", "finalists", 9.1, "measured"),
        ("template=online,BLOCK_COLS=2,num_warps=4", "screen", 10.1, "measured"),
        ("template=online,BLOCK_COLS=1,num_warps=4", "screen", 11.1, "measured"),
    ]
    assert rows(path, "SELECT outcome, reason, config FROM failures") == [
        {
            "outcome": "out_of_resources",
            "reason": "too much shared memory",
            "config": "template=online,BLOCK_COLS=3,num_warps=4",
        }
    ]


def test_foreign_keys_are_enforced(store: Store) -> None:
    from sqlalchemy.exc import IntegrityError

    with store._database.engine.connect() as connection, pytest.raises(IntegrityError):
        connection.exec_driver_sql("INSERT INTO tuner_study_trial VALUES (1, 1, 0, FALSE, '2026-01-01 00:00:00')")


def test_the_values_of_the_store_load_no_database_library() -> None:
    script = (
        "import sys, tuner.store.records, tuner.store.location;"
        "sys.exit(any(n in sys.modules for n in ('sqlalchemy', 'alembic', 'optuna', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=False).returncode == 0
