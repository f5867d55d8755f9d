"""Joins one database into another: nothing twice, and the same content in whatever order databases are joined.

Trials, measurements and everything that is keyed by content meet under their keys, studies under what they are, winners
under their ``uid``. Ids, the places of trials in studies, and studies' names are a database's own. Runs and claims are
not joined, nor are Optuna's tables: results reach a search through the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select, tuple_, update

from tuner.canonical import digest
from tuner.store.lattice import arriving_state, joined_content, joined_study, joined_trial, joined_winner
from tuner.store.models import (
    DeviceRow,
    MeasurementRow,
    ProblemRow,
    SpaceRow,
    StackRow,
    StudyRow,
    StudyTrialRow,
    TrialRow,
    VariantRow,
    WinnerRow,
)
from tuner.store.transactions import Database

Rows = Sequence[dict[str, Any]]
_CHUNK = 150  # rows a transaction: short ones, and no more values than SQLite takes
_CONTENT = ((DeviceRow, "key"), (StackRow, "key"), (ProblemRow, "key"), (SpaceRow, "digest"), (VariantRow, "id"))
_STUDY_KEY = ("problem_key", "device_key", "stack_key", "space_digest", "mode")
_TRIAL_KEY = ("problem_key", "device_key", "stack_key", "config_key", "variant_id")


def join(target: Database, source: Connection, origin: str | None) -> dict[str, int]:
    """Joins what ``source`` reads into ``target``; returns how many rows were added, by table.

    ``origin`` marks the variants that come with it (None: they keep the marks that they have, as a copy does). Each
    transaction is short, so others go on; where it is interrupted, doing it again does the rest.
    """
    added: dict[str, int] = {}

    def write(
        model: Any, chunks: Iterable[Rows], work: Callable[[Connection, Rows], tuple[int, dict[int, int]]]
    ) -> Any:
        ids: dict[int, int] = {}
        table = model.__table__.name
        added.setdefault(table, 0)
        for chunk in chunks:
            # The row number is bound now: the transaction may run again.
            count, found = target.write(lambda connection, rows=chunk: work(connection, rows))  # type: ignore[misc]
            added[table] += count
            ids.update(found)
        return ids

    for model, key in _CONTENT:
        table = model.__table__
        write(model, _read(source, table), lambda c, rows, t=table, k=key: (_content(c, t, k, rows, origin), {}))  # type: ignore[misc]
    studies = write(StudyRow, _read(source, StudyRow.__table__), _studies)
    trials = write(TrialRow, _read(source, TrialRow.__table__), _trials)
    at_trial = _renumbered(_read(source, MeasurementRow.__table__), trial_id=trials)
    write(MeasurementRow, at_trial, lambda c, rows: (_measurements(c, rows), {}))
    links = _renumbered(_read(source, StudyTrialRow.__table__), trial_id=trials, study_id=studies)
    write(StudyTrialRow, links, lambda c, rows: (_links(c, rows), {}))
    winners = _renumbered(_read(source, WinnerRow.__table__), trial_id=trials, study_id=studies)
    write(WinnerRow, winners, lambda c, rows: (_winners(c, rows), {}))
    return added


def _read(source: Connection, table: Any) -> Iterator[Rows]:
    order = table.primary_key.columns
    if table is StudyTrialRow.__table__:
        order = (table.c.study_id, table.c.ordinal)
    found = source.execution_options(yield_per=_CHUNK).execute(select(table).order_by(*order))
    for part in found.mappings().partitions():
        yield [dict(row) for row in part]


def _renumbered(chunks: Iterable[Rows], **ids: dict[int, int]) -> Iterator[Rows]:
    for chunk in chunks:
        yield [{**row, **{name: known[row[name]] for name, known in ids.items()}} for row in chunk]


def _content(connection: Connection, table: Table, key: str, rows: Rows, origin: str | None) -> int:
    known = _known(connection, table, (key,), rows)
    new = []
    for row in rows:
        arriving = dict(row)
        if "origin" in arriving and origin is not None:
            arriving["origin"] = row["origin"] or origin
        mine = known.get((row[key],))
        if mine is None:
            new.append(arriving)
            continue
        if "origin" in mine:
            arriving["origin"] = mine["origin"]  # what was rendered here is not from elsewhere
        _change(connection, table, mine, joined_content(mine, arriving), (key,))
    return _insert(connection, table, new)


def _studies(connection: Connection, rows: Rows) -> tuple[int, dict[int, int]]:
    table: Any = StudyRow.__table__
    known = _known(connection, table, _STUDY_KEY, rows)
    ids, count = {}, 0
    for row in rows:
        identity = tuple(row[name] for name in _STUDY_KEY)
        mine = known.get(identity)
        if mine is not None:
            ids[row["id"]] = mine["id"]
            _change(connection, table, mine, {**joined_study(mine, row), "id": mine["id"]}, ("id",))
            continue
        name = row["name"]
        if connection.execute(select(table.c.id).where(table.c.name == name)).first() is not None:
            name = f"{name}-{digest(list(identity))}"
        values = {**row, "name": name, "optuna_name": name, "state": arriving_state(row["state"])}
        del values["id"]
        done = connection.execute(insert(table).values(values))
        assert done.inserted_primary_key is not None
        ids[row["id"]] = int(done.inserted_primary_key[0])
        count += 1
    return count, ids


def _trials(connection: Connection, rows: Rows) -> tuple[int, dict[int, int]]:
    table: Any = TrialRow.__table__
    known = _known(connection, table, _TRIAL_KEY, rows)
    new = []
    for row in rows:
        mine = known.get(tuple(row[name] for name in _TRIAL_KEY))
        if mine is None:
            new.append({name: value for name, value in row.items() if name != "id"})
        else:
            theirs = {**row, "id": mine["id"]}
            _change(connection, table, mine, joined_trial(mine, theirs), ("id",))
    count = _insert(connection, table, new)
    if new:
        known = _known(connection, table, _TRIAL_KEY, rows)
    return count, {row["id"]: known[tuple(row[name] for name in _TRIAL_KEY)]["id"] for row in rows}


def _measurements(connection: Connection, rows: Rows) -> int:
    table: Any = MeasurementRow.__table__
    known = _known(connection, table, ("trial_id", "digest"), rows)
    new = []
    for row in rows:
        mine = known.get((row["trial_id"], row["digest"]))
        if mine is None:
            new.append({name: value for name, value in row.items() if name != "id"})
        else:
            first = {**mine, "created_at": min(mine["created_at"], row["created_at"])}
            _change(connection, table, mine, first, ("id",))
    return _insert(connection, table, new)


def _links(connection: Connection, rows: Rows) -> int:
    table: Any = StudyTrialRow.__table__
    # A study's row is taken before its places are given, as by everything that writes to a study.
    for study_id in sorted({row["study_id"] for row in rows}):
        connection.execute(select(StudyRow.id).where(StudyRow.id == study_id).with_for_update())
    known = _known(connection, table, ("study_id", "trial_id"), rows)
    places: dict[int, int] = {}
    new = []
    for row in rows:
        mine, study = known.get((row["study_id"], row["trial_id"])), row["study_id"]
        if mine is not None:
            both = {
                "reused": mine["reused"] and row["reused"],
                "created_at": min(mine["created_at"], row["created_at"]),
            }
            _change(connection, table, mine, {**mine, **both}, ("study_id", "trial_id"))
            continue
        if study not in places:
            last = connection.execute(select(func.max(table.c.ordinal)).where(table.c.study_id == study)).scalar_one()
            places[study] = 0 if last is None else last + 1
        new.append({**row, "ordinal": places[study]})
        places[study] += 1
    return _insert(connection, table, new)


def _winners(connection: Connection, rows: Rows) -> int:
    known = _known(connection, WinnerRow.__table__, ("uid",), rows)
    new = []
    for row in rows:
        mine = known.get((row["uid"],))
        if mine is None:
            new.append({name: value for name, value in row.items() if name != "id"})
        else:
            _change(connection, WinnerRow.__table__, mine, joined_winner(mine, row), ("id",))
    return _insert(connection, WinnerRow.__table__, new)


def _known(
    connection: Connection, table: Any, key: tuple[str, ...], rows: Rows
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of ``table`` that have the keys of ``rows``, by key."""
    columns = [table.c[name] for name in key]
    wanted = [tuple(row[name] for name in key) for row in rows]
    found = connection.execute(select(table).where(tuple_(*columns).in_(wanted))).mappings()
    return {tuple(row[name] for name in key): dict(row) for row in found}


def _insert(connection: Connection, table: Any, rows: list[dict[str, Any]]) -> int:
    if rows:
        connection.execute(insert(table), rows)
    return len(rows)


def _change(
    connection: Connection, table: Any, mine: dict[str, Any], joined: dict[str, Any], key: tuple[str, ...]
) -> None:
    changed = {name: value for name, value in joined.items() if value != mine[name]}
    if changed:
        connection.execute(update(table).where(*(table.c[name] == mine[name] for name in key)).values(**changed))
