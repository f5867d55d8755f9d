"""Writes and reads of trials and measurements. Each function is one transaction's work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from tuner.device import Device, Stack
from tuner.errors import StoreError, UsageError
from tuner.problem import Problem
from tuner.store import studies
from tuner.store.models import (
    ClaimRow,
    DeviceRow,
    MeasurementRow,
    ProblemRow,
    StackRow,
    StudyRow,
    StudyTrialRow,
    TrialRow,
    VariantRow,
)
from tuner.store.records import KnownTrials, StoredMeasurement, StoredTrial
from tuner.store.rows import (
    device_values,
    measurement_of,
    measurement_values,
    now,
    problem_values,
    stack_values,
    trial_of,
    trial_values,
    variant_of,
    variant_values,
)
from tuner.trial import Measurement, Outcome, TrialRecord
from tuner.variant import Variant

# Which of two outcomes of one key is kept. A config that was wrong once is wrong; a time says more than a crash (which
# may have come from outside), and any of them more than `pruned`.
_WEIGHT = {Outcome.PRUNED: 0, Outcome.TIMED: 2, Outcome.WRONG: 3}
_OTHER_WEIGHT = 1
_MANY = 500


def record(
    connection: Connection, study_id: int, values: dict[str, Any], measurements: list[dict[str, Any]], variant: Variant
) -> int:
    """Stores a trial with its variant and measurements and links it to the study. The same again changes nothing."""
    study = studies.locked(connection, study_id)
    place = {"problem_key": study.problem_key, "device_key": study.device_key, "stack_key": study.stack_key}
    trial_id = _record(connection, place, values, measurements, variant)
    link(connection, study_id, trial_id, reused=False)
    return trial_id


def record_alone(
    connection: Connection,
    spec: tuple[Problem, Device, Stack],
    values: dict[str, Any],
    measurements: list[dict[str, Any]],
    variant: Variant,
) -> int:
    """As ``record``, for a result that belongs to no study."""
    moment, (problem, device, stack) = now(), spec
    studies.ensure(connection, ProblemRow, "key", problem_values(problem), moment)
    studies.ensure(connection, DeviceRow, "key", device_values(device), moment)
    studies.ensure(connection, StackRow, "key", stack_values(stack), moment)
    place = {"problem_key": problem.key, "device_key": device.key, "stack_key": stack.key}
    return _record(connection, place, values, measurements, variant)


def prepared(record: TrialRecord, variant: Variant) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The rows of a trial and its measurements. Raises ``ValueError`` where they hold nonsense; needs no database."""
    if variant.hash != record.variant_hash:
        raise ValueError(
            f"the trial is of variant {record.variant_hash[:12]}, but got the source of {variant.hash[:12]}"
        )
    return trial_values(record), [measurement_values(m) for m in record.measurements]


def reuse(connection: Connection, study_id: int, trial_id: int) -> None:
    """Links a trial that was known before. Raises ``ValueError`` where it is of another problem, device or stack."""
    study, trial = studies.locked(connection, study_id), _existing(connection, trial_id)
    for column in ("problem_key", "device_key", "stack_key"):
        if getattr(study, column) != getattr(trial, column):
            raise ValueError(f"trial {trial_id} has another {column} than the study {study.name}")
    link(connection, study_id, trial_id, reused=True)


def append_measurements(connection: Connection, trial_id: int, measurements: list[dict[str, Any]]) -> tuple[int, ...]:
    """Adds those measurements of the trial that are not there yet. Returns the ids of all, in the order given."""
    present = select(MeasurementRow.digest, MeasurementRow.id).where(MeasurementRow.trial_id == trial_id)
    ids = {row.digest: row.id for row in connection.execute(present)} if measurements else {}
    moment = now()
    for values in measurements:
        if values["digest"] not in ids:
            done = connection.execute(insert(MeasurementRow).values(trial_id=trial_id, created_at=moment, **values))
            assert done.inserted_primary_key is not None
            ids[values["digest"]] = done.inserted_primary_key[0]
    return tuple(ids[values["digest"]] for values in measurements)


def add_measurements(connection: Connection, trial_id: int, measurements: Iterable[Measurement]) -> tuple[int, ...]:
    """Adds later measurements to a trial. Raises ``StoreError`` where there is no such trial."""
    _existing(connection, trial_id)
    return append_measurements(connection, trial_id, [measurement_values(m) for m in measurements])


def since(connection: Connection, study_id: int, ordinal: int) -> list[tuple[int, StoredTrial]]:
    """The study's trials from the place ``ordinal`` on, with their places."""
    statement = (
        select(TrialRow.__table__, StudyTrialRow.ordinal)
        .join(StudyTrialRow, StudyTrialRow.trial_id == TrialRow.id)
        .where(StudyTrialRow.study_id == study_id, StudyTrialRow.ordinal >= ordinal)
        .order_by(StudyTrialRow.ordinal)
    )
    return [(row.ordinal, trial_of(row)) for row in connection.execute(statement)]


def known(connection: Connection, problem_key: str, device_key: str, stack_key: str) -> KnownTrials:
    """Every trial of one problem on one device and stack."""
    return KnownTrials.of(tuple(trial_of(row) for row in connection.execute(_at(problem_key, device_key, stack_key))))


def timed_binaries(connection: Connection, problem_key: str, device_key: str, stack_key: str) -> dict[str, StoredTrial]:
    """The timed trial of each compiled binary; of those that share one, the one that was measured itself."""
    statement = _at(problem_key, device_key, stack_key).where(
        TrialRow.outcome == Outcome.TIMED.value, TrialRow.binary_hash.is_not(None)
    )
    found: dict[str, StoredTrial] = {}
    for row in connection.execute(statement):
        if row.binary_hash not in found or (found[row.binary_hash].same_as and not row.same_as):
            found[row.binary_hash] = trial_of(row)
    return found


