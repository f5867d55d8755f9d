"""From the words and numbers of a file to values of a recording."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tuner.config import Config, Value
from tuner.errors import UsageError

ONLY_TEMPLATE = "kernel"
"""The template of recordings that know no templates."""


def config_of(template: str, values: Mapping[str, Value], categorical: Iterable[str] = ()) -> Config:
    """A config with every value as a launch parameter. Numbers of ``categorical`` parameters become names."""
    names = set(categorical)
    launch = {n: str(v) if n in names and not isinstance(v, bool) else v for n, v in values.items()}
    return Config(template, (), tuple(sorted(launch.items())), tuple(launch))


def value_of(cell: Any, where: str) -> Value:
    """A parameter's value out of JSON. Raises ``UsageError`` for lists, objects and null."""
    if isinstance(cell, bool | int | float | str):
        return whole(cell)
    raise UsageError(f"{where}: a parameter's value must be a number, a word or true/false, but is {cell!r}")


def whole(value: bool | int | float | str) -> Value:
    """``4.0`` as 4: formats differ in how they write whole numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def text_value(cell: str) -> Value:
    """A parameter's value out of a table's cell."""
    if cell in ("True", "False", "true", "false"):
        return cell.lower() == "true"
    try:
        number = float(cell)
    except ValueError:
        return cell
    return whole(number) if math.isfinite(number) else cell


def milliseconds(cell: Any, where: str) -> float:
    """A cost, 0 where it is not given. Raises ``UsageError`` where it is no time."""
    if cell is None or cell == "":
        return 0.0
    try:
        number = float(cell)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(cell, bool) or not 0.0 <= number < math.inf:
        raise UsageError(f"{where} must be milliseconds, but is {cell!r}")
    return number


def kernel_time_us(cell: Any, where: str) -> float:
    """Microseconds of a config that has a time, from milliseconds. Raises ``UsageError`` where it is none."""
    number = milliseconds(cell, where)
    if not number > 0.0:
        raise UsageError(f"{where} must be a positive number of milliseconds, but is {cell!r}")
    return number * 1000.0


def listed(cell: Any, path: Path, key: str) -> list[Any]:
    """A list of JSON. Raises ``UsageError`` where it is something else."""
    if not isinstance(cell, list):
        raise UsageError(f"{path}: `{key}` must be a list, but is {type(cell).__name__}")
    return cell


def mapped(cell: Any, where: str) -> dict[str, Any]:
    """An object of JSON. Raises ``UsageError`` where it is something else."""
    if not isinstance(cell, dict):
        raise UsageError(f"{where} must be an object, but is {type(cell).__name__}")
    return cell
