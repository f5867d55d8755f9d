"""Recordings as tables: a comment line with a JSON object, a header, and one line a config.

The columns are the parameters (with ``template`` among them where there are several), then ``status``, ``time_ms``,
``compile_ms``, ``check_ms`` and ``bench_ms``. An empty parameter is one that the row's template does not have. A status
is ``ok``, ``compile`` (did not compile), ``runtime`` (did not run), or the name of an outcome.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

from tuner.config import Value
from tuner.errors import UsageError
from tuner.naming import listed
from tuner.replay import cells
from tuner.replay.recording import Recording, Row
from tuner.trial import Outcome

TEMPLATE, STATUS = "template", "status"
COSTS = ("time_ms", "compile_ms", "check_ms", "bench_ms")
_SHORT = {"ok": Outcome.TIMED, "compile": Outcome.COMPILE_ERROR, "runtime": Outcome.CRASHED}
_WRITTEN = {outcome: word for word, outcome in _SHORT.items()}


def read_table(text: str, name: str, path: Path) -> Recording:
    """The recording in the text of a table. Raises ``UsageError`` with file and line."""
    lines = io.StringIO(text)
    about: dict[str, Any] = {}
    skipped = 0
    if text.startswith("#"):
        about = _about(lines.readline()[1:], path)
        skipped = 1
    reader = csv.reader(lines)
    try:
        header = next(reader, [])
        parameters, columns = _columns(header, path)
        rows = []
        for line in reader:
            if line:
                where = f"{path}:{reader.line_num + skipped}"
                if len(line) != len(header):
                    raise UsageError(f"{where}: has {len(line)} values, but the header names {len(header)} columns")
                rows.append(_row(line, parameters, columns, about, where))
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num + skipped}: is no CSV: {error}") from None
    expected = about.get("rows")
    if isinstance(expected, int) and expected != len(rows):
        raise UsageError(f"{path}: has {len(rows)} rows, but says that it has {expected}; it may be cut off")
    plain = about.get("plain", [])
    return Recording(name, tuple(rows), about, tuple(str(key) for key in plain) if isinstance(plain, list) else ())


def write_table(recording: Recording, path: Path) -> None:
    """Writes a recording as a table, gzip'd where the path ends in ``.gz``. The same recording gives the same bytes."""
    names = list(dict.fromkeys(n for t in recording.templates for n in recording.domain(t)))
    head = [TEMPLATE] if recording.templates != (cells.ONLY_TEMPLATE,) else []
    text = io.StringIO()
    about = {**recording.about, "rows": len(recording.rows), "plain": list(recording.plain_keys)}
    text.write(f"#{json.dumps(about, sort_keys=True)}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, *names, STATUS, *COSTS])
    for row in recording.rows:
        values = row.config.values
        time_ms = "" if row.time_us is None else _number(row.time_us / 1000.0)
        writer.writerow(
            [
                *[row.config.template for _ in head],
                *(values.get(name, "") for name in names),
                _WRITTEN.get(row.outcome, str(row.outcome)),
                time_ms,
                *(_number(cost) if cost else "" for cost in (row.compile_ms, row.check_ms, row.bench_ms)),
            ]
        )
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _number(value: float) -> str:
    return f"{value:.10g}"


def _about(text: str, path: Path) -> dict[str, Any]:
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        raise UsageError(f"{path}:1: after `#` there must be one JSON object that says where the recording comes from")
    return about


def _columns(header: list[str], path: Path) -> tuple[list[tuple[int, str]], dict[str, int]]:
    """The parameters with their places, and the places of what was measured."""
    missing = [name for name in (STATUS, COSTS[0]) if name not in header]
    if missing or len(set(header)) < len(header):
        why = f"lacks {listed(missing)}" if missing else "names a column twice"
        raise UsageError(f"{path}: the header {why}; a recording has its parameters, then {STATUS}, {', '.join(COSTS)}")
    parameters = [(at, name) for at, name in enumerate(header) if name not in (TEMPLATE, STATUS, *COSTS)]
    if not parameters:
        raise UsageError(f"{path}: the header names no parameter")
    return parameters, {name: header.index(name) for name in (TEMPLATE, STATUS, *COSTS) if name in header}


def _row(
    line: list[str], parameters: list[tuple[int, str]], columns: dict[str, int], about: dict[str, Any], where: str
) -> Row:
    template = line[columns[TEMPLATE]] if TEMPLATE in columns else cells.ONLY_TEMPLATE
    values: dict[str, Value] = {name: cells.text_value(line[at]) for at, name in parameters if line[at] != ""}
    categorical = about.get("categorical", [])
    config = cells.config_of(template, values, categorical if isinstance(categorical, list) else ())
    outcome = _outcome(line[columns[STATUS]], where)
    time, *costs = (line[columns[name]] if name in columns else "" for name in COSTS)
    compile_ms, check_ms, bench_ms = (
        cells.milliseconds(cost, f"{where}: {name}") for cost, name in zip(costs, COSTS[1:], strict=True)
    )
    time_us = None
    if outcome is Outcome.TIMED:
        time_us = cells.kernel_time_us(time, f"{where}: time_ms")
    return Row(config, outcome, time_us, compile_ms, check_ms, bench_ms)


def _outcome(word: str, where: str) -> Outcome:
    if word in _SHORT:
        return _SHORT[word]
    try:
        return Outcome(word)
    except ValueError:
        known = (*_SHORT, *(str(o) for o in Outcome if o not in _SHORT.values()))
        raise UsageError(f"{where}: status {word!r} is unknown; it is one of {listed(known)}") from None
