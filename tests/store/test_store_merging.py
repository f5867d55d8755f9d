"""Databases are joined in any order, and as often as one likes, with the same content; nothing is there twice."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from store_samples import (
    ESTIMATED_STACK,
    H100,
    H200,
    NEWER_STACK,
    OTHER_PROBLEM,
    OTHER_VARIANT,
    PROBLEM,
    STACK,
    VARIANT,
    failed,
    fingerprint,
    measurement,
    spec,
    timed,
)

import tuner
from tests.postgres import PostgresServer
from tuner.errors import StoreError, UsageError
from tuner.regression.points import Point
from tuner.regression.reading import PointReader
from tuner.store.engine import locate, open_engine
from tuner.store.merging import join
from tuner.store.models import Base
from tuner.store.records import WinnerRecord
from tuner.store.store import Store
from tuner.store.transactions import Database
from tuner.trial import Outcome

# A database's own: ids, places, names, what it came from, who runs what.
OWN = {"id", "study_id", "trial_id", "ordinal", "name", "optuna_name", "origin"}
NOT_JOINED = {"tuner_run", "tuner_claim"}
KEYS = {
    "tuner_study": ("problem_key", "device_key", "stack_key", "space_digest", "mode"),
    "tuner_trial": ("problem_key", "device_key", "stack_key", "config_key", "variant_id"),
}

# One step: which study, which block, how it ended, which source, whether a winner is chosen.
step = st.tuples(
    st.integers(0, 3),
    st.integers(1, 3),
    st.sampled_from(["timed", "slower", "wrong", "pruned", "crashed"]),
    st.booleans(),
    st.booleans(),
)
SPECS = (
    spec(),
    spec(stack=NEWER_STACK, max_trials=7),
    spec(problem=OTHER_PROBLEM, device=H100, seed=4),
    spec(device=replace(H200, memory_bytes=1)),
)


def fill(database: Database, steps: list[tuple[int, int, str, bool, bool]]) -> None:
    store = Store(database)
    for number, block, outcome, other, wins in steps:
        chosen, variant = replace(SPECS[number], max_trials=block), OTHER_VARIANT if other else VARIANT
        study = store.start_study(chosen)
        if outcome in ("timed", "slower"):
            us = 10.0 + block if outcome == "timed" else 20.0 + block
            trial = store.record_trial(study.id, timed(block, us, variant=variant), variant)
            if wins and store.trial(trial).outcome is Outcome.TIMED:
                store.record_winner(study.id, WinnerRecord(trial, "winner", "v", us, us, us, False))
        else:
            record = failed(block, Outcome(outcome), f"said by {number}")
            store.record_trial(study.id, replace(record, variant_hash=variant.hash), variant)
        store.finish_study(study.id, "finished" if wins else "interrupted", float(block), 0.0)


def memory(steps: list[tuple[int, int, str, bool, bool]] | None = None) -> Database:
    location = locate("sqlite://")
    database = Database(open_engine(location, write=True, busy_timeout_s=5.0), location, 5.0)
    Base.metadata.create_all(database.engine)  # the migrations, of which there are many, come to the same
    fill(database, steps or [])
    return database


def content(database: Database) -> dict[str, list[Any]]:
    """Every row without what is the database's own; references to studies and trials as what those are."""
    with database.engine.connect() as connection:
        rows = {
            t.name: [dict(r) for r in connection.execute(select(t)).mappings()]
            for t in Base.metadata.sorted_tables
            if t.name not in NOT_JOINED
        }
    named = {
        name: {row["id"]: tuple(row[k] for k in key) for row in rows[table]}
        for name, (table, key) in {
            "study_id": ("tuner_study", KEYS["tuner_study"]),
            "trial_id": ("tuner_trial", KEYS["tuner_trial"]),
        }.items()
    }
    found: dict[str, list[Any]] = {}
    for table, several in rows.items():
        plain = []
        for row in several:
            values: dict[str, Any] = {
                k: v for k, v in row.items() if k not in OWN or (table == "tuner_variant" and k == "id")
            }
            for name, known in named.items():
                if name in row:
                    values[name] = known[row[name]]
            if table == "tuner_device":
                values["name"] = row["name"]
            plain.append(repr(sorted(values.items())))
        found[table] = sorted(plain)
    return found


