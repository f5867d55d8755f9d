"""Between values and rows of the tables. Pure: no connection in here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row

from tuner.canonical import canonical_json, digest
from tuner.config import Config
from tuner.device import Device, Stack
from tuner.problem import Problem
from tuner.store.records import StoredMeasurement, StoredTrial, StoredWinner, WinnerRecord
from tuner.trial import CheckReport, CompileReport, DeviceState, Measurement, Outcome, TrialRecord
from tuner.variant import Variant

REASON_CHARACTERS = 4000
"""A compiler's message can be megabytes; this much of it is kept."""


def now() -> datetime:
    """This moment, in UTC."""
    return datetime.now(UTC)


def device_values(device: Device) -> dict[str, Any]:
    """The row of a device."""
    data = _finite(device.as_json(), "the device")
    return {"key": device.key, "name": device.name, "backend": device.backend, "arch": str(device.arch), "data": data}


def stack_values(stack: Stack) -> dict[str, Any]:
    """The row of a software stack."""
    return {
        "key": stack.key,
        "mode": stack.mode,
        "label": stack.label,
        "triton": stack.triton,
        "torch": stack.torch,
        "driver": stack.driver,
        "data": stack.as_json(),
    }


def problem_values(problem: Problem) -> dict[str, Any]:
    """The row of a problem."""
    return {"key": problem.key, "label": problem.label, **_finite(problem.as_json(), "the problem")}


def problem_of(row: Row[Any] | Any) -> Problem:
    """The problem of a row that has the columns ``operator``, ``shape``, ``dtype`` and ``options``."""
    return Problem(row.operator, tuple(row.shape.items()), row.dtype, tuple(row.options.items()))


def variant_values(variant: Variant) -> dict[str, Any]:
    """The row of a rendered source."""
    return {
        "id": variant.hash,
        "operator": variant.operator,
        "template": variant.template,
        "template_hash": variant.template_hash,
        "switches": dict(variant.switches),
        "exp2": variant.exp2,
        "source": variant.source,
    }


def variant_of(row: Row[Any] | Any) -> Variant:
    """The inverse of ``variant_values``."""
    switches = tuple(sorted(row.switches.items()))
    return Variant(row.operator, row.template, row.template_hash, switches, row.source, row.exp2)


def trial_values(record: TrialRecord) -> dict[str, Any]:
    """The row of a trial, without what the study gives it. Raises ``ValueError`` on a number that is not finite."""
    if record.value_us is not None and not 0.0 < record.value_us < math.inf:
        raise ValueError(f"`value_us` must be positive and finite, but got {record.value_us!r}")
    report, check = record.compile_report, record.check_report
    return {
        "config_key": record.config.key,
        "variant_id": record.variant_hash,
        "template": record.config.template,
        "label": record.config.label,
        "config": _finite(record.config.as_json(), "the config"),
        "outcome": record.outcome.value,
        "reason": plain_text(record.reason),
        "value_us": record.value_us,
        "binary_hash": report.binary_hash if report else None,
        "same_as": record.same_as,
        "compile_report": _finite(report.as_json(), "the compile report") if report else None,
        "check_report": _finite(check.as_json(), "the check report") if check else None,
        "seed": record.seed,
        "seconds": _finite(dict(record.seconds), "`seconds`"),
    }


def measurement_values(measurement: Measurement) -> dict[str, Any]:
    """The row of a measurement, without its trial. Raises ``ValueError`` on a number that is not finite."""
    data = {
        "stage": measurement.stage,
        "protocol": measurement.protocol,
        "median_us": measurement.median_us,
        "low_us": measurement.low_us,
        "high_us": measurement.high_us,
        "samples_us": list(measurement.samples_us),
        "rounds": list(measurement.rounds),
        "processes": list(measurement.process),
        "states": [state.as_json() for state in measurement.states],
        "notes": [plain_text(note) for note in measurement.notes],
    }
    _finite(data, "the measurement")
    return {**data, "digest": digest(data, 32), "sample_count": len(measurement.samples_us)}


def measurement_of(row: Row[Any] | Any) -> StoredMeasurement:
    """The inverse of ``measurement_values``."""
    states = tuple(
        DeviceState(**{**state, "throttle_reasons": tuple(state["throttle_reasons"])}) for state in row.states
    )
    measurement = Measurement(
        row.stage,
        row.protocol,
        tuple(row.samples_us),
        row.median_us,
        row.low_us,
        row.high_us,
        tuple(row.rounds),
        tuple(row.processes),
        states,
        tuple(row.notes),
    )
    return StoredMeasurement(row.id, measurement, row.created_at)


def trial_of(row: Row[Any] | Any, measurements: tuple[StoredMeasurement, ...] = ()) -> StoredTrial:
    """The trial of a row that has every column of the table."""
    return StoredTrial(
        id=row.id,
        problem_key=row.problem_key,
        device_key=row.device_key,
        stack_key=row.stack_key,
        config=Config.from_json(row.config),
        variant_hash=row.variant_id,
        outcome=Outcome(row.outcome),
        reason=row.reason,
        value_us=row.value_us,
        compile_report=CompileReport.from_json(row.compile_report) if row.compile_report else None,
        check_report=CheckReport.from_json(row.check_report) if row.check_report else None,
        same_as=row.same_as,
        seed=row.seed,
        seconds=row.seconds,
        created_at=row.created_at,
        measurements=measurements,
    )


def winner_values(record: WinnerRecord) -> dict[str, Any]:
    """The row of a winner, without what the study gives it. Raises ``ValueError`` on a number that is not finite."""
    low, high = record.interval or (None, None)
    return {
        "trial_id": record.trial_id,
        "kind": record.kind,
        "verdict": plain_text(record.verdict),
        "estimated": record.estimated,
        "median_us": record.median_us,
        "low_us": record.low_us,
        "high_us": record.high_us,
        "margin": record.margin,
        "margin_low": low,
        "margin_high": high,
        "plain_key": record.plain_key,
        "plain_us": record.plain_us,
        "speedup": record.speedup,
        "tie_set": list(record.tie_set),
        "finalists": [_finite(dict(finalist), "a finalist") for finalist in record.finalists],
    }


def winner_of(row: Row[Any] | Any) -> StoredWinner:
    """The winner of a row of ``tuner.store.winners``'s query."""
    interval = None if row.margin_low is None else (row.margin_low, row.margin_high)
    record = WinnerRecord(
        trial_id=row.trial_id,
        kind=row.kind,
        verdict=row.verdict,
        median_us=row.median_us,
        low_us=row.low_us,
        high_us=row.high_us,
        estimated=row.estimated,
        margin=row.margin,
        interval=interval,
        tie_set=tuple(row.tie_set),
        plain_key=row.plain_key,
        plain_us=row.plain_us,
        speedup=row.speedup,
        finalists=tuple(row.finalists),
    )
    return StoredWinner(
        id=row.id,
        study_id=row.study_id,
        study_name=row.study_name,
        problem=problem_of(row),
        device=Device.from_json(row.device_data),
        stack=Stack.from_json(row.stack_data),
        config=Config.from_json(row.config),
        variant_hash=row.variant_id,
        record=record,
        created_at=row.created_at,
    )


def plain_text(text: str) -> str:
    """``text`` as every database takes it: no NUL, no lone surrogates, not endless."""
    text = text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 4] + " ..."


def _finite(data: Mapping[str, Any], what: str) -> dict[str, Any]:
    try:
        canonical_json(data)
    except ValueError:
        raise ValueError(f"{what} must hold finite numbers only, but got {data!r}") from None
    return dict(data)
