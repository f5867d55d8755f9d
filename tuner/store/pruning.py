"""Deletes old results that nothing needs. Each function is one transaction's work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Text, cast, delete, exists, func, select

from tuner.store import runs
from tuner.store.models import (
    ClaimRow,
    DeviceRow,
    MeasurementRow,
    ProblemRow,
    RunRow,
    SpaceRow,
    StackRow,
    StudyRow,
    StudyTrialRow,
    TrialRow,
    VariantRow,
    WinnerRow,
)
from tuner.store.records import RUNNING

CHUNK = 500
_WIDE = (
    (MeasurementRow, ("samples_us", "rounds", "processes", "states", "notes")),
    (TrialRow, ("label", "config", "reason", "compile_report", "check_report", "seconds")),
)


def unneeded(connection: Connection, before: datetime, operator: str | None) -> tuple[list[int], int]:
    """Trials that were last changed before ``before``: those that nothing needs, and how many others there are.

    Needed is what a winner chose, compared with or tied with, the twins that were measured in place of those, and all
    of a study that a living process runs.
    """
    old = select(TrialRow.id, TrialRow.problem_key, TrialRow.device_key, TrialRow.stack_key, TrialRow.config_key)
    old = old.where(TrialRow.updated_at < before)
    if operator is not None:
        old = old.where(TrialRow.problem_key.in_(select(ProblemRow.key).where(ProblemRow.operator == operator)))
    by_id, by_key = _of_winners(connection)
    by_key |= _twins(connection, by_id, by_key)
    running = _running(connection)
    free, kept = [], 0
    for row in connection.execute(old.order_by(TrialRow.id)):
        place = (row.problem_key, row.device_key, row.stack_key)
        if row.id in by_id or (*place, row.config_key) in by_key or place in running:
            kept += 1
        else:
            free.append(row.id)
    return free, kept


def content_bytes(connection: Connection, trial_ids: Sequence[int]) -> int:
    """About how many bytes the trials and their measurements hold: the text of what is long."""
    total = 0
    for part in parts(trial_ids):
        for model, names in _WIDE:
            columns = model.__table__.c
            long = sum((func.coalesce(func.length(cast(columns[name], Text)), 0) for name in names[1:]),
                       func.coalesce(func.length(cast(columns[names[0]], Text)), 0))  # fmt: skip
            which = columns["trial_id"] if model is MeasurementRow else columns["id"]
            total += connection.execute(select(func.coalesce(func.sum(long), 0)).where(which.in_(part))).scalar_one()
    return int(total)


def count_rows(connection: Connection, trial_ids: Sequence[int]) -> dict[str, int]:
    """Rows that go with the trials, by table."""
    found = {TrialRow.__tablename__: len(trial_ids)}
    for model in (MeasurementRow, StudyTrialRow):
        columns: Any = model.__table__.c
        counted = [
            connection.execute(select(func.count()).where(columns.trial_id.in_(part))).scalar_one()
            for part in parts(trial_ids)
        ]
        found[model.__tablename__] = sum(counted)
    return found


def delete_trials(connection: Connection, trial_ids: Sequence[int]) -> None:
    """Deletes trials with their measurements and their places in studies.

    Those stay that a winner chose, or that belong to a study which a process runs, since it was decided that they go.
    """
    chosen = set(connection.execute(select(WinnerRow.trial_id).where(WinnerRow.trial_id.in_(trial_ids))).scalars())
    running = _running(connection)
    places = select(TrialRow.id, TrialRow.problem_key, TrialRow.device_key, TrialRow.stack_key)
    free = [
        row.id
        for row in connection.execute(places.where(TrialRow.id.in_(trial_ids)))
        if row.id not in chosen and (row.problem_key, row.device_key, row.stack_key) not in running
    ]
    for model in (MeasurementRow, StudyTrialRow):
        columns: Any = model.__table__.c
        connection.execute(delete(model).where(columns.trial_id.in_(free)))
    connection.execute(delete(TrialRow).where(TrialRow.id.in_(free)))


def delete_orphans(connection: Connection, before: datetime) -> dict[str, int]:
    """Deletes lost runs, old studies without a trial, and what nothing names any more. Returns the rows by table."""
    removed: dict[str, int] = {}

    def remove(model: Any, *conditions: Any) -> None:
        removed[model.__tablename__] = connection.execute(delete(model).where(*conditions)).rowcount

    lost = select(RunRow.id).where(RunRow.heartbeat_at < before)
    alive = {
        row.id for row in connection.execute(select(RunRow.__table__)) if runs.is_alive(row, runs.clock(connection))
    }
    remove(ClaimRow, ClaimRow.run_id.in_(lost), ClaimRow.run_id.not_in(alive))
    remove(RunRow, RunRow.heartbeat_at < before, RunRow.id.not_in(alive))
    remove(
        StudyRow,
        StudyRow.updated_at < before,
        ~exists().where(StudyTrialRow.study_id == StudyRow.id),
        ~exists().where(WinnerRow.study_id == StudyRow.id),
        ~exists().where(RunRow.study_id == StudyRow.id),
    )
    remove(VariantRow, VariantRow.created_at < before, ~exists().where(TrialRow.variant_id == VariantRow.id))
    remove(SpaceRow, SpaceRow.created_at < before, ~exists().where(StudyRow.space_digest == SpaceRow.digest))
    for model, name in ((ProblemRow, "problem_key"), (DeviceRow, "device_key"), (StackRow, "stack_key")):
        unused = [~exists().where(getattr(user, name) == model.key) for user in (TrialRow, StudyRow, WinnerRow)]
        remove(model, model.created_at < before, *unused)
    return removed


def parts(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """``ids`` in parts that one statement takes."""
    return (ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK))


def _of_winners(connection: Connection) -> tuple[set[int], set[tuple[str, str, str, str]]]:
    """Trials that winners chose, and configs by place that they name."""
    by_id, by_key = set(), set()
    for row in connection.execute(select(WinnerRow.__table__)):
        by_id.add(row.trial_id)
        named = {row.plain_key, *row.tie_set, *(str(f.get("key", "")) for f in row.finalists)}
        by_key |= {(row.problem_key, row.device_key, row.stack_key, key) for key in named}
    return by_id, by_key


def _twins(
    connection: Connection, by_id: set[int], by_key: set[tuple[str, str, str, str]]
) -> set[tuple[str, str, str, str]]:
    """The configs, by place, that were measured in place of what winners need: one binary is measured once."""
    columns = TrialRow.__table__.c
    names = ("id", "problem_key", "device_key", "stack_key", "config_key", "same_as")
    twins = connection.execute(select(*(columns[name] for name in names)).where(columns.same_as != "")).all()
    found: set[tuple[str, str, str, str]] = set()
    added = True
    while added:  # a twin's twin may have been measured
        added = False
        for row in twins:
            place = (row.problem_key, row.device_key, row.stack_key)
            key = (*place, row.config_key)
            needed = row.id in by_id or key in by_key or key in found
            if needed and (*place, row.same_as) not in found:
                found.add((*place, row.same_as))
                added = True
    return found


def _running(connection: Connection) -> set[tuple[str, str, str]]:
    rows = connection.execute(select(StudyRow.__table__).where(StudyRow.state == RUNNING)).all()
    alive = runs.alive(connection, [row.id for row in rows])
    return {(row.problem_key, row.device_key, row.stack_key) for row in rows if row.id in alive}
