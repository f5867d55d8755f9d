"""Claims: of several processes, one at a time works on a config. Each function is one transaction's work."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from tuner.config import Config
from tuner.errors import StoreError
from tuner.store import runs, studies, trials
from tuner.store.models import ClaimRow, RunRow, StudyTrialRow, TrialRow
from tuner.store.records import Claim, ClaimState
from tuner.store.rows import trial_of


def claim(
    connection: Connection, study_id: int, config: Config, variant_hash: str, promise: str, most: int | None
) -> Claim:
    """See ``Store.claim``."""
    study = studies.locked(connection, study_id)
    place = {k: getattr(study, k) for k in ("problem_key", "device_key", "stack_key")}
    identity = {**place, "config_key": config.key, "variant_id": variant_hash}
    stored = connection.execute(select(TrialRow.__table__).where(*_is(TrialRow, identity))).one_or_none()
    if stored is not None and (stored.check_report is None or stored.check_report.get("promise", "") == promise):
        trials.link(connection, study_id, stored.id, reused=True)
        return Claim(ClaimState.KNOWN, trial_of(stored))
    run = runs.own_run(connection, study_id)
    if run is None:
        raise StoreError(f"this process does not run the study {study.name}; start it first")
    if run.lost_at is not None:
        runs.sign_of_life(connection, study_id, None, None)  # it was taken for dead, and lives
    moment = runs.clock(connection)
    holder = connection.execute(
        select(RunRow.__table__).join(ClaimRow, ClaimRow.run_id == RunRow.id).where(*_is(ClaimRow, identity))
    ).one_or_none()
    if holder is not None and holder.id != run.id:
        if holder.lost_at is None and runs.is_alive(holder, moment):
            return Claim(ClaimState.TAKEN)
        connection.execute(delete(ClaimRow).where(*_is(ClaimRow, identity)))
    elif holder is not None:
        return Claim(ClaimState.CLAIMED)
    if most is not None and _tried(connection, study_id) + _claimed(connection, study_id) >= most:
        return Claim(ClaimState.FULL)
    connection.execute(insert(ClaimRow).values(**identity, run_id=run.id, created_at=moment))
    return Claim(ClaimState.CLAIMED)


def give_back(connection: Connection, study_id: int, config: Config, variant_hash: str) -> None:
    """Ends this process's claim without a result. What it does not hold stays as it is."""
    run = runs.own_run(connection, study_id)
    if run is not None:
        own = (ClaimRow.run_id == run.id, ClaimRow.config_key == config.key, ClaimRow.variant_id == variant_hash)
        connection.execute(delete(ClaimRow).where(*own))


def _tried(connection: Connection, study_id: int) -> int:
    counted = select(func.count()).select_from(StudyTrialRow).where(StudyTrialRow.study_id == study_id)
    return int(connection.execute(counted).scalar_one())


def _claimed(connection: Connection, study_id: int) -> int:
    """Configs that living runs of the study work on."""
    moment, count = runs.clock(connection), 0
    counted = (
        select(RunRow.__table__, func.count().label("claims"))
        .join(ClaimRow, ClaimRow.run_id == RunRow.id)
        .where(RunRow.study_id == study_id, RunRow.lost_at.is_(None))
        .group_by(*RunRow.__table__.c)
    )
    for row in connection.execute(counted):
        count += row.claims if runs.is_alive(row, moment) else 0
    return count


def _is(model: Any, identity: dict[str, str]) -> list[Any]:
    return [getattr(model, name) == value for name, value in identity.items()]
