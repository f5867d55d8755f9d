"""What a search space says about one template, as values. ``tuner.space_file`` reads them from YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tuner.config import Value
from tuner.errors import ExpressionError, SpaceError
from tuner.expression import Expression
from tuner.problem import Scalar


@dataclass(frozen=True)
class Clause:
    """An expression of a search space and where it stands, so that what goes wrong with it later can say where."""

    path: Path
    line: int
    key: str
    expression: Expression

    @property
    def text(self) -> str:
        """The expression as written."""
        return self.expression.text

    def evaluate(self, values: Mapping[str, Scalar]) -> Scalar:
        """Its value. Raises ``SpaceError`` where it has none."""
        try:
            return self.expression.evaluate(values)
        except ExpressionError as error:
            raise SpaceError(self.path, self.line, self.key, str(error)) from None

    def value(self, values: Mapping[str, Scalar]) -> Value:
        """Its value. Raises ``SpaceError`` where that is None."""
        result = self.evaluate(values)
        if result is None:
            self.fail("gives None", "say what it is then, as in `2 if x == None else x`", values)
        return result

    def holds(self, values: Mapping[str, Scalar]) -> bool:
        """Its truth. Raises ``SpaceError`` where it is neither true nor false."""
        result = self.evaluate(values)
        if not isinstance(result, bool):
            self.fail(f"gives {result!r}, which is neither true nor false", "compare it with something", values)
        return result

    def size(self, values: Mapping[str, Scalar]) -> int:
        """Its value, a whole number of at least 1. Raises ``SpaceError`` where it is not."""
        result = self.evaluate(values)
        if isinstance(result, bool) or not isinstance(result, int) or result < 1:
            self.fail(f"gives {result!r}", "it must give a whole number of at least 1", values)
        return result

    def fail(self, problem: str, remedy: str, values: Mapping[str, Scalar]) -> NoReturn:
        """Raise the ``SpaceError`` that says what is wrong with its value under ``values``."""
        shown = self.expression.shown_values(values)
        shown = f" (with {shown})" if shown else ""
        raise SpaceError(self.path, self.line, self.key, f"`{self.text}` {problem}{shown}", remedy)


@dataclass(frozen=True)
class TemplateSpace:
    """One template's part of a search space.

    ``choices`` are the searched names, switches (``searched_switches``) before parameters, in the file's order;
    ``fixed`` are the switches that the problem decides. ``derived`` is in an order in which each value needs only
    earlier ones. ``needs_gpu``: the interpreter cannot run it.
    ``plain`` has a value, or an expression for it, for every searched name. Lines are 1-based.
    """

    path: Path
    line: int
    operator: str
    name: str
    source: Path
    needs_gpu: bool
    where: Clause | None
    choices: Mapping[str, tuple[Value, ...]]
    searched_switches: tuple[str, ...]
    fixed: Mapping[str, Clause]
    derived: Mapping[str, Clause]
    constraints: tuple[Clause, ...]
    tiles: Mapping[str, Clause]
    max_tiles: Mapping[str, Clause]
    precision: Mapping[str, Clause]
    plain: Mapping[str, Value | Clause]
    lines: Mapping[str, int]

    @property
    def switches(self) -> tuple[str, ...]:
        """Every switch: the searched ones, then those that the problem fixes."""
        return (*self.searched_switches, *self.fixed)

    @property
    def combinations(self) -> int:
        """How many combinations of choices there are, before constraints."""
        total = 1
        for values in self.choices.values():
            total *= len(values)
        return total

    @property
    def expressions(self) -> tuple[Clause, ...]:
        """Every expression over the searched names."""
        return (
            *self.derived.values(),
            *self.constraints,
            *self.tiles.values(),
            *self.max_tiles.values(),
            *self.precision.values(),
        )

    def error(self, section: str, name: str, problem: str, remedy: str) -> SpaceError:
        """A ``SpaceError`` about the name of a switch, parameter or derived value."""
        key = f"templates.{self.name}.{section}.{name}"
        return SpaceError(self.path, self.lines.get(name, self.line), key, problem, remedy)
