"""YAML read as plain data, with the line of every key and item, and with limits on what a file may ask for.

Reading goes through PyYAML's node tree (``compose``): no tag can construct anything but text, numbers, booleans and
null, and repeated keys are seen, which a loader would drop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tuner.errors import SpaceError

MAX_BYTES = 1 << 19
MAX_NODES = 20_000
"""Nodes after aliases are expanded, so that a few lines of aliases cannot become billions of values."""
MAX_DEPTH = 20
MAX_DIGITS = 100
"""Longer numbers are none that anybody means; those of base 60 (``1:30``) take time that grows with the square."""

Where = tuple[str | int, ...]

_PLAIN_TAGS = ("str", "int", "float", "bool", "null")


@dataclass
class Located:
    """The ``data`` of the YAML file at ``path``, and the 1-based line of each key and item by its place in the data."""

    path: Path
    data: Any = None
    lines: dict[Where, int] = field(default_factory=dict)

    def line(self, where: Sequence[str | int]) -> int:
        """The line of the nearest known place at or above ``where``."""
        place = tuple(where)
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def error(self, where: Sequence[str | int], problem: str, remedy: str = "") -> SpaceError:
        """A ``SpaceError`` that says file, line and key of ``where``."""
        return SpaceError(self.path, self.line(where), dotted(where), problem, remedy)


def dotted(where: Sequence[str | int]) -> str:
    """A place as messages write it: ``templates.online.constraints[0]``."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_yaml(path: Path) -> Located:
    """Read the file at ``path``. Raises ``SpaceError`` where it cannot be read, is no YAML, or exceeds the limits."""
    return parse_yaml(_text(path), path)


def parse_yaml(text: str, path: Path) -> Located:
    """Read ``text``, which errors call ``path``. Raises ``SpaceError`` where it is no YAML, or exceeds the limits."""
    if len(text) > MAX_BYTES:
        raise SpaceError(path, 0, "", f"larger than {MAX_BYTES} bytes", "check that it is the right file, or split it")
    try:
        node = yaml.compose(text, Loader=_Bounded)
    except _Limit as limit:
        raise SpaceError(path, limit.line, "", *limit.said) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise SpaceError(path, mark.line + 1 if mark else 0, "", f"not valid YAML: {problem}", "correct it") from None
    except yaml.YAMLError as error:
        position = getattr(error, "position", None)
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else 0
        problem = " ".join(str(error).split("\n")[0].split())
        raise SpaceError(path, line, "", f"not valid YAML: {problem}", "correct it") from None
    located = Located(path)
    if node is not None:
        located.data = _Reading(located).plain(node, ())
    return located


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise SpaceError(path, 0, "", "is a folder, not a file", "name the YAML file inside it") from None
    except FileNotFoundError:
        raise SpaceError(path, 0, "", "no such file", "check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpaceError(path, 0, "", f"cannot be read: {reason}", "check the path and its permissions") from None
    if len(data) > MAX_BYTES:
        raise SpaceError(path, 0, "", f"larger than {MAX_BYTES} bytes", "check that it is the right file, or split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SpaceError(path, line, "", "not UTF-8", "save the file as UTF-8") from None


class _Limit(Exception):
    """Where a limit is met while nodes are made, and what is said of it: the problem and the remedy."""

    def __init__(self, line: int, said: tuple[str, str]) -> None:
        super().__init__(*said)
        self.line, self.said = line, said


_TOO_MANY = (f"more than {MAX_NODES} values (aliases count each time)", "split the file")
_TOO_DEEP = (f"nested deeper than {MAX_DEPTH} levels", "flatten it")


class _Bounded(yaml.SafeLoader):
    """Stops at the limits while it reads: making all nodes first would take minutes for a file of a few hundred KB."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.depth = self.count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        is_key = index is None and isinstance(parent, yaml.MappingNode)
        self.count += not is_key
        if self.count > MAX_NODES:
            raise _Limit(line, _TOO_MANY)
        if self.depth > MAX_DEPTH:
            raise _Limit(line, _TOO_DEEP)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _Reading:
    """One walk over a node tree."""

    def __init__(self, located: Located) -> None:
        self.located = located
        self.nodes = 0
        self.scalars = yaml.constructor.SafeConstructor()

    def plain(self, node: yaml.Node, where: Where) -> Any:
        line = node.start_mark.line + 1
        self.located.lines.setdefault(where, line)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise SpaceError(self.located.path, line, "", *_TOO_MANY)
        if len(where) > MAX_DEPTH:
            raise SpaceError(self.located.path, line, "", *_TOO_DEEP)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, where)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item, (*where, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, where)

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node, where) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                shown = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                raise SpaceError(
                    self.located.path, line, dotted(where), f"the key {shown} is not text", "put it in quotes"
                )
            place = (*where, key)
            if key in data:
                first = self.located.line(place)
                raise SpaceError(
                    self.located.path, line, dotted(place), f"given twice (first in line {first})", "keep one of them"
                )
            self.located.lines[place] = line
            data[key] = self.plain(value_node, place)
        return data

    def _scalar(self, node: yaml.Node, where: Where) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind in ("timestamp", "merge", "value"):
            return str(node.value)  # it only looks like one: `2024-01-01`, `<<`, `=`
        if kind not in _PLAIN_TAGS:
            raise SpaceError(
                self.located.path,
                node.start_mark.line + 1,
                dotted(where),
                f"the tag {node.tag} is not allowed",
                "write plain text, numbers, true/false, lists or mappings",
            )
        try:
            if kind in ("int", "float") and len(node.value) > MAX_DIGITS:
                raise ValueError("too long for a number")
            value = self.scalars.construct_object(node)
        except (ValueError, TypeError, KeyError, IndexError, yaml.YAMLError):
            value = math.nan
        if isinstance(value, float) and not math.isfinite(value):
            raise SpaceError(
                self.located.path,
                node.start_mark.line + 1,
                dotted(where),
                f"{str(node.value)[:40]} is not a number that can be used",
                "write a finite number, or put text in quotes",
            )
        return value
