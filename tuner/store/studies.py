"""Writes about studies: starting, resuming or joining one, the end. Each function is one transaction's work."""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from tuner.canonical import digest
from tuner.errors import StoreError
from tuner.store import runs
from tuner.store.models import Base, DeviceRow, ProblemRow, SpaceRow, StackRow, StudyRow, StudyTrialRow
from tuner.store.records import FINISHED, INTERRUPTED, RUNNING, StudyRecord, StudySpec
from tuner.store.rows import device_values, now, problem_values, stack_values


def start(connection: Connection, spec: StudySpec) -> StudyRecord:
    """Starts, resumes or joins the study: this process runs it from now on, beside others that do."""
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
    run = {
        "sampler": spec.sampler,
        "seed": spec.seed,
        "state": RUNNING,
        "max_trials": spec.max_trials,
        "max_seconds": spec.max_seconds,
        "protocol": spec.protocol,
        "space_size": spec.space_size,
        "updated_at": moment,
        "finished_at": None,
    }
    columns = StudyRow.__table__.c
    row = connection.execute(
        select(StudyRow.__table__).where(*(columns[k] == v for k, v in identity.items())).with_for_update()
    ).one_or_none()
    if row is None:
        name = _free_name(connection, spec)
        new = {"uid": uuid.uuid4().hex, "name": name, "optuna_name": name, "created_at": moment}
        zero = {"wall_s": 0.0, "gpu_busy_s": 0.0}
        done = connection.execute(insert(StudyRow).values(**identity, **run, **zero, **new))
        assert done.inserted_primary_key is not None
        study_id = int(done.inserted_primary_key[0])
        runs.begin(connection, study_id)
        return StudyRecord(study_id, name, name, False, "", 0, 0.0, 0.0, 0)
    others = runs.begin(connection, row.id)
    connection.execute(update(StudyRow).where(StudyRow.id == row.id).values(**run))
    count = select(func.count()).select_from(StudyTrialRow).where(StudyTrialRow.study_id == row.id)
    trials = connection.execute(count).scalar_one()
    return StudyRecord(row.id, row.name, row.optuna_name, True, row.state, trials, row.wall_s, row.gpu_busy_s, others)


def finish(connection: Connection, study_id: int, state: str, wall_s: float, gpu_busy_s: float) -> None:
    """The end of this run. The study goes on running where other processes run it."""
    if state not in (FINISHED, INTERRUPTED):
        raise ValueError(f"`state` must be finished or interrupted, but got {state!r}")
    # The row is taken first, as everything that writes to a study does: in another order two could wait for each other.
    locked(connection, study_id)
    runs.sign_of_life(connection, study_id, wall_s, gpu_busy_s)
    moment = now()
    values: dict[str, Any] = {"updated_at": moment}
    if not runs.end(connection, study_id):
        values |= {"state": state, "finished_at": moment if state == FINISHED else None}
    connection.execute(update(StudyRow).where(StudyRow.id == study_id).values(**values))


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