def one(connection: Connection, trial_id: int) -> StoredTrial:
    """One trial with its measurements. Raises ``StoreError``."""
    return trial_of(_existing(connection, trial_id), measurements_of(connection, [trial_id]).get(trial_id, ()))


def measurements_of(connection: Connection, trial_ids: Sequence[int]) -> dict[int, tuple[StoredMeasurement, ...]]:
    """The measurements of several trials, oldest first."""
    found: dict[int, list[StoredMeasurement]] = {}
    for start in range(0, len(trial_ids), _MANY):
        part = trial_ids[start : start + _MANY]
        table = MeasurementRow.__table__
        for row in connection.execute(select(table).where(table.c.trial_id.in_(part)).order_by(table.c.id)):
            found.setdefault(row.trial_id, []).append(measurement_of(row))
    return {trial_id: tuple(rows) for trial_id, rows in found.items()}


def variant(connection: Connection, hash_or_prefix: str) -> Variant:
    """The variant under its hash, or the first digits of one. Raises ``UsageError`` where there is none, or several."""
    table = VariantRow.__table__
    pattern = hash_or_prefix.lower()
    if not pattern or set(pattern) - set("0123456789abcdef"):
        raise UsageError(f"a variant is named by hex digits of its hash, but got {hash_or_prefix!r}")
    rows = connection.execute(select(table).where(table.c.id.like(f"{pattern}%")).limit(2)).all()
    if len(rows) != 1:
        said = "is more than one" if rows else "is no"
        raise UsageError(f"there {said} variant {hash_or_prefix!r} in this database; give more of its hash")
    found = variant_of(rows[0])
    if found.hash != rows[0].id:
        raise StoreError(
            f"the stored source of variant {rows[0].id[:12]} was changed: it is not what its hash says; "
            "restore the database from a backup, or tune again"
        )
    return found


def variant_origin(connection: Connection, variant_hash: str) -> str | None:
    """See ``Store.variant_origin``."""
    found: str | None = connection.execute(
        select(VariantRow.origin).where(VariantRow.id == variant_hash)
    ).scalar_one_or_none()
    return found


def _record(
    connection: Connection,
    place: dict[str, str],
    values: dict[str, Any],
    measurements: list[dict[str, Any]],
    variant: Variant,
) -> int:
    moment = now()
    studies.ensure(connection, VariantRow, "id", variant_values(variant), moment)
    # It was rendered here, so it is not only what another database says.
    merged = (VariantRow.id == variant.hash, VariantRow.origin.is_not(None))
    connection.execute(update(VariantRow).where(*merged).values(origin=None))
    columns = TrialRow.__table__.c
    identity = {**place, "config_key": values["config_key"], "variant_id": values["variant_id"]}
    known = connection.execute(
        select(TrialRow.__table__).where(*(columns[k] == v for k, v in identity.items())).with_for_update()
    ).one_or_none()
    if known is None:
        done = connection.execute(insert(TrialRow).values(**place, **values, created_at=moment, updated_at=moment))
        assert done.inserted_primary_key is not None
        trial_id = int(done.inserted_primary_key[0])
    else:
        trial_id = int(known.id)
        if changes := _better(known, values):
            connection.execute(update(TrialRow).where(TrialRow.id == trial_id).values(**changes, updated_at=moment))
    append_measurements(connection, trial_id, measurements)
    claims = ClaimRow.__table__.c
    connection.execute(delete(ClaimRow).where(*(claims[k] == v for k, v in identity.items())))
    return trial_id


def _better(known: Row[Any], values: dict[str, Any]) -> dict[str, Any]:
    checks = (known.check_report, values["check_report"])
    if all(checks) and len({check.get("promise", "") for check in checks}) > 1:
        # Checked again for another promise (precision, tiles): what the earlier check said no longer counts.
        return values
    before, after = (_WEIGHT.get(Outcome(o), _OTHER_WEIGHT) for o in (known.outcome, values["outcome"]))
    if after > before:
        return values
    if after < before:
        return {}
    # Equally telling: the first stays, and what it lacks is filled in.
    reports = ("compile_report", "check_report", "binary_hash")
    return {k: values[k] for k in reports if getattr(known, k) is None and values[k] is not None}


def _at(problem_key: str, device_key: str, stack_key: str) -> Any:
    columns = TrialRow.__table__.c
    here = (columns.problem_key == problem_key, columns.device_key == device_key, columns.stack_key == stack_key)
    return select(TrialRow.__table__).where(*here).order_by(columns.id)


def _existing(connection: Connection, trial_id: int) -> Row[Any]:
    row = connection.execute(select(TrialRow.__table__).where(TrialRow.id == trial_id)).one_or_none()
    if row is None:
        raise StoreError(f"there is no trial {trial_id} in this database")
    return row


def link(connection: Connection, study_id: int, trial_id: int, *, reused: bool) -> None:
    """Makes the trial one of the study's, once. The caller holds the study's row, so ordinals are not given twice."""
    moment = now()
    linked = select(StudyTrialRow.ordinal).where(StudyTrialRow.study_id == study_id, StudyTrialRow.trial_id == trial_id)
    if connection.execute(linked).first() is None:
        last = select(func.max(StudyTrialRow.ordinal)).where(StudyTrialRow.study_id == study_id)
        ordinal = connection.execute(last).scalar_one()
        connection.execute(
            insert(StudyTrialRow).values(
                study_id=study_id,
                trial_id=trial_id,
                ordinal=0 if ordinal is None else ordinal + 1,
                reused=reused,
                created_at=moment,
            )
        )
    connection.execute(update(StudyRow).where(StudyRow.id == study_id).values(updated_at=moment))
