"""Tables as text and files: CSV, JSON and, where pyarrow is installed, Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tuner.errors import MissingError, UsageError
from tuner.store.listing import COUNT, FASTEST, KINDS, SLOWEST, columns

CSV, JSON, PARQUET = "csv", "json", "parquet"
# In Excel, LibreOffice and Google Sheets, also in their full-width forms (OWASP, "CSV Injection").
_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
SUFFIXES = {".csv": CSV, ".json": JSON, ".parquet": PARQUET}


def format_of(path: Path) -> str:
    """The format that a file's name asks for. Raises ``UsageError``."""
    try:
        return SUFFIXES[path.suffix.lower()]
    except KeyError:
        raise UsageError(
            f"{path}: the name must end in {', '.join(SUFFIXES)}, or --format must say what it is"
        ) from None


def csv_text(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A header and the rows; what is missing is empty, shapes and options are ``name=value`` with spaces between.

    A text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay as they are.
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([_no_formula(name) for name in names])
    writer.writerows([_no_formula(_cell(value)) for value in row] for row in rows)
    return written.getvalue()


def json_text(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A list of objects."""
    records = [{c: _plain(v) for c, v in zip(names, row, strict=True)} for row in rows]
    return json.dumps(records, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_table(path: Path, form: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Writes the table as ``csv``, ``json`` or ``parquet``; of what is there it replaces a table of a query alone.

    Raises ``MissingError`` for Parquet without pyarrow, ``UsageError`` where the file cannot be written or is another.
    """
    try:
        if path.is_file() and not _is_from_query(path):
            raise UsageError(
                f"{path} is there and no table of `tuner query`, so it is not replaced; choose another path"
            )
        if form == PARQUET:
            _write_parquet(path, names, rows)
        else:
            path.write_text((csv_text if form == CSV else json_text)(names, rows), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; choose another --output") from error


def _is_from_query(path: Path) -> bool:
    """Whether the file is a table with columns that a query gives; in whatever format it was written."""
    content = path.read_bytes()
    records = None
    try:
        if content.startswith(b"PAR1"):
            names = require_parquet().parquet.read_schema(path).names
        else:
            text = content.decode("utf-8")
            records = json.loads(text) if text.startswith("[") else None
            names = next(csv.reader(io.StringIO(text)), []) if records is None else [*records, {}][0]
    except (ValueError, csv.Error):  # also what pyarrow raises
        return False
    if records == []:
        return True
    if not isinstance(names, list | dict) or not all(isinstance(name, str) for name in names):
        return False
    grouped = {COUNT, FASTEST, SLOWEST} <= set(names)
    return grouped or ("created_at" in names and any(set(names) <= set(columns(kind)) for kind in KINDS))


def require_parquet() -> Any:
    """pyarrow. Raises ``MissingError`` with what to do."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingError(
            "Parquet needs the Python package pyarrow, which is not installed: "
            "pip install 'triton-variant-tuner[parquet]', or write .csv or .json"
        ) from None
    return pyarrow


def _write_parquet(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    pyarrow = require_parquet()
    # Moments keep their type; shapes and options are text, since their names differ from row to row.
    cells = [[value if isinstance(value, datetime) else _cell(value) for value in row] for row in rows]
    arrays = {name: [row[n] for row in cells] for n, name in enumerate(names)}
    pyarrow.parquet.write_table(pyarrow.table(arrays), path)


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return " ".join(f"{name}={item}" for name, item in value.items() if item is not None)
    return value.isoformat() if isinstance(value, datetime) else value


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_BEGINS_A_FORMULA) else cell


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
