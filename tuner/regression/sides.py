"""Which software stacks of each device the two points are. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.device import ESTIMATED, Device
from tuner.errors import UsageError
from tuner.regression.points import Point
from tuner.store.history_records import StackUse
from tuner.store.location import without_password
from tuner.wording import remeasure_command

_MOST_LISTED = 6


@dataclass(frozen=True)
class Sides:
    """The points with what was left open filled in; the stack keys of each device, those first stored first.

    ``left_out`` says why a device is not compared.
    """

    before: Point
    after: Point
    stacks_before: Mapping[str, tuple[str, ...]]
    stacks_after: Mapping[str, tuple[str, ...]]
    left_out: tuple[str, ...] = ()


def choose_sides(
    before: Point,
    after: Point,
    used_before: Sequence[StackUse],
    used_after: Sequence[StackUse],
    devices: Mapping[str, Device],
) -> Sides:
    """The stacks of the two points. ``used_*`` are those of each point's database, first stored first.

    With nothing said the newest stack of each device is compared with the one before it. With one point naming
    software, the other is the newest other stack; with one naming a time, the other is the time before or since.
    Raises ``UsageError`` where a point admits no stack, or both are one.
    """
    before, after = _bounded(before, after)
    open_before, open_after = before.is_open, after.is_open
    same_database = before.db == after.db
    admitted_before = _admitted(before, used_before, "--before")
    admitted_after = _admitted(after, used_after, "--after")
    stacks_before: dict[str, tuple[str, ...]] = {}
    stacks_after: dict[str, tuple[str, ...]] = {}
    left_out: list[str] = []
    for device in admitted_before:
        old, new = admitted_before[device], admitted_after.get(device, ())
        if same_database and open_before and open_after:
            old, new = old[-2:-1], new[-1:]
        elif same_database and open_after and before.names_software:
            new = tuple(key for key in new if key not in old)[-1:]
        elif same_database and open_before and after.names_software:
            old = tuple(key for key in old if key not in new)[-1:]
        if old and new:
            stacks_before[device], stacks_after[device] = old, new
        else:
            name = devices[device].name if device in devices else device
            only = "its results are of one software stack only" if same_database else "it is in one database only"
            left_out.append(f"{name} is left out: {only}")
    sides = Sides(before, after, stacks_before, stacks_after, tuple(left_out))
    if not stacks_before:
        estimated = any(use.stack.mode == ESTIMATED for use in (*used_before, *used_after))
        raise UsageError(
            "there is nothing to compare: every device has results of one software stack only; name two points with "
            f"--before and --after (until=DATE and since=DATE, say), or run `{remeasure_command(estimated)}` on "
            "the other stack"
        )
    if same_database and stacks_before == stacks_after and _rest(before) == _rest(after):
        raise UsageError("--before and --after are one and the same; name two stacks, dates, revisions or databases")
    return sides


def _rest(point: Point) -> Point:
    """The point without what it says of software, which the stacks found for it say."""
    return replace(point, stack="", triton="", torch="", driver="")


def _bounded(before: Point, after: Point) -> tuple[Point, Point]:
    """With one point a time and the other open, the other is the rest of time."""
    if after.is_open and not before.names_software and before.until is not None:
        return before, replace(after, since=before.until)
    if before.is_open and not after.names_software and after.since is not None:
        return replace(before, until=after.since), after
    for point, other, flag in ((before, after, "--after"), (after, before, "--before")):
        if other.is_open and not point.is_open and not point.names_software and not point.db:
            raise UsageError(f"{flag} is missing: {point.label} alone does not say what to compare it with")
    return before, after


def _admitted(point: Point, used: Sequence[StackUse], flag: str) -> dict[str, tuple[str, ...]]:
    """The stack keys by device that ``point`` admits."""
    found: dict[str, tuple[str, ...]] = {}
    for use in used:
        if point.admits_stack(use.stack_key, use.stack):
            found[use.device_key] = (*found.get(use.device_key, ()), use.stack_key)
    if not found:
        if not used:
            where = f" in {without_password(point.db)}" if point.db else ""
            raise UsageError(f"no results{where} can be compared yet; run `tuner tune` first (estimates: --estimated)")
        labels = list(dict.fromkeys(f"{use.stack.label} ({use.stack_key[:8]})" for use in used))
        raise UsageError(f"{flag}: nothing is stored of {point.label}; there is {'; '.join(labels[-_MOST_LISTED:])}")
    return found
