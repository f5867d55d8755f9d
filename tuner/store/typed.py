"""Holds what was read to its types. SQLite stores any type in any column, and nobody checks what JSON says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from sqlalchemy import ColumnElement

from tuner.trial import FamilyReport

T = TypeVar("T")


def typed(value: T) -> T:
    """``value``, with every dataclass in it held to its annotations. Raises ``ValueError`` for one that is not."""
    for item in _dataclasses(value):
        try:
            _form(type(item)).model_validate(vars(item))  # type: ignore[arg-type]  # types are hashable
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"{type(item).__name__}.{where}: {first['msg']}") from None
    return value


def typed_rows(columns: Iterable[ColumnElement[Any]], rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The rows of a statement, each cell None or of its column's type. Raises ``ValueError``."""
    expected = [(_name(column), _python_types(column)) for column in columns]
    checked = []
    for row in rows:
        for cell, (name, kinds) in zip(row, expected, strict=True):
            if cell is not None and not isinstance(cell, kinds):
                raise ValueError(f"{name} holds {type(cell).__name__}, not {kinds[0].__name__}")
        checked.append(tuple(row))
    return checked


@cache
def _form(kind: Any) -> type[BaseModel]:
    """A model with the fields of a dataclass; dataclasses in it are only held to their class here."""
    fields: dict[str, Any] = {name: (hint, ...) for name, hint in get_type_hints(kind).items()}
    # An error may be infinite: a kernel that gives NaN is that far off. No time, and nothing else, is.
    may_be_infinite = kind is FamilyReport
    config = ConfigDict(
        strict=True, arbitrary_types_allowed=True, revalidate_instances="never", allow_inf_nan=may_be_infinite
    )
    return create_model(f"{kind.__name__}Form", __config__=config, **fields)


def _dataclasses(value: object) -> Iterator[Any]:
    if is_dataclass(value) and not isinstance(value, type):
        yield value
        for item in vars(value).values():
            yield from _dataclasses(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _dataclasses(item)
    elif isinstance(value, list | tuple) and value and not isinstance(value[-1], int | float | str):
        # Long lists of numbers are not walked through. The last tells: rows come as (number, value).
        for item in value:
            yield from _dataclasses(item)


def _name(column: ColumnElement[Any]) -> str:
    return str(getattr(column, "name", "a column"))


def _python_types(column: ColumnElement[Any]) -> tuple[type, ...]:
    try:
        kind = column.type.python_type
    except NotImplementedError:
        return (object,)
    return (float, int) if kind is float else (kind,)
