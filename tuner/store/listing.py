"""Rows for ``tuner query``: trials, measurements or winners with what they belong to, filtered, sorted and grouped.

The tables of problems, devices and stacks are small, so what is asked of them is decided on values
(``tuner.querying``), and comes here as their keys, for which there are indexes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Select, Text, case, cast, func, literal_column, select
from sqlalchemy import column as named_column
from sqlalchemy.orm import aliased

from tuner.device import ESTIMATED
from tuner.store.models import DeviceRow, MeasurementRow, ProblemRow, StackRow, StudyRow, TrialRow, WinnerRow
from tuner.store.typed import typed_rows
from tuner.trial import Outcome

TRIALS, MEASUREMENTS, WINNERS = "trials", "measurements", "winners"
KINDS = (TRIALS, MEASUREMENTS, WINNERS)
COUNT, FASTEST, SLOWEST = "count", "fastest_us", "slowest_us"


@dataclass(frozen=True)
class Selection:
    """What is asked for. Keys of None admit everything; ``sort`` and ``group_by`` name columns or ``shapes``.

    ``sort`` pairs a name with whether the largest comes first. ``limit`` of None is no limit.
    """

    kind: str = TRIALS
    problem_keys: Collection[str] | None = None
    device_keys: Collection[str] | None = None
    stack_keys: Collection[str] | None = None
    outcomes: Collection[str] | None = (Outcome.TIMED.value,)
    templates: Collection[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    sort: tuple[tuple[str, bool], ...] = ()
    group_by: tuple[str, ...] = ()
    shapes: Collection[str] = field(default_factory=tuple)
    limit: int | None = None


def columns(kind: str) -> tuple[str, ...]:
    """The names of the columns of ``kind``, in their order."""
    return tuple(_columns(kind))


def rows(connection: Connection, selection: Selection) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """The names of the columns and the rows. A name that is no column is taken for one of ``shapes``."""
    statement = statement_for(selection)
    found = connection.execute(statement)
    return tuple(found.keys()), typed_rows(statement.selected_columns, found)


def statement_for(selection: Selection) -> Select[Any]:
    """The statement of a selection."""
    every = _columns(selection.kind)

    def column(name: str) -> ColumnElement[Any]:
        if name in selection.shapes and name not in every:
            size: ColumnElement[Any] = ProblemRow.__table__.c.shape[name].as_integer()
            return size
        return every[name]

    if selection.group_by:
        time = every["time_us"]
        aggregates = {COUNT: func.count(), FASTEST: func.min(time), SLOWEST: func.max(time)}
        keys = [column(name).label(name) for name in selection.group_by]
        grouped = {name: _groupable(name, column(name)) for name in selection.group_by}
        statement = select(*keys, *(value.label(name) for name, value in aggregates.items()))
        statement = statement.group_by(*grouped.values())
        order = {**grouped, **aggregates}
        ordering = selection.sort or tuple((name, False) for name in selection.group_by)
        statement = statement.order_by(*(_ordered(order[name], down) for name, down in ordering))
    else:
        statement = select(*(value.label(name) for name, value in every.items()))
        statement = statement.order_by(
            *(_ordered(column(name), down) for name, down in selection.sort), _identity(selection.kind).desc()
        )
    statement = statement.select_from(_source(selection.kind)).where(*_conditions(selection))
    return statement if selection.limit is None else statement.limit(selection.limit)


def _groupable(name: str, value: ColumnElement[Any]) -> ColumnElement[Any]:
    # An expression with values in it is another one each time that it is sent, so it is grouped by its name.
    return value if isinstance(value, Column) else named_column(name)


def _ordered(value: ColumnElement[Any], down: bool) -> ColumnElement[Any]:
    # Databases differ on where what is missing goes; it goes last.
    return (value.desc() if down else value.asc()).nulls_last()


def _columns(kind: str) -> Mapping[str, ColumnElement[Any]]:
    t, p, d, s = (model.__table__.c for model in (TrialRow, ProblemRow, DeviceRow, StackRow))
    basis = case((s.mode == ESTIMATED, ESTIMATED), else_="measured")
    context = {
        "operator": p.operator, "problem": p.label, "shape": p.shape, "dtype": p.dtype, "options": p.options,
        "device": d.name, "triton": s.triton, "torch": s.torch, "driver": s.driver, "basis": basis,
        "template": t.template, "config": t.label,
    }  # fmt: skip
    if kind == MEASUREMENTS:
        m = MeasurementRow.__table__.c
        return {
            "measurement": m.id, "trial": t.id, **context, "outcome": t.outcome, "stage": m.stage,
            "protocol": m.protocol, "time_us": m.median_us, "low_us": m.low_us, "high_us": m.high_us,
            "samples": m.sample_count, "variant": t.variant_id, "stack": s.key, "created_at": m.created_at,
        }  # fmt: skip
    if kind == WINNERS:
        w = WinnerRow.__table__.c
        return {
            "winner": w.id, "trial": t.id, **context, "time_us": w.median_us, "low_us": w.low_us,
            "high_us": w.high_us, "plain_us": w.plain_us, "gain": w.speedup, "kind": w.kind, "verdict": w.verdict,
            "study": StudyRow.__table__.c.name, "variant": t.variant_id, "stack": s.key, "created_at": w.created_at,
        }  # fmt: skip
    return {
        "trial": t.id, **context, "outcome": t.outcome, "reason": t.reason, "time_us": t.value_us,
        "variant": t.variant_id, "stack": s.key, "created_at": t.created_at,
    }  # fmt: skip


def _identity(kind: str) -> ColumnElement[Any]:
    model = {TRIALS: TrialRow, MEASUREMENTS: MeasurementRow, WINNERS: WinnerRow}[kind]
    column: ColumnElement[Any] = model.__table__.c.id
    return column


def _source(kind: str) -> Any:
    t = TrialRow.__table__.c
    joined: Any = TrialRow.__table__
    if kind == MEASUREMENTS:
        joined = MeasurementRow.__table__.join(joined, t.id == MeasurementRow.__table__.c.trial_id)
    if kind == WINNERS:
        w = WinnerRow.__table__.c
        joined = WinnerRow.__table__.join(joined, t.id == w.trial_id)
        joined = joined.join(StudyRow.__table__, StudyRow.__table__.c.id == w.study_id)
    for model, key in ((ProblemRow, t.problem_key), (DeviceRow, t.device_key), (StackRow, t.stack_key)):
        joined = joined.join(model.__table__, model.__table__.c.key == key)
    return joined


def _conditions(selection: Selection) -> list[ColumnElement[Any]]:
    t = TrialRow.__table__.c
    moment = _columns(selection.kind)["created_at"]
    wanted = (
        (t.problem_key, selection.problem_keys),
        (t.device_key, selection.device_keys),
        (t.stack_key, selection.stack_keys),
        (t.outcome, selection.outcomes),
        (t.template, selection.templates),
    )
    conditions: list[ColumnElement[Any]] = [column.in_(sorted(keys)) for column, keys in wanted if keys is not None]
    if selection.since is not None:
        conditions.append(moment >= selection.since)
    if selection.until is not None:
        conditions.append(moment <= selection.until)
    if selection.kind == WINNERS:
        conditions.append(_counting())
    return conditions


def _counting() -> ColumnElement[Any]:
    """Of each problem, device and basis the winner that counts, as in the view ``winners``."""
    w, t = aliased(WinnerRow), aliased(TrialRow)
    later, its_trial = aliased(WinnerRow), aliased(TrialRow)
    replaced = (
        select(literal_column("1"))
        .join_from(later, its_trial, its_trial.id == later.trial_id)
        .where(
            its_trial.outcome == Outcome.TIMED.value,
            later.study_id == w.study_id,
            cast(later.replaces, Text).contains(w.uid),
        )
        .exists()
    )
    place = (w.problem_key, w.device_key, w.estimated)
    # The stack is chosen before what was replaced is left out: a newest winner is never replaced.
    valid = (
        select(w.id, func.max(w.created_at).over(partition_by=(*place, w.stack_key)).label("stack_moment"))
        .join(t, t.id == w.trial_id)
        .where(t.outcome == Outcome.TIMED.value)
        .subquery()
    )
    order = (valid.c.stack_moment.desc(), w.stack_key, w.median_us, w.created_at, w.uid)
    ranked = (
        select(w.id, func.row_number().over(partition_by=place, order_by=order).label("place"))
        .join(valid, valid.c.id == w.id)
        .where(~replaced)
        .subquery()
    )
    return WinnerRow.id.in_(select(ranked.c.id).where(ranked.c.place == 1))
