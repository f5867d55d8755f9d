"""Where a template may be used and what follows from a shape: the part of a search space that outlives a study.

It is read back from the text that is stored with each study, so the files of the space need not be there any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tuner.canonical import digest
from tuner.config import Config, Value
from tuner.device import Device
from tuner.errors import ExpressionError, SpaceError
from tuner.expression import Expression
from tuner.located_yaml import parse_yaml
from tuner.numerics import FORMATS
from tuner.operators import get
from tuner.problem import Problem, Scalar


def given_names(problem: Problem, device: Device) -> dict[str, Scalar]:
    """The names that problem and device give to a search space's expressions."""
    itemsize = FORMATS[problem.dtype].itemsize
    return {**get(problem.operator).facts(problem), "dtype": problem.dtype, "itemsize": itemsize, **device.facts}


@dataclass(frozen=True)
class Rules:
    """Of one template: ``where`` and ``constraints`` must hold, ``fixed`` switches and ``derived`` values follow.

    ``derived`` is in an order in which each needs only earlier ones. ``limits`` are the axes of which a template takes
    a limited number of tiles: the axis, elements per tile, and how many it may take.
    """

    template: str
    where: Expression | None
    fixed: tuple[tuple[str, Expression], ...]
    derived: tuple[tuple[str, Expression], ...]
    constraints: tuple[Expression, ...]
    limits: tuple[tuple[str, Expression, Expression], ...] = ()

    @cached_property
    def key(self) -> str:
        """A hash of what they say."""
        fixed, derived = ({name: e.text for name, e in part} for part in (self.fixed, self.derived))
        where = self.where.text if self.where else None
        limits = [[axis, tile.text, most.text] for axis, tile, most in self.limits]
        return digest([where, fixed, list(derived.items()), [e.text for e in self.constraints], limits], 12)

    def must_cover(self, chosen: Collection[str]) -> tuple[str, ...]:
        """The axes that tiles of a ``chosen`` size must cover: at a larger size such a config computes a part only."""
        found = []
        for axis, tile, _ in self.limits:
            names = set(tile.names)
            for name, expression in reversed(self.derived):
                if name in names:
                    names |= expression.names
            if names & set(chosen) and axis not in names:
                found.append(axis)
        return tuple(found)

    def config_at(self, config: Config, problem: Problem, device: Device) -> Config | None:
        """``config`` with what follows from another ``problem`` (or device); None where it is not valid there."""
        names: dict[str, Scalar] = given_names(problem, device)
        try:
            if self.where is not None and not self.where.evaluate(names):
                return None
            values = config.values
            for name, expression in self.fixed:
                if expression.evaluate(names) != values[name]:
                    return None
                names[name] = values[name]
            names |= {name: values[name] for name in config.chosen}
            names |= dict(config.switches)
            derived: dict[str, Value] = {}
            for name, expression in self.derived:
                value = expression.evaluate(names)
                if value is None:
                    return None
                names[name] = derived[name] = value
            if not all(expression.evaluate(names) for expression in self.constraints):
                return None
            for axis, tile, most in self.limits:
                if _tiles(names[axis], tile.evaluate(names)) > int(str(most.evaluate(names))):
                    return None
        except (ExpressionError, KeyError, ValueError, ZeroDivisionError):
            return None
        switches = dict(config.switches)
        launch = {name: values[name] for name in config.chosen if name not in switches} | derived
        return Config(config.template, config.switches, tuple(sorted(launch.items())), config.chosen)


@lru_cache(maxsize=256)
def read_rules(space_text: str, template: str) -> Rules | None:
    """The rules of ``template`` in the text of a search space; None where it cannot be read, or has no such template.

    Expressions are parsed in the language of search spaces; nothing in the text is run.
    """
    try:
        entry = parse_yaml(space_text, Path("space.yaml")).data["templates"][template]
        return _rules(template, entry)
    except (SpaceError, ExpressionError, KeyError, TypeError, AttributeError):
        return None


def _rules(template: str, entry: Mapping[str, Any]) -> Rules:
    switches = entry.get("switches") or {}
    fixed = {name: _expression(value) for name, value in switches.items() if not isinstance(value, list)}
    derived = {name: _expression(value) for name, value in (entry.get("derived") or {}).items()}
    where = entry.get("where")
    return Rules(
        template,
        None if where is None else _expression(where),
        tuple(fixed.items()),
        tuple((name, derived[name]) for name in _ordered(derived)),
        tuple(_expression(text) for text in entry.get("constraints") or ()),
        tuple(
            (axis, _expression(entry["tiles"][axis]), _expression(most))
            for axis, most in (entry.get("max_tiles") or {}).items()
        ),
    )


def _tiles(size: Scalar, tile: Scalar) -> int:
    return -(-int(str(size)) // int(str(tile)))


def _expression(value: object) -> Expression:
    return Expression.parse(str(value))


def _ordered(derived: Mapping[str, Expression]) -> list[str]:
    order: list[str] = []
    while len(order) < len(derived):
        ready = [n for n, e in derived.items() if n not in order and not (e.names & derived.keys()) - set(order)]
        if not ready:
            raise ExpressionError("derived values need one another")
        order += ready
    return order
