"""What a format is, and how one is found by its name: the shipped ones, and those that other packages register.

A package adds a format with an entry point in the group ``tuner.exporters`` that names an ``Exporter`` (an instance, or
a class without arguments).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from tuner.doctor import Check
from tuner.errors import UsageError
from tuner.exports.entry import Entry, LeftOut, Selection
from tuner.exports.losses import Loss
from tuner.naming import did_you_mean, listed

GROUP = "tuner.exporters"

_SHIPPED = {
    "fla": "tuner.exports.fla:FlaCache",
    "flaggems": "tuner.exports.flaggems:FlagGems",
    "flex": "tuner.exports.flex:FlexOptions",
    "python": "tuner.exports.python_package:PythonPackage",
    "triton": "tuner.exports.triton_module:TritonModule",
    "vllm_moe": "tuner.exports.vllm_moe:VllmMoe",
}


@dataclass(frozen=True)
class Table:
    """What a format makes of a selection.

    ``files`` is the text by path below what ``-o`` names (the path ``""`` is that file itself). ``used`` says which
    entry went where; ``notes`` tell a user what makes the consumer load it.
    """

    files: Mapping[str, str]
    used: tuple[tuple[Entry, str], ...]
    left_out: tuple[LeftOut, ...] = ()
    losses: tuple[Loss, ...] = ()
    notes: tuple[str, ...] = ()


@runtime_checkable
class Exporter(Protocol):
    """One format.

    ``consumer``: what loads it, with the versions whose loader was read. ``single_file``: ``-o`` names a file, else a
    folder. ``seed``: the consumer runs a kernel of its own, so configs of ours are a start for it and no proven choice;
    such a table is written only when asked for with ``--seed``. ``settings``: what ``--set NAME=VALUE`` takes,
    with help.
    """

    name: str
    summary: str
    consumer: str
    single_file: bool
    seed: bool
    settings: Mapping[str, str]

    def table(self, selection: Selection, settings: Mapping[str, str], name: str) -> Table:
        """The table; ``name`` is the last part of the path that is written.

        Pure: the same arguments give the same table. What the format cannot express goes into ``left_out``. Raises
        ``UsageError`` where nothing is left, or a setting cannot be meant.
        """

    def validate(self, files: Mapping[str, str]) -> None:
        """Hold the text of ``files`` to the consumer's rules. Raises ``UsageError`` (file, key, what to do)."""

    def examine(self) -> tuple[Check, ...]:
        """What stands between a table and its use on this machine, for ``tuner doctor --target``."""


def names() -> tuple[str, ...]:
    """Every known format, by name."""
    return tuple(sorted({*_SHIPPED, *(point.name for point in entry_points(group=GROUP))}))


def exporter(name: str) -> Exporter:
    """The format called ``name``; a shipped one goes before one of another package.

    Raises ``UsageError`` where there is none, or its package cannot be loaded.
    """
    if name in _SHIPPED:
        module, _, attribute = _SHIPPED[name].partition(":")
        found = getattr(import_module(module), attribute)()
        assert isinstance(found, Exporter)
        return found
    for point in entry_points(group=GROUP):
        if point.name == name:
            return _registered(name, point.value, point.load)
    raise UsageError(f"there is no export format {name!r}{did_you_mean(name, names())}; known: {listed(names())}")


def _registered(name: str, value: str, load: object) -> Exporter:
    assert callable(load)
    try:
        found = load()
        found = found() if isinstance(found, type) else found
    except Exception as error:  # another package's code, and any way in which it can fail
        raise UsageError(
            f"the export format {name!r} ({value}) cannot be loaded: {error}; repair its package"
        ) from None
    if not isinstance(found, Exporter):
        raise UsageError(f"the export format {name!r} ({value}) is no exporter; see docs/exports.md for what it needs")
    return found
