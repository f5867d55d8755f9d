"""Reads for comparisons over time, stacks and templates. Samples are read for the measurements asked for only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, exists, func, select

from tuner.config import Config
from tuner.device import Device, Stack
from tuner.store.history_records import (
    CONFIRMED_STAGES,
    Catalogue,
    Key,
    MeasurementHead,
    Repeat,
    Samples,
    StackUse,
    TrialAt,
    WinnerAt,
)
from tuner.store.listing import Selection, rows
from tuner.store.models import DeviceRow, MeasurementRow, ProblemRow, StackRow, TrialRow, VariantRow, WinnerRow
from tuner.store.rows import problem_of
from tuner.store.transactions import Database
from tuner.trial import Outcome

# Placeholders of one statement: SQLite takes 32766, older ones 999.
_MANY = 200
# SQLite uses no index for a list of rows, but one for a list of each column: these few keys have few combinations.
_FEW = 20
_LARGEST_ID = 2**63 - 1
T = TypeVar("T")


class History:
    """The reads of one open database. Every method is one transaction; raises ``StoreError``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def catalogue(self) -> Catalogue:
        """Every problem, device and stack by key."""
        return self._database.read(_catalogue)

    def rows(self, selection: Selection) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The names of the columns and the rows of a selection."""
        return self._database.read(lambda c: rows(c, selection))

    def stack_uses(self, mode: str) -> list[StackUse]:
        """Which stacks of ``mode`` have trials on which devices, the stack stored first first."""
        return self._database.read(lambda c: _stack_uses(c, mode))

    def winners(self, *, estimated: bool) -> list[WinnerAt]:
        """Every winner, the newest first."""
        return self._database.read(lambda c: [_winner(row) for row in c.execute(winners_statement(estimated))])

    def trials(self, keys: Iterable[Key]) -> list[TrialAt]:
        """The trials at ``keys`` (one for each variant that was tried there), in the order stored."""
        wanted = set(keys)
        found = self._in_parts(sorted(wanted), trials_statement, _trial, _FEW)
        there = [t for t in found if (t.problem_key, t.device_key, t.stack_key, t.config_key) in wanted]
        return sorted(there, key=lambda t: t.id)

    def measurements(self, trial_ids: Iterable[int]) -> list[MeasurementHead]:
        """The measurements of trials, without samples, oldest first."""
        return self._in_parts(sorted(set(trial_ids)), measurements_statement, _head)

    def samples(self, measurement_ids: Iterable[int]) -> dict[int, Samples]:
        """The samples of measurements, by the measurement's id."""
        return dict(self._in_parts(sorted(set(measurement_ids)), samples_statement, _samples))

    def trial_of(self, measurement_id: int) -> int | None:
        """The trial that a measurement is of; None where there is no such measurement."""
        if measurement_id > _LARGEST_ID:
            return None  # SQLite's driver refuses to ask for it
        m = MeasurementRow.__table__.c
        statement = select(m.trial_id).where(m.id == measurement_id)
        return self._database.read(lambda c: c.execute(statement).scalar_one_or_none())

    def repeats(self, mode: str) -> list[Repeat]:
        """The confirmed measurements of each trial that has several on stacks of ``mode``, by trial, oldest first."""
        return self._database.read(lambda c: [Repeat(*row) for row in c.execute(repeats_statement(mode))])

    def _in_parts(
        self,
        wanted: Sequence[Any],
        statement: Callable[[Sequence[Any]], Select[Any]],
        value: Callable[[Row[Any]], T],
        part: int = _MANY,
    ) -> list[T]:
        def read(connection: Connection) -> Iterator[T]:
            for start in range(0, len(wanted), part):
                yield from map(value, connection.execute(statement(wanted[start : start + part])))

        return self._database.read(lambda c: list(read(c)))


def winners_statement(estimated: bool) -> Select[Any]:
    """Winners with what a comparison needs of their trials."""
    w, t = WinnerRow.__table__.c, TrialRow.__table__.c
    return (
        select(
            w.id, w.study_id, w.trial_id, w.problem_key, w.device_key,
            w.stack_key, w.median_us, w.plain_key, w.created_at, w.uid, w.replaces,
            t.config, t.variant_id, t.outcome, t.reason, t.updated_at,
            VariantRow.template_hash,
        )
        .join(TrialRow, t.id == w.trial_id)
        .join(VariantRow, VariantRow.id == t.variant_id)
        .where(w.estimated.is_(estimated))
        .order_by(w.created_at.desc(), w.id.desc())
    )  # fmt: skip