def joined(target: Database, *sources: Database) -> dict[str, list[Any]]:
    for source in sources:
        source.snapshot(lambda connection: join(target, connection, "elsewhere"))
    return content(target)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(step, max_size=5), min_size=3, max_size=3))
def test_joining_is_commutative_associative_and_idempotent_over_the_content(steps: list[Any]) -> None:
    databases = [memory(given) for given in steps]
    copies = [memory() for _ in databases]
    for copy, database in zip(copies, databases, strict=True):
        assert joined(copy, database) == content(database)  # nothing is lost
        assert joined(copy, database, database) == content(database)  # nothing is there twice
    expected = joined(memory(), *databases)
    for order in itertools.permutations(range(3)):
        assert joined(memory(), *(databases[i] for i in order)) == expected
    a, b, c = databases
    bc = memory()
    joined(bc, b, c)
    assert joined(copies[0], bc) == expected  # a + (b + c)
    ab = memory()
    joined(ab, a, b)
    assert joined(ab, c) == expected  # (a + b) + c
    assert joined(ab, a, c, b) == expected
    for database in (*databases, *copies, ab, bc):
        database.engine.dispose()


@pytest.fixture(params=["sqlite to sqlite", "sqlite to postgresql", "postgresql to sqlite"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer, postgres_template: str) -> list[str]:
    """The URLs of two empty databases: the other, and the one that it is joined into."""
    names = request.param.split(" to ")
    return [
        f"sqlite:///{tmp_path / f'{number}.db'}"
        if name == "sqlite"
        else postgres.url(postgres.create(postgres_template))
        for number, name in enumerate(names)
    ]


def test_a_database_is_merged_into_another_kind(pair: list[str]) -> None:
    other, mine = pair
    with Store.open(other) as store:
        study = store.start_study(spec())
        trial = store.record_trial(study.id, timed(1), VARIANT)
        store.record_trial(study.id, failed(2, Outcome.WRONG, "off by one"), VARIANT)
        store.record_winner(
            study.id, WinnerRecord(trial, "winner", "v", 9.0, 8.9, 9.1, False, finalists=({"key": "k"},))
        )
        store.record_measurements(trial, [measurement(9.0, "final")])
        store.finish_study(study.id, "finished", 5.0, 1.0)
    with Store.open(mine) as store:
        study = store.start_study(spec())
        store.record_trial(study.id, timed(3), VARIANT)
        store.record_trial(study.id, timed(2), VARIANT)
        store.finish_study(study.id, "finished", 2.0, 1.0)
    merged = tuner.merge_database(other, db=mine)
    assert merged.added["tuner_trial"] == 1 and merged.added["tuner_winner"] == 1 and merged.added["tuner_study"] == 0
    assert sum(tuner.merge_database(other, db=mine).added.values()) == 0
    assert tuner.check_database(db=mine).sound
    best = tuner.best(PROBLEM, db=mine)
    assert best is not None and best.record.median_us == 9.0 and best.record.finalists == ({"key": "k"},)
    with Store.open(mine) as store:
        (summary,) = store.studies()
        assert (summary.trials, summary.wall_s, summary.outcomes) == (3, 5.0, {"timed": 2, "wrong": 1})
        assert [t.ordinal for t in store.study(summary.id).trials] == [0, 1, 2]
        known = store.known_trials(PROBLEM.key, H200.key, STACK.key)
        stages = [m.measurement.stage for m in store.trial(next(iter(known.values())).id).measurements]
        assert stages in (["screen", "final"], ["screen"])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_winner_chosen_without_the_others_trials_does_not_displace_a_better_one(
    tmp_path: Path, postgres_url: str, swapped: bool
) -> None:
    paths = [str(tmp_path / "twelve.db"), str(tmp_path / "two.db")]
    for path, block, us, trials in zip(paths, (1, 2), (4.88, 4.97), (12, 2), strict=True):
        with Store.open(path) as store:
            study = store.start_study(spec(max_trials=trials))
            trial = store.record_trial(study.id, timed(block, us), VARIANT)
            store.record_winner(study.id, WinnerRecord(trial, "winner", "v", us, us, us, False))
            store.finish_study(study.id, "finished", 1.0, 0.0)
    mine, other = reversed(paths) if swapped else paths
    tuner.merge_database(other, db=mine)
    tuner.merge_database(mine, db=postgres_url)
    tuner.merge_database(other, db=mine)
    for db in (mine, postgres_url):
        assert counted(db) == {4.88}
        with Store.open(db) as store:
            (study,) = store.studies()
            assert (study.max_trials, study.trials) == (12, 2)
            # Whoever knew both chooses in the knowledge of both, and may find the slower-looking one to be faster.
            trial = next(t.trial.id for t in store.study(study.id).trials if t.trial.value_us == 4.97)
            store.record_winner(study.id, WinnerRecord(trial, "winner", "v", 4.95, 4.9, 5.0, False))
        assert counted(db) == {4.95}


def counted(db: str) -> set[float]:
    """The time of the one winner that counts, wherever that is said."""
    best, (line,) = tuner.best(PROBLEM, db=db), tuner.studies(db=db)
    table = tuner.query("winners", db=db)
    ((listed,),) = [
        [value for name, value in zip(table.columns, row, strict=True) if name == "time_us"] for row in table.rows
    ]
    with Store.open(db) as store:
        shown = store.study(line.id).winner
        at = PointReader(store.history, Point(), {H200.key: (STACK.key,)}, "").winners(
            store.history.winners(estimated=False)
        )
    engine = open_engine(locate(db), write=False, busy_timeout_s=5.0)
    with engine.connect() as connection:
        ((viewed,),) = connection.exec_driver_sql("SELECT median_us FROM winners").fetchall()
    engine.dispose()
    assert best is not None and shown is not None and line.best_us is not None
    (compared,) = at.values()
    return {best.record.median_us, line.best_us, shown.record.median_us, compared.median_us, listed, viewed}


@pytest.mark.parametrize(
    ("budgets", "larger"), [(((5, 60.0), (7, 1.0)), (7, 1.0)), (((None, 9.0), (7, None)), (None, 9.0))]
)
def test_of_two_budgets_the_larger_stays(budgets: Any, larger: Any) -> None:
    for order in (budgets, budgets[::-1]):
        mine = memory()
        for trials, seconds in order:
            other = memory()
            Store(other).start_study(spec(max_trials=trials, max_seconds=seconds))
            joined(mine, other)
            other.engine.dispose()
        (study,) = Store(mine).studies()
        assert (study.max_trials, study.max_seconds) == larger
        mine.engine.dispose()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two databases: mine, with a study that runs, and another with one result."""
    mine, other = tmp_path / "mine.db", tmp_path / "other.db"
    with Store.open(str(other)) as store:
        study = store.start_study(spec())
        store.record_trial(study.id, timed(1), VARIANT)
    with Store.open(str(mine)) as store:
        store.start_study(spec(space_digest="mine"))
    yield mine, other


def test_the_other_is_left_as_it_was_and_its_running_study_does_not_run_here(two: tuple[Path, Path]) -> None:
    mine, other = two
    before = fingerprint(other)
    tuner.merge_database(str(other), db=str(mine))
    assert fingerprint(other) == before
    assert sorted(s.state for s in tuner.studies(db=str(mine))) == ["interrupted", "running"]


def test_studies_of_one_name_get_two(tmp_path: Path) -> None:
    # Another stack's study has the plain name where it was the first.
    mine, other = str(tmp_path / "mine.db"), str(tmp_path / "other.db")
    for path, stack in ((mine, STACK), (other, NEWER_STACK)):
        with Store.open(path) as store:
            store.start_study(spec(stack=stack))
    tuner.merge_database(other, db=mine)
    names = sorted(s.name for s in tuner.studies(db=mine))
    assert len(set(names)) == 2 and names[1].startswith(f"{names[0]}-")
    assert sum(tuner.merge_database(other, db=mine).added.values()) == 0


def test_variants_that_came_along_are_marked_until_they_are_rendered_here(two: tuple[Path, Path]) -> None:
    mine, other = two
    assert tuner.merge_database(str(other), db=str(mine)).unproven == 1
    assert tuner.database_stats(db=str(mine)).unproven == 1
    with Store.open(str(mine)) as store:
        assert store.variant_origin(VARIANT.hash) == str(other)
        store.record_trial(store.studies()[0].id, timed(7), VARIANT)
        assert store.variant_origin(VARIANT.hash) is None
    assert tuner.merge_database(str(other), db=str(mine)).unproven == 0  # and stays so
    with Store.open(str(other)) as store:
        assert store.variant_origin(VARIANT.hash) is None


def test_an_unsound_database_is_not_merged(two: tuple[Path, Path]) -> None:
    mine, other = two
    with sqlite3.connect(other) as database:
        database.execute("UPDATE tuner_variant SET source = 'import os'")
    database.close()
    before = tuner.database_stats(db=str(mine)).tables
    with pytest.raises(StoreError, match=r"other\.db is not merged: tuner_variant .*: the source was changed"):
        tuner.merge_database(str(other), db=str(mine))
    assert tuner.database_stats(db=str(mine)).tables == before


def test_a_database_is_not_merged_into_itself(two: tuple[Path, Path]) -> None:
    mine, _ = two
    with pytest.raises(UsageError, match="cannot be merged into itself"):
        tuner.merge_database(str(mine), db=f"sqlite:///{mine}")


def test_a_winner_that_was_edited_in_one_database_is_the_same_in_both_afterwards(tmp_path: Path) -> None:
    mine, edited = tmp_path / "mine.db", tmp_path / "edited.db"
    with Store.open(str(mine)) as store:
        study = store.start_study(spec())
        trial = store.record_trial(study.id, timed(1), VARIANT)
        store.record_winner(study.id, WinnerRecord(trial, "winner", "first said", 10.0, 9.9, 10.1, False))
        store.finish_study(study.id, "finished", 1.0, 0.0)
    edited.write_bytes(mine.read_bytes())
    with sqlite3.connect(edited) as other:
        other.execute("UPDATE tuner_winner SET verdict = 'then said'")
    other.close()
    tuner.merge_database(str(edited), db=str(mine))
    tuner.merge_database(str(mine), db=str(edited))
    said = []
    for path in (mine, edited):
        with sqlite3.connect(path) as other:
            said.append(other.execute("SELECT verdict FROM tuner_winner").fetchall())
        other.close()
    assert said == [[("then said",)], [("then said",)]]


def test_another_name_of_a_file_is_the_same_database(two: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "soft.db").symlink_to(two[0])
    (tmp_path / "hard.db").hardlink_to(two[0])
    for name in ("soft.db", "hard.db"):
        with pytest.raises(UsageError, match="cannot be merged into itself"):
            tuner.merge_database(str(tmp_path / name), db=str(two[0]))


def test_a_merged_estimate_stays_one(tmp_path: Path) -> None:
    mine, other = str(tmp_path / "mine.db"), str(tmp_path / "other.db")
    with Store.open(other) as store:
        study = store.start_study(spec(stack=ESTIMATED_STACK))
        trial = store.record_trial(study.id, timed(1, 7.0), VARIANT)
        store.record_winner(study.id, WinnerRecord(trial, "winner", "by estimate", 7.0, 7.0, 7.0, True))
    tuner.merge_database(other, db=mine)
    assert tuner.best(PROBLEM, db=mine) is None
    assert tuner.best(PROBLEM, db=mine, estimated=True) is not None
