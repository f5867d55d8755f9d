"""Whether a stored cell is of its column's type and in its range. Pure: SQLite holds any type in any column.

Cells are as a driver gives them, with JSON as text.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, DateTime, Double, Integer
from sqlalchemy.types import TypeDecorator

from tuner.device import ESTIMATED, MEASURED
from tuner.plain_json import read_json
from tuner.store.records import FINISHED, INTERRUPTED, RUNNING, TIE, WINNER
from tuner.trial import Outcome

_ONE_OF = {
    "mode": (MEASURED, ESTIMATED),
    "state": (RUNNING, INTERRUPTED, FINISHED),
    "kind": (WINNER, TIE),
    "outcome": tuple(outcome.value for outcome in Outcome),
}
_LISTS = frozenset({"samples_us", "rounds", "processes", "states", "notes", "tie_set", "finalists", "replaces"})
# In hex digits; an empty one of a twin says that there is none.
_HEX = {"uid": 32, "same_as": 16}
_SIGNED = frozenset({"seed", "margin", "margin_low", "margin_high"})
_SHOWN = 40


def cell_fault(column: Column[Any], cell: object) -> str:
    """What is wrong with ``cell``, in words that follow the column's name; empty where nothing is."""
    if cell is None:
        return "" if column.nullable else "is missing"
    kind = column.type.impl if isinstance(column.type, TypeDecorator) else column.type
    if isinstance(kind, JSON):
        return _document_fault(column, cell)
    if isinstance(kind, DateTime):
        return _moment_fault(cell)
    if isinstance(kind, Boolean):
        return "" if cell in (0, 1) and isinstance(cell, int) else _is(cell, "true or false")
    if isinstance(kind, Integer):
        return _integer_fault(column.name, cell, 63 if isinstance(kind, BigInteger) else 31)
    return _number_fault(column.name, cell) if isinstance(kind, Double) else _text_fault(column.name, cell)


def _document_fault(column: Column[Any], cell: object) -> str:
    if not isinstance(cell, str):
        return _is(cell, "JSON")
    try:
        found = read_json(cell)
    except ValueError as error:
        return f"cannot be read ({error})"
    if found is None and column.nullable:
        return ""  # older databases say NULL in JSON's way
    wanted: type = list if column.name in _LISTS else dict
    return "" if isinstance(found, wanted) else _is(cell, "a list" if wanted is list else "an object")


def _moment_fault(cell: object) -> str:
    if isinstance(cell, datetime):
        return ""
    try:
        datetime.fromisoformat(cell if isinstance(cell, str) else "")
    except ValueError:
        return _is(cell, "a moment")
    return ""


def _integer_fault(name: str, cell: object, bits: int) -> str:
    if not isinstance(cell, int) or isinstance(cell, bool):
        return _is(cell, "a whole number")
    least = -(2**bits) if name in _SIGNED else 0
    return "" if least <= cell < 2**bits else _is(cell, f"from {least} to {2**bits - 1}")


def _number_fault(name: str, cell: object) -> str:
    if not isinstance(cell, int | float) or isinstance(cell, bool) or not math.isfinite(cell):
        return _is(cell, "a finite number")
    if name in _SIGNED:
        return ""
    # Durations may be nothing, times of a config and ratios of them may not.
    if name.endswith("_s") or name == "max_seconds":
        return "" if cell >= 0 else _is(cell, "0 or more")
    return "" if cell > 0 else _is(cell, "positive")


def _text_fault(name: str, cell: object) -> str:
    if not isinstance(cell, str):
        return _is(cell, "text")
    try:
        cell.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    if "\0" in cell:  # nothing that is stored has one; it is what an erased part of a file reads as
        return "holds a zero byte"
    if name in _ONE_OF and cell not in _ONE_OF[name]:
        return _is(cell, f"one of {', '.join(_ONE_OF[name])}")
    digits = _HEX.get(name)
    if digits is None or (cell == "" and name != "uid"):
        return ""
    return "" if len(cell) == digits and set(cell) <= set("0123456789abcdef") else _is(cell, f"{digits} hex digits")


def _is(cell: object, wanted: str) -> str:
    shown = repr(cell)
    return f"is {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '...'}, not {wanted}"
