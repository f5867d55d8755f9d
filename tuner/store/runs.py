"""Which processes run a study, and which of them still live. Each function is one transaction's work.

A run has a lease: it gives signs of life, and what it holds is given back once it is known to be dead. On its own host
a process can be looked up; on another one it counts as dead a minute after its last sign of life.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from tuner.store.models import ClaimRow, RunRow, StudyRow
from tuner.store.owner import Owner
from tuner.store.rows import now

LEASE = timedelta(seconds=60)
"""How long a run of another host is taken to live after its last sign of life."""


def begin(connection: Connection, study_id: int) -> int:
    """Adds a run of this process. Those that are dead, or this process's own from before, are lost.

    Returns how many others run the study.
    """
    own, others, moment = Owner.current(), 0, clock(connection)
    for row in _open_runs(connection, [study_id]):
        if owner_of(row) != own and is_alive(row, moment):
            others += 1
        else:
            _lose(connection, row.id, moment)
    values = {"host": own.host, "pid": own.pid, "start": own.start, "started_at": moment, "heartbeat_at": moment}
    connection.execute(insert(RunRow).values(study_id=study_id, **values, wall_s=0.0, gpu_busy_s=0.0))
    return others


def own_run(connection: Connection, study_id: int) -> Row[Any] | None:
    """The run of this process, also one that others took for dead meanwhile; None where it runs no such study."""
    own = Owner.current()
    table = RunRow.__table__
    here = (table.c.study_id == study_id, table.c.host == own.host, table.c.pid == own.pid, table.c.start == own.start)
    return connection.execute(select(table).where(*here).order_by(table.c.id.desc()).limit(1)).one_or_none()


def sign_of_life(connection: Connection, study_id: int, wall_s: float | None, gpu_busy_s: float | None) -> bool:
    """A sign of life, and how far this run is. False where this process runs no such study."""
    if bad := [s for s in (wall_s, gpu_busy_s) if s is not None and not 0.0 <= s < math.inf]:
        raise ValueError(f"`wall_s` and `gpu_busy_s` must be finite and not negative, but got {bad[0]!r}")
    run = own_run(connection, study_id)
    if run is None:
        return False
    # A process that slept for longer than its lease was taken for dead; it lives.
    values: dict[str, Any] = {"heartbeat_at": clock(connection), "lost_at": None}
    totals: dict[str, Any] = {}
    for name, seconds in (("wall_s", wall_s), ("gpu_busy_s", gpu_busy_s)):
        if seconds is not None:
            values[name] = seconds
            totals[name] = getattr(StudyRow, name) + (seconds - getattr(run, name))
    connection.execute(update(RunRow).where(RunRow.id == run.id).values(**values))
    if totals:
        connection.execute(update(StudyRow).where(StudyRow.id == study_id).values(**totals))
    return True


def end(connection: Connection, study_id: int) -> int:
    """Ends this process's run and gives back what it holds. Returns how many others run it."""
    run = own_run(connection, study_id)
    if run is not None:
        connection.execute(delete(ClaimRow).where(ClaimRow.run_id == run.id))
        connection.execute(delete(RunRow).where(RunRow.id == run.id))
    moment = clock(connection)
    return sum(is_alive(row, moment) for row in _open_runs(connection, [study_id]))


def alive(connection: Connection, study_ids: Iterable[int]) -> set[int]:
    """Those of the studies that somebody runs."""
    moment = clock(connection)
    return {row.study_id for row in _open_runs(connection, study_ids) if is_alive(row, moment)}


def is_alive(row: Row[Any], moment: datetime) -> bool:
    """Whether the process of a run still runs."""
    owner = owner_of(row)
    if owner.is_local():
        return owner.is_alive()
    return bool(moment - row.heartbeat_at < LEASE)


def owner_of(row: Row[Any]) -> Owner:
    """The process of a run."""
    return Owner(row.host, row.pid, row.start)


def clock(connection: Connection) -> datetime:
    """This moment by the clock of the database, which is the same for all that use it."""
    if connection.dialect.name == "postgresql":
        moment: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return moment
    return now()  # SQLite is for one machine


def _open_runs(connection: Connection, study_ids: Iterable[int]) -> list[Row[Any]]:
    table = RunRow.__table__
    wanted = (table.c.study_id.in_(list(study_ids)), table.c.lost_at.is_(None))
    return list(connection.execute(select(table).where(*wanted).order_by(table.c.id)))


def _lose(connection: Connection, run_id: int, moment: datetime) -> None:
    connection.execute(delete(ClaimRow).where(ClaimRow.run_id == run_id))
    connection.execute(update(RunRow).where(RunRow.id == run_id).values(lost_at=moment))
