"""What ``tuner query`` asks, from words to a selection of stored rows."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tuner.device import ESTIMATED, MEASURED
from tuner.errors import UsageError
from tuner.numerics import ALL_DTYPES
from tuner.operators import get, names
from tuner.own_operators.files import bare_name
from tuner.problem import Problem
from tuner.regression.points import Point
from tuner.store.history_records import Catalogue
from tuner.store.listing import COUNT, FASTEST, KINDS, SLOWEST, TRIALS, WINNERS, Selection, columns
from tuner.trial import Outcome

EVERY_OUTCOME = "all"
T = TypeVar("T")
MOST_ROWS = 2**31 - 1
"""No query gives more: a limit beyond it is a slip, and more than any database counts to."""


@dataclass(frozen=True)
class QueryResult:
    """A table: the names of the columns, and the rows. ``more``: rows beyond the limit were left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False

    def as_records(self) -> list[dict[str, Any]]:
        """Each row by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Range:
    """A shape parameter from ``low`` to ``high``, both included."""

    name: str
    low: float
    high: float

    def admits(self, problem: Problem) -> bool:
        """Whether the problem has the parameter, and in this range."""
        value = problem.sizes.get(self.name)
        return value is not None and self.low <= value <= self.high


_ANY = Point()


@dataclass(frozen=True)
class Filters:
    """What rows must be like; what is empty or None admits everything.

    ``shape``: ``cols=1024..8192,rows=4096``. ``device``: part of a name. ``software``: what a point says of software
    and time. ``outcomes`` empty: the timed ones; ``all`` is every one.
    """

    operator: str | None = None
    shape: str = ""
    dtype: str | None = None
    device: str | None = None
    software: Point = _ANY
    template: str | None = None
    outcomes: tuple[str, ...] = ()
    estimated: bool = False


def selection(
    catalogue: Catalogue,
    kind: str,
    filters: Filters,
    sort: Iterable[str] = (),
    group_by: Iterable[str] = (),
    limit: int | None = None,
) -> Selection:
    """The selection that the words ask for.

    An operator is called by its whole name, or by the part before ``@``. Raises ``UsageError`` on a name that nothing
    could have, with the closest ones.
    """
    if kind not in KINDS:
        raise UsageError(f"there are no {kind!r}; {_close(kind, KINDS)}")
    if limit is not None and not 1 <= limit <= MOST_ROWS:
        raise UsageError(f"the limit must be from 1 to {MOST_ROWS}, but got {limit}")
    problems = catalogue.problems
    # What could be stored is no mistake, though nothing is.
    shipped = [get(name) for name in names()]
    shapes = {name for problem in problems.values() for name in problem.sizes}
    shapes |= {parameter.name for operator in shipped for parameter in operator.shape_parameters}
    ranges = read_ranges(filters.shape, shapes)
    stored = {p.operator for p in problems.values()}
    _known(filters.operator, {*names(), *stored, *map(bare_name, stored)}, "operator")
    _known(filters.dtype, ALL_DTYPES, "dtype")
    device = (filters.device or "").lower()
    groups = tuple(group_by)
    for name in groups:
        _known(name, {*columns(kind), *shapes}, "column")
    sortable = {*groups, COUNT, FASTEST, SLOWEST} if groups else {*columns(kind), *shapes}
    order = tuple((name.removeprefix("-"), name.startswith("-")) for name in sort)
    for name, _ in order:
        _known(name, sortable, "column")
    mode = ESTIMATED if filters.estimated else MEASURED
    devices = [key for key, d in catalogue.devices.items() if not device or device in d.name.lower() or device == key]
    outcomes = _outcomes(filters.outcomes, kind)
    return Selection(
        kind=kind,
        problem_keys=_keys(
            problems,
            [
                key
                for key, problem in problems.items()
                if filters.operator in (None, problem.operator, bare_name(problem.operator))
                and filters.dtype in (None, problem.dtype)
                and all(r.admits(problem) for r in ranges)
            ],
        ),
        # What failed is rare: with every device named, its place is looked up, and not every trial.
        device_keys=devices if outcomes and Outcome.TIMED.value not in outcomes else _keys(catalogue.devices, devices),
        stack_keys=[
            key
            for key, stack in catalogue.stacks.items()
            if stack.mode == mode and filters.software.admits_stack(key, stack)
        ],
        outcomes=outcomes,
        templates=None if filters.template is None else (filters.template,),
        since=filters.software.since,
        until=filters.software.until,
        sort=order,
        group_by=groups,
        shapes=shapes,
        limit=None if limit is None else limit + 1,
    )


def read_ranges(text: str, known: Collection[str]) -> tuple[Range, ...]:
    """Reads ``cols=1024..8192,rows=4096``; either end may be left out. Raises ``UsageError``."""
    found = []
    for word in (w.strip() for w in text.split(",") if w.strip()):
        name, equals, value = (part.strip() for part in word.partition("="))
        low, dots, high = (part.strip().replace("_", "") for part in value.partition(".."))
        ends = (low, high if dots else low)
        if not (name and equals and value) or not all(end.isdigit() or (dots and not end) for end in ends):
            raise UsageError(f"--shape: cannot read {word!r}; write cols=4096 or cols=1024..8192")
        _known(name, known, "shape parameter")
        found.append(Range(name, float(ends[0] or 0), float(ends[1] or math.inf)))
        if found[-1].low > found[-1].high:
            raise UsageError(f"--shape: {word!r} admits nothing; the smaller end comes first")
    return tuple(found)


def result(column_names: Sequence[str], rows: Sequence[tuple[Any, ...]], limit: int | None) -> QueryResult:
    """The table of at most ``limit`` rows; one more was asked for, to know whether there are more."""
    kept = tuple(rows) if limit is None else tuple(rows[:limit])
    return QueryResult(tuple(column_names), kept, len(rows) > len(kept))


def _outcomes(wanted: Sequence[str], kind: str) -> Collection[str] | None:
    if EVERY_OUTCOME in wanted and kind != WINNERS:
        return None
    outcomes = [str(outcome) for outcome in Outcome]
    for name in wanted:
        _known(name, {*outcomes, EVERY_OUTCOME}, "outcome")
    if kind == WINNERS and wanted:
        raise UsageError(f"winners are right and timed; ask for an outcome of {TRIALS}")
    return tuple(wanted) or (Outcome.TIMED.value,)


def _keys(every: Mapping[str, T], wanted: Sequence[str]) -> Sequence[str] | None:
    """None where all are wanted: then there is nothing to filter."""
    return None if len(wanted) == len(every) else wanted


def _known(name: str | None, known: Collection[str], what: str) -> None:
    if name is not None and name not in known:
        raise UsageError(f"there is no {what} {name!r} here; {_close(name, known)}")


def _close(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), 1)
    if close:
        return f"did you mean {close[0]}?"
    return f"there is {', '.join(sorted(known))}" if known else "nothing is stored yet"
