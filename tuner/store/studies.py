"""Writes about studies: starting or resuming, the sign of life, the end. Each function is one transaction's work."""

from __future__ import annotations

import math
import re
import uuid
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, func, insert, or_, select, update

from tuner.canonical import digest
from tuner.errors import StoreError, StudyBusyError
from tuner.store.models import Base, DeviceRow, ProblemRow, SpaceRow, StackRow, StudyRow, StudyTrialRow
from tuner.store.owner import Owner
from tuner.store.records import FINISHED, INTERRUPTED, RUNNING, StudyRecord, StudySpec
from tuner.store.rows import device_values, now, problem_values, stack_values

HEARTBEAT_LIMIT = timedelta(seconds=60)
"""A study on another host whose last sign of life is older than this may be taken over."""


def start(connection: Connection, spec: StudySpec) -> StudyRecord:
    """Starts or resumes the study and makes this process its owner. Raises ``StudyBusyError``."""
    moment = now()
    ensure(connection, DeviceRow, "key", device_values(spec.device), moment)
    ensure(connection, StackRow, "key", stack_values(spec.stack), moment)
    ensure(connection, ProblemRow, "key", problem_values(spec.problem), moment)
    space = {"digest": spec.space_digest, "name": spec.space_name, "text": spec.space_text}
    ensure(connection, SpaceRow, "digest", space, moment)
    identity = {
        "problem_key": spec.problem.key,
        "device_key": spec.device.key,
        "stack_key": spec.stack.key,
        "space_digest": spec.space_digest,
        "mode": spec.stack.mode,
    }
    owner = Owner.current()
    run = {
        "sampler": spec.sampler,
        "seed": spec.seed,
        "state": RUNNING,
        "max_trials": spec.max_trials,
        "max_seconds": spec.max_seconds,
        "protocol": spec.protocol,
        "space_size": spec.space_size,
        "owner_host": owner.host,
        "owner_pid": owner.pid,
        "owner_start": owner.start,
        "heartbeat_at": moment,
        "updated_at": moment,
        "finished_at": None,
    }
    columns = StudyRow.__table__.c
    row = connection.execute(
        select(StudyRow.__table__).where(*(columns[k] == v for k, v in identity.items())).with_for_update()
    ).one_or_none()
    if row is None:
        name = _free_name(connection, spec)
        zero = dict.fromkeys(("wall_s", "wall_s_before", "gpu_busy_s", "gpu_busy_s_before"), 0.0)
        new = {"uid": uuid.uuid4().hex, "name": name, "optuna_name": name, "created_at": moment}
        done = connection.execute(insert(StudyRow).values(**identity, **run, **zero, **new))
        assert done.inserted_primary_key is not None
        return StudyRecord(done.inserted_primary_key[0], name, name, False, "", 0, 0.0, 0.0)
    if row.state == RUNNING and _owner(row) != owner and owner_lives(row, moment):
        age = (moment - row.heartbeat_at).total_seconds() if row.heartbeat_at else 0.0
        raise StudyBusyError(
            f"the study {row.name} is being run by process {row.owner_pid} on {row.owner_host} (last sign of life "
            f"{max(age, 0.0):.0f} s ago); wait for it, or stop it"
        )
    before = {"wall_s_before": row.wall_s, "gpu_busy_s_before": row.gpu_busy_s}
    connection.execute(update(StudyRow).where(StudyRow.id == row.id).values(**run, **before))
    count = select(func.count()).select_from(StudyTrialRow).where(StudyTrialRow.study_id == row.id)
    trials = connection.execute(count).scalar_one()
    return StudyRecord(row.id, row.name, row.optuna_name, True, row.state, trials, row.wall_s, row.gpu_busy_s)


