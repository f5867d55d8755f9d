"""Whether stored rows are what they say: content against keys, references, and what winners were chosen from.

Rows are read as text, so that one that was damaged or edited is reported and does not stop the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from sqlalchemy import JSON, Connection, Text, cast, exists, inspect, select

from tuner.device import ESTIMATED, Device, Stack
from tuner.store.models import (
    Base,
    DeviceRow,
    MeasurementRow,
    ProblemRow,
    StackRow,
    StudyRow,
    TrialRow,
    VariantRow,
    WinnerRow,
)
from tuner.store.rows import measurement_of, measurement_values, problem_of, trial_of, variant_of
from tuner.store.upkeep_records import CONTENT, REFERENCE, WINNER, Finding
from tuner.trial import CheckReport, Outcome

MOST_FINDINGS = 20
"""So many rows of one table with one fault are listed; the others are counted."""

_RESTORE = "restore a backup, or delete the row"
_BATCH = 1000
# What making a value of a damaged row raises.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, AssertionError)


def content_findings(connection: Connection) -> tuple[dict[str, int], list[Finding]]:
    """How many rows were looked at, by table, and those whose content is not what their key or name says."""
    counts: dict[str, int] = {}
    findings: list[Finding] = []
    for model, key, fault in (
        (DeviceRow, "key", _device_fault),
        (StackRow, "key", _stack_fault),
        (ProblemRow, "key", _problem_fault),
        (VariantRow, "id", _variant_fault),
        (TrialRow, "id", _trial_fault),
        (MeasurementRow, "id", _measurement_fault),
    ):
        faults = []
        name = model.__tablename__
        counts[name] = 0
        for row in _rows(connection, model):
            counts[name] += 1
            if said := _said(fault, row):
                faults.append(Finding(CONTENT, f"{name} {str(getattr(row, key))[:16]}", said, _RESTORE))
        findings += _most(faults, name)
    return counts, findings


def reference_findings(connection: Connection) -> list[Finding]:
    """Rows that name a row which is not there, of every foreign key of ours."""
    findings = []
    for table in Base.metadata.sorted_tables:
        for constraint in table.foreign_keys:
            column, target = constraint.parent, constraint.column
            # A table that refers to itself would need another name here; none does.
            lost = ~exists(select(target).where(target == column))
            rows = connection.execute(
                select(*table.primary_key.columns, column).where(column.is_not(None), lost).limit(MOST_FINDINGS + 1)
            ).all()
            faults = [
                Finding(REFERENCE, f"{table.name} {row[0]}", f"its {column.name} {row[-1]} is no {target.table.name}",
                        _RESTORE)
                for row in rows
            ]  # fmt: skip
            findings += _most(faults, table.name)
    return findings


def winner_findings(connection: Connection) -> tuple[int, list[Finding]]:
    """How many winners there are, and those whose trial is not one that was checked, right and measured."""
    measured = exists(select(MeasurementRow.id).where(MeasurementRow.trial_id == TrialRow.id))
    statement = (
        select(
            WinnerRow.id,
            WinnerRow.estimated,
            (WinnerRow.problem_key == TrialRow.problem_key).label("same_problem"),
            (WinnerRow.device_key == TrialRow.device_key).label("same_device"),
            (WinnerRow.stack_key == TrialRow.stack_key).label("same_stack"),
            (StudyRow.problem_key == TrialRow.problem_key).label("same_study"),
            TrialRow.id.label("trial"),
            TrialRow.outcome,
            cast(TrialRow.check_report, Text).label("check_report"),
            TrialRow.same_as,
            StackRow.mode,
            measured.label("measured"),
        )
        .join(TrialRow, TrialRow.id == WinnerRow.trial_id)
        .join(StudyRow, StudyRow.id == WinnerRow.study_id)
        .join(StackRow, StackRow.key == WinnerRow.stack_key)
        .order_by(WinnerRow.id)
    )
    count, faults = 0, []
    for row in connection.execute(statement):
        count += 1
        if said := _said(_winner_fault, row):
            faults.append(Finding(WINNER, f"tuner_winner {row.id}", said, "tune the problem again"))
    return count, _most(faults, "tuner_winner")


def _winner_fault(row: Any) -> str:
    if not (row.same_problem and row.same_device and row.same_stack and row.same_study):
        return f"its trial {row.trial} is of another problem, device or stack"
    if row.estimated != (row.mode == ESTIMATED):
        return f"it says {'estimated' if row.estimated else 'measured'}, and its stack says {row.mode}"
    if row.outcome == Outcome.WRONG.value:
        return ""  # found wrong later: it is kept as history, and never given
    if row.outcome != Outcome.TIMED.value:
        return f"its trial {row.trial} ended as {row.outcome}"
    if row.check_report is None or not CheckReport.from_json(json.loads(row.check_report)).passed:
        return f"its trial {row.trial} has passed no check"
    # A twin's time is that of the config with the same binary.
    return "" if row.measured or row.same_as else f"its trial {row.trial} has no measurement"


def _device_fault(row: Any) -> str:
    return _differs(row.key, Device.from_json(row.data).key, "the device in it")


def _stack_fault(row: Any) -> str:
    return _differs(row.key, Stack.from_json(row.data).key, "the stack in it")


def _problem_fault(row: Any) -> str:
    return _differs(row.key, problem_of(row).key, "the problem in it")


def _variant_fault(row: Any) -> str:
    return _differs(row.id, variant_of(row).hash, "the source")


def _trial_fault(row: Any) -> str:
    trial = trial_of(row)
    if trial.outcome is Outcome.TIMED and (trial.check_report is None or not trial.check_report.passed):
        return "it is timed, and has passed no check"
    if (trial.outcome is Outcome.TIMED) != (trial.value_us is not None):
        return f"it ended as {trial.outcome}, and its time is {trial.value_us}"
    return _differs(row.config_key, trial.config.key, "the config in it")


def _measurement_fault(row: Any) -> str:
    return _differs(row.digest, measurement_values(measurement_of(row).measurement)["digest"], "what it holds")


def _differs(stored: str, made: str, what: str) -> str:
    return (
        "" if stored == made else f"{what} was changed: its hash is {made[:16]}, and it is stored under {stored[:16]}"
    )


def _said(fault: Callable[[Any], str], row: Any) -> str:
    try:
        return fault(row)
    except _UNREADABLE as error:
        return f"it cannot be read ({type(error).__name__}: {error})".replace("\n", " ")


def _rows(connection: Connection, model: type[Base]) -> Iterator[Any]:
    """Every row; columns of JSON are read as text here, so that only the row that holds nonsense is refused."""
    table = model.__table__
    documents = {c.name for c in table.c if isinstance(c.type, JSON)}
    # Moments are left out: nothing here depends on them, and an edited one would end the whole reading.
    plain = [c for c in table.c if c.name not in documents and not c.name.endswith("_at")]
    chosen = [*plain, *(cast(table.c[name], Text).label(name) for name in sorted(documents))]
    key = next(iter(inspect(model).primary_key))
    found = connection.execution_options(yield_per=_BATCH).execute(select(*chosen).order_by(key))
    for row in found:
        yield _Row(documents, row._mapping)


class _Row(SimpleNamespace):
    """A row whose JSON is read when it is asked for, so that nonsense raises inside of what asks."""

    def __init__(self, documents: set[str], values: Any) -> None:
        super().__init__(**{k: v for k, v in values.items() if k not in documents}, created_at=None)
        self._texts = {k: values[k] for k in documents}

    def __getattr__(self, name: str) -> Any:
        texts = self.__dict__.get("_texts", {})
        if name not in texts:
            raise AttributeError(name)
        text = texts[name]
        return None if text is None else json.loads(text)


def _most(faults: list[Finding], table: str) -> list[Finding]:
    if len(faults) <= MOST_FINDINGS:
        return faults
    first = faults[:MOST_FINDINGS]
    more = f"{len(faults) - MOST_FINDINGS} or more other rows have such faults"
    return [*first, Finding(first[0].kind, table, more, first[0].remedy)]
