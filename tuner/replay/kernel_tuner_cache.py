"""Recordings in Kernel Tuner's cache files: ``cache`` maps each configuration to what was measured, in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.replay import cells
from tuner.replay.recording import Recording, Row
from tuner.trial import Outcome

_ERRORS = {"CompilationFailedConfig": Outcome.COMPILE_ERROR, "RuntimeFailedConfig": Outcome.CRASHED}
_INVALID = "InvalidConfig"  # not of the space: a tuner knows that beforehand
_ABOUT = ("device_name", "kernel_name", "problem_size")


def is_cache(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a cache file."""
    return "cache" in document and "tune_params_keys" in document


def read_cache(document: Mapping[str, Any], name: str, path: Path) -> Recording:
    """The recording in a cache file. Raises ``UsageError``."""
    names = [str(key) for key in cells.listed(document["tune_params_keys"], path, "tune_params_keys")]
    objective = document.get("objective", "time")
    if not isinstance(objective, str):
        raise UsageError(f"{path}: `objective` must be one name, but is {objective!r}; only times can be replayed")
    rows = []
    for key, entry in cells.mapped(document["cache"], f"{path}: `cache`").items():
        row = _row(cells.mapped(entry, f"{path}: `{key}`"), names, objective, f"{path}: `{key}`")
        if row is not None:
            rows.append(row)
    return Recording(name, tuple(rows), {key: document[key] for key in _ABOUT if key in document})


def _row(entry: Mapping[str, Any], names: list[str], objective: str, where: str) -> Row | None:
    missing = [name for name in names if name not in entry]
    if missing:
        raise UsageError(f"{where}: gives no value for {missing[0]}")
    config = cells.config_of(cells.ONLY_TEMPLATE, {n: cells.value_of(entry[n], f"{where}.{n}") for n in names})
    compile_ms, check_ms, bench_ms = (
        cells.milliseconds(entry.get(step), f"{where}.{step}")
        for step in ("compile_time", "verification_time", "benchmark_time")
    )
    error = entry.get("__error__") or (entry.get(objective) if isinstance(entry.get(objective), str) else None)
    if error == _INVALID:
        return None
    if error is not None:
        outcome = _ERRORS.get(str(error))
        if outcome is None:
            raise UsageError(f"{where}: failed for an unknown reason, {error!r}")
        return Row(config, outcome, None, compile_ms, check_ms, bench_ms)
    time_us = cells.kernel_time_us(entry.get(objective), f"{where}.{objective}")
    return Row(config, Outcome.TIMED, time_us, compile_ms, check_ms, bench_ms)