def heartbeat(connection: Connection, study_id: int, wall_s: float | None, gpu_busy_s: float | None) -> bool:
    """A sign of life, and how far this run is. False where the study is no longer this process's."""
    progress = _progress(wall_s, gpu_busy_s)
    statement = update(StudyRow).where(StudyRow.id == study_id, StudyRow.state == RUNNING, _is_ours())
    return connection.execute(statement.values(heartbeat_at=now(), **progress)).rowcount == 1


def finish(connection: Connection, study_id: int, state: str, wall_s: float, gpu_busy_s: float) -> None:
    """The end of this run. A study that another process has taken over meanwhile is left to that one."""
    if state not in (FINISHED, INTERRUPTED):
        raise ValueError(f"`state` must be finished or interrupted, but got {state!r}")
    moment = now()
    values: dict[str, Any] = {
        "state": state,
        "updated_at": moment,
        "finished_at": moment if state == FINISHED else None,
        **dict.fromkeys(("owner_host", "owner_pid", "owner_start", "heartbeat_at")),
        **_progress(wall_s, gpu_busy_s),
    }
    ours = or_(StudyRow.owner_pid.is_(None), _is_ours())
    connection.execute(update(StudyRow).where(StudyRow.id == study_id, ours).values(**values))


def owner_lives(row: Row[Any], moment: datetime) -> bool:
    """Whether the process that a study's row names is still running it."""
    owner = _owner(row)
    if owner is None:
        return False
    if owner.is_local():
        return owner.is_alive()
    return row.heartbeat_at is not None and moment - row.heartbeat_at < HEARTBEAT_LIMIT


def locked(connection: Connection, study_id: int) -> Row[Any]:
    """The study's row, kept from other writers until the transaction ends. Raises ``StoreError``."""
    row = connection.execute(select(StudyRow.__table__).where(StudyRow.id == study_id).with_for_update()).one_or_none()
    if row is None:
        raise StoreError(f"there is no study {study_id} in this database")
    return row


def ensure(connection: Connection, model: type[Base], key: str, values: dict[str, Any], moment: datetime) -> None:
    """Adds the row unless its key is there. What is keyed by its content never changes."""
    column = model.__table__.c[key]
    if connection.execute(select(column).where(column == values[key])).first() is None:
        connection.execute(insert(model).values(**values, created_at=moment))


def _owner(row: Row[Any]) -> Owner | None:
    return None if row.owner_pid is None else Owner(row.owner_host, row.owner_pid, row.owner_start)


def _is_ours() -> Any:
    owner = Owner.current()
    return (
        (StudyRow.owner_host == owner.host) & (StudyRow.owner_pid == owner.pid) & (StudyRow.owner_start == owner.start)
    )


def _progress(wall_s: float | None, gpu_busy_s: float | None) -> dict[str, Any]:
    if bad := [s for s in (wall_s, gpu_busy_s) if s is not None and not 0.0 <= s < math.inf]:
        raise ValueError(f"`wall_s` and `gpu_busy_s` must be finite and not negative, but got {bad[0]!r}")
    values: dict[str, Any] = {}
    if wall_s is not None:
        values["wall_s"] = StudyRow.wall_s_before + wall_s
    if gpu_busy_s is not None:
        values["gpu_busy_s"] = StudyRow.gpu_busy_s_before + gpu_busy_s
    return values


def _free_name(connection: Connection, spec: StudySpec) -> str:
    device = re.sub(r"[^a-z0-9]+", "-", spec.device.name.lower()).strip("-")[:60]
    words = [spec.problem.operator, spec.problem.key[:8], device]
    if spec.stack.mode != "measured":
        words.append(spec.stack.mode)
    name = "-".join([*words, spec.space_digest[:6]])
    # The same search on another software stack is another study.
    identity = digest([spec.problem.key, spec.device.key, spec.stack.key, spec.space_digest])
    candidates = [name, f"{name}-{spec.stack.key[:6]}", f"{name}-{identity}"]
    taken = set(connection.execute(select(StudyRow.name).where(StudyRow.name.in_(candidates))).scalars())
    return next(c for c in candidates if c not in taken)
