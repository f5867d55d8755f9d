"""Whether stored rows are what they say: content against keys, references, and what winners were chosen from.

Rows are read as text, so that one that was damaged or edited is reported and does not stop the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from sqlalchemy import JSON, Connection, Text, cast, exists, select, type_coerce
from sqlalchemy.types import NullType

from tuner.device import ESTIMATED, Device, Stack
from tuner.plain_json import read_json
from tuner.store.cells import cell_fault
from tuner.store.models import (
    Base,
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
from tuner.store.rows import (
    device_values,
    measurement_of,
    measurement_values,
    problem_of,
    stack_values,
    trial_of,
    variant_of,
)
from tuner.store.upkeep_records import CONTENT, REFERENCE, WINNER, Finding
from tuner.trial import CheckReport, Outcome

MOST_FINDINGS = 20
"""So many rows of one table with one fault are listed; the others are counted."""

_RESTORE = "restore a backup, or delete the row"
_BATCH = 1000
# What making a value of a damaged row raises.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, AssertionError)


def content_findings(connection: Connection) -> tuple[dict[str, int], list[Finding]]:
    """How many rows were looked at, by table, and those that are not what they say.

    Each cell is held to its column's type and range, content to the key or name that it is stored under, and columns
    that repeat a part of a document to that document.
    """
    counts: dict[str, int] = {}
    findings: list[Finding] = []
    for model, fault in (
        (DeviceRow, _device_fault),
        (StackRow, _stack_fault),
        (ProblemRow, _problem_fault),
        (VariantRow, _variant_fault),
        (SpaceRow, None),
        (StudyRow, None),
        (RunRow, None),
        (ClaimRow, None),
        (TrialRow, _trial_fault),
        (StudyTrialRow, None),
        (MeasurementRow, _measurement_fault),
        (WinnerRow, _interval_fault),
    ):
        faults = []
        table: Any = model.__table__
        keys = [column.name for column in table.primary_key]
        counts[table.name] = 0
        for row in _rows(connection, table):
            counts[table.name] += 1
            said = row.fault or (_said(fault, row) if fault is not None else "")
            if said:
                where = " ".join(str(getattr(row, key))[:16] for key in keys)
                faults.append(Finding(CONTENT, f"{table.name} {where}", said, _RESTORE))
        findings += _most(faults, table.name)
    return counts, [*findings, *_most(_contradictions(connection), "tuner_trial")]


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


def winner_findings(connection: Connection) -> list[Finding]:
    """Winners whose trial is not one that was checked, right and measured."""
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
    faults = []
    for row in connection.execute(statement):
        if said := _said(_winner_fault, row):
            faults.append(Finding(WINNER, f"tuner_winner {row.id}", said, "tune the problem again"))
    return _most(faults, "tuner_winner")


def _winner_fault(row: Any) -> str:
    if not (row.same_problem and row.same_device and row.same_stack and row.same_study):
        return f"its trial {row.trial} is of another problem, device or stack"
    if row.estimated != (row.mode == ESTIMATED):
        return f"it says {'estimated' if row.estimated else 'measured'}, and its stack says {row.mode}"
    if row.outcome == Outcome.WRONG.value:
        return ""  # found wrong later: it is kept as history, and never given
    if row.outcome != Outcome.TIMED.value:
        return f"its trial {row.trial} ended as {row.outcome}"
    if row.check_report is None or not CheckReport.from_json(read_json(row.check_report)).passed:
        return f"its trial {row.trial} has passed no check"
    # A twin's time is that of the config with the same binary.
    return "" if row.measured or row.same_as else f"its trial {row.trial} has no measurement"


def _contradictions(connection: Connection) -> list[Finding]:
    """Rows that another row says otherwise of: times that no measurement gave, modes that are not the stack's."""
    inside = exists(
        select(MeasurementRow.id).where(
            MeasurementRow.trial_id == TrialRow.id,
            TrialRow.value_us.between(MeasurementRow.low_us, MeasurementRow.high_us),
        )
    )
    measured = exists(select(MeasurementRow.id).where(MeasurementRow.trial_id == TrialRow.id))
    times = select(TrialRow.id, type_coerce(TrialRow.value_us, NullType()).label("us")).where(
        TrialRow.outcome == Outcome.TIMED.value, TrialRow.same_as == "", measured, ~inside
    )
    modes = (
        select(StudyRow.id, StudyRow.mode, StackRow.mode.label("stack_mode"))
        .join(StackRow, StackRow.key == StudyRow.stack_key)
        .where(StudyRow.mode != StackRow.mode)
    )
    return [
        *(
            Finding(CONTENT, f"tuner_trial {row.id}", f"its time {row.us} us is none that was measured", _RESTORE)
            for row in connection.execute(times.order_by(TrialRow.id).limit(MOST_FINDINGS + 1))
        ),
        *(
            Finding(CONTENT, f"tuner_study {row.id}", f"it says {row.mode}, and its stack {row.stack_mode}", _RESTORE)
            for row in connection.execute(modes.order_by(StudyRow.id).limit(MOST_FINDINGS + 1))
        ),
    ]


