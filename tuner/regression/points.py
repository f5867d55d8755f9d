"""A point to compare: which software, which time, which templates, which database. Pure values."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, time

from tuner.device import Stack
from tuner.errors import UsageError
from tuner.store.location import without_password

_EXAMPLE = "such as triton=3.6,driver=580 or until=2026-05-01 or templates=v1.2 or db=old.db"


@dataclass(frozen=True)
class Point:
    """One side of a comparison; a field that is not set admits everything.

    ``stack`` is the beginning of a stack's key; ``triton``, ``torch`` and ``driver`` are versions, whole or up to a dot
    (``3.6`` is 3.6.0 and 3.6.1, not 3.60). ``since`` and ``until`` bound when a result was stored. ``templates`` is a
    git revision: only results of the templates as they were there. ``db`` names another database.
    """

    stack: str = ""
    triton: str = ""
    torch: str = ""
    driver: str = ""
    since: datetime | None = None
    until: datetime | None = None
    templates: str = ""
    db: str = ""

    @property
    def names_software(self) -> bool:
        """Whether it says which software."""
        return bool(self.stack or self.triton or self.torch or self.driver)

    @property
    def is_open(self) -> bool:
        """Whether it says nothing at all, so that the other side decides."""
        return self == Point(db=self.db) and not self.db

    @property
    def label(self) -> str:
        """For people: what ``parse_point`` reads, without the database's password."""
        words = [
            f"{f.name}={value:%Y-%m-%dT%H:%M:%S}"
            if isinstance(value, datetime)
            else f"{f.name}={without_password(value)}"
            for f in fields(self)
            if (value := getattr(self, f.name))
        ]
        return ",".join(words)

    def admits_stack(self, key: str, stack: Stack) -> bool:
        """Whether results on ``stack`` belong to it."""
        return (
            key.startswith(self.stack)
            and is_version(stack.triton, self.triton)
            and is_version(stack.torch, self.torch)
            and is_version(stack.driver, self.driver)
        )

    def admits_moment(self, moment: datetime) -> bool:
        """Whether what was stored at ``moment`` belongs to it."""
        return (self.since is None or moment >= self.since) and (self.until is None or moment <= self.until)


def is_version(version: str, wanted: str) -> bool:
    """Whether ``version`` is ``wanted``, or ``wanted`` with more behind a dot or a plus; everything is an empty one."""
    rest = version.removeprefix(wanted)
    return not wanted or version == wanted or (rest != version and rest[0] in ".+")


def as_point(given: str | Mapping[str, str] | Point, flag: str) -> Point:
    """A point from its text, from values by name, or as it is. Raises ``UsageError``."""
    if isinstance(given, Point):
        return given
    if isinstance(given, str):
        return parse_point(given, flag) if given.strip() else Point()
    return make_point(given, flag)


def parse_point(text: str, flag: str) -> Point:
    """Reads ``name=value,...``. Raises ``UsageError``, which names ``flag``."""
    given: dict[str, str] = {}
    for word in (w.strip() for w in text.split(",")):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not (name and equals and value):
            raise UsageError(f"{flag}: cannot read {without_password(word)!r}; write NAME=VALUE, {_EXAMPLE}")
        if name in given:
            raise UsageError(f"{flag}: {name} is given twice; give it once")
        given[name] = value
    return make_point(given, flag)


def make_point(given: Mapping[str, str], flag: str) -> Point:
    """From values by name; ``date`` is short for ``until``. Raises ``UsageError``."""
    values: dict[str, str | datetime] = dict(given)
    if "date" in values:
        if "until" in values:
            raise UsageError(f"{flag}: date is short for until; give one of them")
        values["until"] = values.pop("date")
    known = [f.name for f in fields(Point)]
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, [*known, "date"], 1)
            hint = f"did you mean {close[0]}?" if close else f"it takes {', '.join(known)}"
            raise UsageError(f"{flag}: there is no {name!r}; {hint}")
    for name, end_of_day in (("since", False), ("until", True)):
        if name in values:
            values[name] = read_moment(str(values[name]), f"{flag}: {name}", end_of_day=end_of_day)
    point = Point(**values)  # type: ignore[arg-type]
    if point.since and point.until and point.since > point.until:
        raise UsageError(f"{flag}: since is after until; swap them")
    return point


def read_moment(text: str, what: str, *, end_of_day: bool = False) -> datetime:
    """A moment of ISO 8601, in UTC where it names no zone; a date alone is its first, or last, instant.

    Raises ``UsageError`` that begins with ``what``.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{what}: cannot read {text!r}; write a date such as 2026-05-01 or 2026-05-01T14:30") from None
    if end_of_day and len(text) <= len("2026-05-01"):
        moment = datetime.combine(moment.date(), time.max)
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise UsageError(f"{what}: {text!r} is before the year 1 or after 9999 in UTC; write another moment") from None
