"""Recordings in the T4 results format (version 1), which several autotuners write.

https://github.com/odgaard/TuningSchema: ``results`` is a list of configurations with what was measured, how long the
steps took, and ``invalidity``: ``correct``, or why there is no time. Times are milliseconds unless
``metadata.timeunit`` says seconds or microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.naming import listed
from tuner.replay import cells
from tuner.replay.recording import Recording, Row
from tuner.trial import Outcome

_INVALIDITY = {
    "correct": Outcome.TIMED,
    "compile": Outcome.COMPILE_ERROR,
    "runtime": Outcome.CRASHED,
    "timeout": Outcome.TIMED_OUT,
    "correctness": Outcome.WRONG,
}
_INVALID = "constraints"  # not of the space: a tuner knows that beforehand
_UNITS = {"milliseconds": 1.0, "ms": 1.0, "seconds": 1000.0, "s": 1000.0, "microseconds": 0.001, "us": 0.001}
# By cost, the names that writers of the format use.
_STEPS = {
    "compile_ms": ("compilation", "compilation_time"),
    "check_ms": ("validation",),
    "bench_ms": ("benchmark", "benchmark_time"),
}


def is_t4(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is T4 results."""
    return "results" in document


def read_t4(document: Mapping[str, Any], name: str, path: Path) -> Recording:
    """The recording in T4 results. Raises ``UsageError``."""
    metadata = document.get("metadata") or {}
    about = cells.mapped(metadata, f"{path}: `metadata`")
    unit = str(about.get("timeunit", "milliseconds"))
    if unit not in _UNITS:
        raise UsageError(f"{path}: timeunit {unit!r} is unknown; it is one of {listed(tuple(_UNITS))}")
    rows = []
    for number, entry in enumerate(cells.listed(document["results"], path, "results")):
        where = f"{path}: results[{number}]"
        row = _row(cells.mapped(entry, where), _UNITS[unit], where)
        if row is not None:
            rows.append(row)
    return Recording(name, tuple(rows), about)


def _row(entry: Mapping[str, Any], scale: float, where: str) -> Row | None:
    invalidity = str(entry.get("invalidity", "correct"))
    if invalidity == _INVALID:
        return None
    if invalidity not in _INVALIDITY:
        known = listed((*_INVALIDITY, _INVALID))
        raise UsageError(f"{where}: invalidity {invalidity!r} is unknown; it is one of {known}")
    values = cells.mapped(entry.get("configuration"), f"{where}.configuration")
    config = cells.config_of(
        cells.ONLY_TEMPLATE, {n: cells.value_of(v, f"{where}.configuration.{n}") for n, v in values.items()}
    )
    times = cells.mapped(entry.get("times") or {}, f"{where}.times")
    costs = {}
    for cost, names in _STEPS.items():
        given = next((times[n] for n in names if n in times), None)
        costs[cost] = scale * cells.milliseconds(given, f"{where}.times.{names[0]}")
    outcome = _INVALIDITY[invalidity]
    time_us = _time_us(entry, where) if outcome is Outcome.TIMED else None
    return Row(config, outcome, time_us, **costs)


def _time_us(entry: Mapping[str, Any], where: str) -> float:
    objectives = entry.get("objectives") or ["time"]
    wanted = str(cells.listed(objectives, Path(where), "objectives")[0])
    for measured in cells.listed(entry.get("measurements") or [], Path(where), "measurements"):
        measurement = cells.mapped(measured, f"{where}.measurements")
        if measurement.get("name") == wanted:
            scale = _UNITS.get(str(measurement.get("unit") or "ms"))
            if scale is None:
                raise UsageError(f"{where}: {wanted} is in {measurement['unit']!r}; it must be a time")
            return scale * cells.kernel_time_us(measurement.get("value"), f"{where}: {wanted}")
    raise UsageError(f"{where}: nothing named {wanted!r} was measured, but its invalidity is `correct`")