def _device_fault(row: Any) -> str:
    device = Device.from_json(row.data)
    if bad := [k for k, v in asdict(device).items() if isinstance(v, int | float) and not 0 <= v < math.inf]:
        return f"its {bad[0]} in data is {getattr(device, bad[0])}, not 0 or more"
    said = _differs(row.key, device.key, "the device in it")
    return said or _repeats(row, device_values(device), "name", "backend", "arch")


def _stack_fault(row: Any) -> str:
    stack = Stack.from_json(row.data)
    said = _differs(row.key, stack.key, "the stack in it")
    return said or _repeats(row, stack_values(stack), "mode", "triton", "torch", "driver")


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
    said = _differs(row.config_key, trial.config.key, "the config in it")
    # The label is what --config takes.
    made = {"template": trial.config.template, "label": trial.config.label, "binary_hash": trial.binary_hash}
    if said := said or _repeats(row, made, *made):
        return said
    bad = next((name for name, s in trial.seconds.items() if not 0 <= s < math.inf), None)
    return "" if bad is None else f"its seconds of {bad} are {trial.seconds[bad]}, not 0 or more"


def _measurement_fault(row: Any) -> str:
    made = measurement_values(measurement_of(row).measurement)
    return _differs(row.digest, made["digest"], "what it holds") or _repeats(row, made, "sample_count")


def _interval_fault(row: Any) -> str:
    if row.low_us <= row.median_us <= row.high_us:
        return ""
    return f"its median {row.median_us} us is not in its interval from {row.low_us} to {row.high_us} us"


def _repeats(row: Any, made: dict[str, Any], *names: str) -> str:
    """Columns that repeat, for filters and for people, what a document says."""
    for name in names:
        if (found := getattr(row, name)) != made[name]:
            return f"its {name} {found!r} was changed: by its content it is {made[name]!r}"
    return ""


def _differs(stored: str, made: str, what: str) -> str:
    return (
        "" if stored == made else f"{what} was changed: its hash is {made[:16]}, and it is stored under {stored[:16]}"
    )


def _said(fault: Callable[[Any], str], row: Any) -> str:
    try:
        return fault(row)
    except _UNREADABLE as error:
        return f"it cannot be read ({type(error).__name__}: {error})".replace("\n", " ")


def _rows(connection: Connection, table: Any) -> Iterator[Any]:
    """Every row, as the driver gives it: a cell of another type must not end the whole reading.

    Columns of JSON are text here, so that only the row that holds nonsense is refused.
    """
    documents = {c.name for c in table.c if isinstance(c.type, JSON)}
    chosen = [(cast(c, Text) if c.name in documents else type_coerce(c, NullType())).label(c.name) for c in table.c]
    found = connection.execution_options(yield_per=_BATCH).execute(select(*chosen).order_by(*table.primary_key))
    for row in found:
        yield _Row(table, documents, row._mapping)


class _Row(SimpleNamespace):
    """A row whose JSON is read when it is asked for. ``fault`` is what is wrong with its first bad cell, or empty."""

    def __init__(self, table: Any, documents: set[str], values: Any) -> None:
        super().__init__(**{k: v for k, v in values.items() if k not in documents})
        self._texts = {k: values[k] for k in documents}
        faults = ((c.name, cell_fault(c, values[c.name])) for c in table.c)
        self.fault = next((f"its {name} {said}" for name, said in faults if said), "")

    def __getattr__(self, name: str) -> Any:
        texts = self.__dict__.get("_texts", {})
        if name not in texts:
            raise AttributeError(name)
        text = texts[name]
        return None if text is None else read_json(text)


def _most(faults: list[Finding], table: str) -> list[Finding]:
    if len(faults) <= MOST_FINDINGS:
        return faults
    first = faults[:MOST_FINDINGS]
    more = f"{len(faults) - MOST_FINDINGS} or more other rows have such faults"
    return [*first, Finding(first[0].kind, table, more, first[0].remedy)]
