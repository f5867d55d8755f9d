"""Reads about studies: one line each, or everything about one. Each function is one transaction's work."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from tuner.device import Device, Stack
from tuner.errors import UsageError
from tuner.store import runs, trials, winners
from tuner.store.models import DeviceRow, ProblemRow, SpaceRow, StackRow, StudyRow, StudyTrialRow, TrialRow, WinnerRow
from tuner.store.records import (
    INTERRUPTED,
    RUNNING,
    Refusal,
    StoredTrial,
    StudyDetail,
    StudySummary,
    StudyTrial,
)
from tuner.store.rows import problem_of, trial_of, winner_of
from tuner.trial import Outcome

_CLOSE = 3
_MANY = 500


def studies(
    connection: Connection, operator: str | None, device: str | None, state: str | None, limit: int | None
) -> list[StudySummary]:
    """See ``Store.studies``."""
    statement = _study_rows().order_by(StudyRow.updated_at.desc(), StudyRow.id.desc())
    if operator is not None:
        statement = statement.where(ProblemRow.operator == operator)
    if device is not None:
        statement = statement.where(func.lower(DeviceRow.name).contains(device.lower(), autoescape=True))
    rows = connection.execute(statement).all()
    if state is not None:
        running = _running(connection, rows)
        rows = [row for row in rows if _state(row, running) == state]
    chosen = rows[:limit]
    parts = (chosen[start : start + _MANY] for start in range(0, len(chosen), _MANY))
    return [summary for part in parts for summary in _summaries(connection, part)]


def study(connection: Connection, reference: str | int) -> StudyDetail:
    """See ``Store.study``."""
    row = connection.execute(_study_rows().where(StudyRow.id == _study_id(connection, str(reference)))).one()
    links = connection.execute(
        select(TrialRow.__table__, StudyTrialRow.ordinal, StudyTrialRow.reused)
        .join(StudyTrialRow, StudyTrialRow.trial_id == TrialRow.id)
        .where(StudyTrialRow.study_id == row.id)
        .order_by(StudyTrialRow.ordinal)
    ).all()
    measured = trials.measurements_of(connection, [link.id for link in links])
    tried = tuple(StudyTrial(ln.ordinal, ln.reused, trial_of(ln, measured.get(ln.id, ()))) for ln in links)
    chosen = connection.execute(winners.statement_for_winners().where(WinnerRow.study_id == row.id)).all()
    space = connection.execute(select(SpaceRow.name, SpaceRow.text).where(SpaceRow.digest == row.space_digest)).one()
    return StudyDetail(
        summary=_summaries(connection, [row])[0],
        device=Device.from_json(row.device_data),
        space_name=space.name,
        space_text=space.text,
        optuna_name=row.optuna_name,
        trials=tried,
        refusals=refusals([t.trial for t in tried]),
        winner=winner_of(winners.counting(chosen)) if chosen else None,
    )


def refusals(tried: Sequence[StoredTrial]) -> tuple[Refusal, ...]:
    """Groups the trials that were not timed by outcome and reason; reasons that differ in numbers only are one."""
    groups: dict[tuple[Outcome, str], list[StoredTrial]] = {}
    for trial in tried:
        if trial.outcome is not Outcome.TIMED:
            groups.setdefault((trial.outcome, re.sub(r"\d+(\.\d+)?", "#", trial.reason)), []).append(trial)
    found = [Refusal(g[0].outcome, g[0].reason, len(g), g[0].config.label) for g in groups.values()]
    return tuple(sorted(found, key=lambda r: -r.count))


def _study_rows() -> Any:
    return (
        select(
            StudyRow.__table__,
            ProblemRow.operator,
            ProblemRow.shape,
            ProblemRow.dtype,
            ProblemRow.options,
            DeviceRow.name.label("device_name"),
            DeviceRow.data.label("device_data"),
            StackRow.data.label("stack_data"),
        )
        .join(ProblemRow, ProblemRow.key == StudyRow.problem_key)
        .join(DeviceRow, DeviceRow.key == StudyRow.device_key)
        .join(StackRow, StackRow.key == StudyRow.stack_key)
    )


def _study_id(connection: Connection, reference: str) -> int:
    rows = connection.execute(select(StudyRow.id, StudyRow.name).order_by(StudyRow.id)).all()
    by_name: dict[str, int] = {row.name: row.id for row in rows}
    if reference in by_name:
        return by_name[reference]
    if reference.isascii() and reference.isdigit() and int(reference) in by_name.values():
        return int(reference)
    if not rows:
        raise UsageError("there is no study in this database yet; run `tuner tune` first")
    begin = [name for name in by_name if reference and name.startswith(reference)]
    if len(begin) == 1:
        return by_name[begin[0]]
    if begin:
        raise UsageError(
            f"several studies begin with {reference!r}: {', '.join(begin[:_CLOSE])}; give more of the name"
        )
    close = difflib.get_close_matches(reference, by_name, _CLOSE, 0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`tuner studies` lists them"
    raise UsageError(f"there is no study {reference!r}; {hint}")


def _running(connection: Connection, rows: Sequence[Row[Any]]) -> set[int]:
    """Those of the studies that say ``running`` and that a living process runs."""
    ids = [row.id for row in rows if row.state == RUNNING]
    parts = (ids[start : start + _MANY] for start in range(0, len(ids), _MANY))
    return {study_id for part in parts for study_id in runs.alive(connection, part)}


def _state(row: Row[Any], running: set[int]) -> str:
    return INTERRUPTED if row.state == RUNNING and row.id not in running else str(row.state)


def _summaries(connection: Connection, rows: Sequence[Row[Any]]) -> list[StudySummary]:
    ids = [row.id for row in rows]
    counts: dict[int, dict[str, int]] = {i: {} for i in ids}
    reused: dict[int, int] = dict.fromkeys(ids, 0)
    counted = (
        select(StudyTrialRow.study_id, TrialRow.outcome, StudyTrialRow.reused, func.count().label("trials"))
        .join(TrialRow, TrialRow.id == StudyTrialRow.trial_id)
        .where(StudyTrialRow.study_id.in_(ids))
        .group_by(StudyTrialRow.study_id, TrialRow.outcome, StudyTrialRow.reused)
    )
    for study_id, outcome, was_known, number in connection.execute(counted):
        counts[study_id][outcome] = counts[study_id].get(outcome, 0) + number
        reused[study_id] += number if was_known else 0
    best = {row.study_id: row for row in connection.execute(_fastest(ids))}
    chosen: dict[int, list[Row[Any]]] = {}
    standing = select(WinnerRow.__table__, TrialRow.label).join(TrialRow, TrialRow.id == WinnerRow.trial_id)
    standing = standing.where(WinnerRow.study_id.in_(ids), TrialRow.outcome == Outcome.TIMED.value)
    for row in connection.execute(standing):
        chosen.setdefault(row.study_id, []).append(row)
    counted_winners = {study_id: winners.counting(several) for study_id, several in chosen.items()}
    running = _running(connection, rows)
    return [
        _summary(
            row, _state(row, running), counts[row.id], reused[row.id], best.get(row.id), counted_winners.get(row.id)
        )
        for row in rows
    ]


def _fastest(study_ids: Sequence[int]) -> Any:
    rank = func.row_number().over(partition_by=StudyTrialRow.study_id, order_by=(TrialRow.value_us, TrialRow.id))
    ranked = (
        select(StudyTrialRow.study_id, TrialRow.label, TrialRow.value_us, rank.label("place"))
        .join(TrialRow, TrialRow.id == StudyTrialRow.trial_id)
        .where(StudyTrialRow.study_id.in_(study_ids), TrialRow.outcome == Outcome.TIMED.value)
        .subquery()
    )
    return select(ranked).where(ranked.c.place == 1)


def _summary(
    row: Row[Any],
    state: str,
    outcomes: dict[str, int],
    reused: int,
    fastest: Row[Any] | None,
    winner: Row[Any] | None,
) -> StudySummary:
    best_us = winner.median_us if winner is not None else fastest.value_us if fastest is not None else None
    named = winner if winner is not None else fastest
    return StudySummary(
        id=row.id,
        name=row.name,
        problem=problem_of(row),
        device_name=row.device_name,
        stack=Stack.from_json(row.stack_data),
        mode=row.mode,
        state=state,
        sampler=row.sampler,
        seed=row.seed,
        protocol=row.protocol,
        space_digest=row.space_digest,
        space_size=row.space_size,
        max_trials=row.max_trials,
        max_seconds=row.max_seconds,
        trials=sum(outcomes.values()),
        reused=reused,
        outcomes=outcomes,
        best_us=best_us,
        best_label="" if named is None else named.label,
        plain_us=winner.plain_us if winner is not None else None,
        speedup=winner.speedup if winner is not None else None,
        verdict=winner.verdict if winner is not None else "",
        wall_s=row.wall_s,
        gpu_busy_s=row.gpu_busy_s,
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
    )
