"""What search spaces and problems files need to know of an operator, and how they find one by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tuner.problem import Problem, Scalar


class Named(Protocol):
    """A shape parameter or an option."""

    @property
    def name(self) -> str: ...


class OperatorFacts(Protocol):
    """The part of an operator that names things and makes problems."""

    @property
    def name(self) -> str: ...

    @property
    def shape_parameters(self) -> Sequence[Named]: ...

    @property
    def options(self) -> Sequence[Named]: ...

    @property
    def reduced_axis(self) -> str:
        """The shape parameter that is reduced over, whose tiles a space must name; empty where none is."""
        ...

    def problem(self, shape: Mapping[str, int], dtype: str, options: Mapping[str, Scalar] | None = None) -> Problem: ...


Facts = Callable[[Problem], Mapping[str, Scalar]]
"""What expressions know of a problem, by name."""


def sizes_and_options(problem: Problem) -> dict[str, Scalar]:
    """The ``Facts`` of an operator that has none of its own."""
    return {**problem.sizes, **problem.settings}


Lookup = Callable[[str], OperatorFacts]
"""From a name to an operator; raises ``ProblemError`` for one that it does not know."""