def trials_statement(keys: Sequence[Key]) -> Select[Any]:
    """The trials at ``keys``, and at every other combination of their parts."""
    t = TrialRow.__table__.c
    places = zip((t.problem_key, t.device_key, t.stack_key, t.config_key), zip(*keys, strict=True), strict=True)
    return (
        select(
            t.id, t.problem_key, t.device_key, t.stack_key, t.config_key, t.variant_id, t.outcome, t.reason, t.same_as,
            t.created_at, t.updated_at, VariantRow.template_hash,
        )
        .join(VariantRow, VariantRow.id == t.variant_id)
        .where(*(column.in_(sorted(set(values))) for column, values in places))
    )  # fmt: skip


def measurements_statement(trial_ids: Sequence[int]) -> Select[Any]:
    """The measurements of ``trial_ids``, without samples."""
    m = MeasurementRow.__table__.c
    return (
        select(m.id, m.trial_id, m.stage, m.protocol, m.median_us, m.sample_count, m.created_at)
        .where(m.trial_id.in_(trial_ids))
        .order_by(m.id)
    )


def samples_statement(measurement_ids: Sequence[int]) -> Select[Any]:
    """The samples of ``measurement_ids``."""
    m = MeasurementRow.__table__.c
    return select(m.id, m.samples_us, m.rounds, m.processes, m.states).where(m.id.in_(measurement_ids))


def repeats_statement(mode: str) -> Select[Any]:
    """The confirmed measurements of trials on stacks of ``mode`` that have several."""
    m = MeasurementRow.__table__.c
    confirmed = m.stage.in_(CONFIRMED_STAGES)
    several = select(m.trial_id).where(confirmed).group_by(m.trial_id).having(func.count() > 1)
    return (
        select(TrialRow.device_key, m.trial_id, m.median_us)
        .join(TrialRow, TrialRow.id == m.trial_id)
        .join(StackRow, StackRow.key == TrialRow.stack_key)
        .where(confirmed, m.trial_id.in_(several), StackRow.mode == mode)
        .order_by(m.trial_id, m.id)
    )


def _catalogue(connection: Connection) -> Catalogue:
    problems = connection.execute(
        select(ProblemRow.key, ProblemRow.operator, ProblemRow.shape, ProblemRow.dtype, ProblemRow.options)
    )
    return Catalogue(
        problems={row.key: problem_of(row) for row in problems},
        devices={r.key: Device.from_json(r.data) for r in connection.execute(select(DeviceRow.key, DeviceRow.data))},
        stacks={r.key: Stack.from_json(r.data) for r in connection.execute(select(StackRow.key, StackRow.data))},
    )


def _stack_uses(connection: Connection, mode: str) -> list[StackUse]:
    used = exists().where(TrialRow.device_key == DeviceRow.key, TrialRow.stack_key == StackRow.key)
    statement = (
        select(DeviceRow.key.label("device_key"), StackRow.key, StackRow.data, StackRow.created_at)
        .join_from(DeviceRow, StackRow, StackRow.mode == mode)
        .where(used)
        .order_by(StackRow.created_at, StackRow.key)
    )
    return [
        StackUse(row.device_key, row.key, Stack.from_json(row.data), row.created_at)
        for row in connection.execute(statement)
    ]


def _winner(row: Row[Any]) -> WinnerAt:
    return WinnerAt(
        id=row.id,
        study_id=row.study_id,
        trial_id=row.trial_id,
        problem_key=row.problem_key,
        device_key=row.device_key,
        stack_key=row.stack_key,
        config=Config.from_json(row.config),
        variant_hash=row.variant_id,
        template_hash=row.template_hash,
        outcome=Outcome(row.outcome),
        reason=row.reason,
        median_us=row.median_us,
        plain_key=row.plain_key,
        created_at=row.created_at,
        changed_at=row.updated_at,
        uid=row.uid,
        replaces=tuple(row.replaces or ()),
    )


def _trial(row: Row[Any]) -> TrialAt:
    return TrialAt(
        id=row.id,
        problem_key=row.problem_key,
        device_key=row.device_key,
        stack_key=row.stack_key,
        config_key=row.config_key,
        variant_hash=row.variant_id,
        template_hash=row.template_hash,
        outcome=Outcome(row.outcome),
        reason=row.reason,
        same_as=row.same_as,
        created_at=row.created_at,
        changed_at=row.updated_at,
    )


def _head(row: Row[Any]) -> MeasurementHead:
    return MeasurementHead(
        row.id, row.trial_id, row.stage, row.protocol, row.median_us, row.sample_count, row.created_at
    )


def _samples(row: Row[Any]) -> tuple[int, Samples]:
    us, states = tuple(row.samples_us), row.states
    # The search's first look reads the card once for all of its samples.
    states = states * len(us) if len(states) == 1 else states if len(states) == len(us) else []
    return row.id, Samples(
        us=us,
        rounds=tuple(row.rounds),
        processes=tuple(row.processes),
        sm_clocks=tuple(float(s["sm_clock_mhz"]) for s in states),
        memory_clocks=tuple(float(s["memory_clock_mhz"]) for s in states),
        throttles=tuple(tuple(s["throttle_reasons"]) for s in states),
    )
