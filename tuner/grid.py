"""The combinations of one template's choices: counting and walking them, with constraints applied as early as possible.

A constraint depends on the searched names that it uses, directly or through derived values: its *roots*. As soon as
these have values it is looked at, and what it refuses is not walked into.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tuner.config import Value
from tuner.errors import SpaceError
from tuner.problem import Scalar
from tuner.template_space import Clause

MOST_STEPS = 300_000
"""So many values are tried while counting, and between one valid combination and the next: about a second."""
REMEMBERED = 100_000
"""A constraint's answers are remembered where its roots have at most this many combinations."""


@dataclass
class _Rule:
    """A constraint with what it needs: its roots, and the derived values between them and it."""

    clause: Clause
    roots: tuple[str, ...]
    derived: tuple[tuple[str, Clause], ...]
    constants: Mapping[str, Scalar]
    remember: bool
    answers: dict[tuple[Scalar, ...], bool] = field(default_factory=dict)

    def environment(self, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        environment = {**self.constants, **{root: values[root] for root in self.roots}}
        for name, clause in self.derived:
            environment[name] = clause.value(environment)
        return environment

    def holds(self, values: Mapping[str, Scalar]) -> bool:
        key = tuple([values[root] for root in self.roots])
        answer = self.answers.get(key)
        if answer is None:
            answer = self.clause.holds(self.environment(values))
            if self.remember:
                self.answers[key] = answer
        return answer


@dataclass(frozen=True)
class Count:
    """``valid`` combinations, and by constraint how many it refused before any other looked at them."""

    valid: int
    refused: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Grid:
    """``choices`` by name, ``derived`` values and ``constraints`` over them, and the ``constants`` that all may use."""

    choices: Mapping[str, tuple[Value, ...]]
    derived: Mapping[str, Clause]
    constraints: tuple[Clause, ...]
    constants: Mapping[str, Scalar]

    @cached_property
    def _rules(self) -> tuple[_Rule, ...]:
        return tuple(self._rule(clause) for clause in self.constraints)

    def _rule(self, clause: Clause) -> _Rule:
        needed = set(clause.expression.names)
        for name in reversed(tuple(self.derived)):  # each needs only earlier ones
            if name in needed:
                needed |= self.derived[name].expression.names
        roots = tuple(name for name in self.choices if name in needed)
        derived = tuple((name, derived) for name, derived in self.derived.items() if name in needed)
        size = math.prod(len(self.choices[root]) for root in roots)
        return _Rule(clause, roots, derived, self.constants, size <= REMEMBERED)

    @cached_property
    def domain(self) -> dict[str, tuple[Value, ...]]:
        """The choices that no constraint on one name alone (and the problem) refuses."""
        domain = dict(self.choices)
        for rule in self._rules:
            if not rule.roots and not rule.holds({}):
                return dict.fromkeys(self.choices, ())
            if len(rule.roots) == 1:
                (name,) = rule.roots
                domain[name] = tuple(value for value in domain[name] if rule.holds({name: value}))
        return domain

    def environment(self, values: Mapping[str, Value]) -> dict[str, Scalar]:
        """Every name with its value: the constants, ``values`` for the searched names, and what is derived."""
        environment: dict[str, Scalar] = {**self.constants, **values}
        for name, clause in self.derived.items():
            environment[name] = clause.value(environment)
        return environment

    def violated(self, values: Mapping[str, Value]) -> tuple[Clause, str] | None:
        """The first constraint, in the file's order, that refuses ``values``, and the values that it saw."""
        for rule in self._rules:
            if not rule.holds(values):
                return rule.clause, rule.clause.expression.shown_values(rule.environment(values))
        return None

    def valid(self) -> Iterator[dict[str, Value]]:
        """The valid combinations in the order of the choices, the last name varying fastest."""
        return self._walk(self.domain)

    def any_valid(self) -> bool:
        """Whether there is a valid combination."""
        return next(self._walk({name: self.domain[name] for name in self._pruning_order}), None) is not None

    def nearest(self, wanted: Mapping[str, Value]) -> dict[str, Value] | None:
        """The valid combination that differs from ``wanted`` in the fewest names, or None where there is none.

        Among equals the later names are changed, and by as little as possible; deterministic.
        """
        if not self.any_valid():
            return None
        near = {name: _by_distance(values, wanted[name]) for name, values in self.domain.items()}
        for changes in range(len(near) + 1):
            found = next(self._walk(near, wanted, changes), None)
            if found is not None:
                return found
        raise AssertionError("a valid combination exists, but was not met")

    def _walk(
        self, domain: Mapping[str, Sequence[Value]], wanted: Mapping[str, Value] | None = None, changes: int = 0
    ) -> Iterator[dict[str, Value]]:
        """What is valid in ``domain`` in its order; with at most ``changes`` from ``wanted``, where that is given."""
        names = tuple(domain)
        due = self._due(names)
        values: dict[str, Value] = {}
        steps = 0

        def descend(depth: int, left: int) -> Iterator[dict[str, Value]]:
            nonlocal steps
            if depth == len(names):
                yield dict(values)
                steps = 0
                return
            name = names[depth]
            for value in domain[name]:
                steps += 1
                if steps > MOST_STEPS:
                    raise self._too_many_steps()
                spent = wanted is not None and value != wanted[name]
                if spent and not left:
                    continue
                values[name] = value
                if all(rule.holds(values) for rule in due[depth + 1]):
                    yield from descend(depth + 1, left - spent)

        if all(rule.holds(values) for rule in due[0]):
            yield from descend(0, changes)

    def count(self) -> Count:
        """Count the valid combinations and the refusals; what no constraint can refuse any more is multiplied."""
        names = self._pruning_order
        due = self._due(names)
        last = max((depth for depth, rules in enumerate(due) if rules), default=0)
        below = [math.prod(len(self.choices[name]) for name in names[depth:]) for depth in range(len(names) + 1)]
        refused = {clause.text: 0 for clause in self.constraints}
        values: dict[str, Value] = {}
        steps = 0

        def passes(depth: int) -> bool:
            for rule in due[depth]:
                if not rule.holds(values):
                    refused[rule.clause.text] += below[depth]
                    return False
            return True

        def descend(depth: int) -> int:
            nonlocal steps
            if depth >= last:
                return below[depth]
            total, name = 0, names[depth]
            for value in self.choices[name]:
                steps += 1
                if steps > MOST_STEPS:
                    raise self._too_many_steps()
                values[name] = value
                if passes(depth + 1):
                    total += descend(depth + 1)
            return total

        return Count(descend(0) if passes(0) else 0, refused)

    def _too_many_steps(self) -> SpaceError:
        clause = max((rule for rule in self._rules), key=lambda rule: len(rule.roots)).clause
        return SpaceError(
            clause.path, clause.line, clause.key, f"more than {MOST_STEPS} combinations would have to be looked at",
            "let constraints use fewer names, or thin out the choices",
        )  # fmt: skip

    def _due(self, names: Sequence[str]) -> list[list[_Rule]]:
        """By depth, the rules whose roots are all among the first ``depth`` names and were not before."""
        due: list[list[_Rule]] = [[] for _ in range(len(names) + 1)]
        for rule in self._rules:
            due[max((names.index(root) + 1 for root in rule.roots), default=0)].append(rule)
        return due

    @cached_property
    def _pruning_order(self) -> tuple[str, ...]:
        """The names in an order in which constraints can be looked at after few combinations."""
        order: dict[str, None] = {}
        waiting = [rule.roots for rule in self._rules]
        while waiting:
            cost = [math.prod(len(self.choices[root]) for root in roots if root not in order) for roots in waiting]
            order |= dict.fromkeys(waiting.pop(cost.index(min(cost))))
        return tuple(order | dict.fromkeys(self.choices))


def nearest_choice(choices: Sequence[Value], value: Value) -> Value | None:
    """``value`` among ``choices``, else for numbers the nearest below it, else the smallest; None for anything else."""
    kind_matches = [choice for choice in choices if isinstance(choice, bool) is isinstance(value, bool)]
    if value in kind_matches:
        return kind_matches[kind_matches.index(value)]
    numbers = [choice for choice in kind_matches if isinstance(choice, int | float)]
    if not numbers or isinstance(value, bool | str):
        return None
    return max((number for number in numbers if number < value), default=min(numbers))


def _by_distance(choices: Sequence[Value], wanted: Value) -> tuple[Value, ...]:
    def distance(value: Value) -> tuple[bool, float]:
        both_numbers = isinstance(value, int | float) and isinstance(wanted, int | float)
        return value != wanted, abs(float(value) - float(wanted)) if both_numbers else 0.0

    return tuple(sorted(choices, key=distance))
