"""Shapes of tensors as expressions of a problem's sizes, and the sizes that given tensors have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.errors import ExpressionError, ProblemError
from tuner.expression import Expression
from tuner.own_operators.declaration import OwnOperator, TensorSpec


def shape_of(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The numbers of ``spec``'s axes. Raises ``ProblemError`` where one is no whole number of at least 1."""
    return tuple(_axis(axis, sizes) for axis in spec.shape)


def elements(spec: TensorSpec, sizes: Mapping[str, int]) -> int:
    """How many elements it has."""
    return math.prod(shape_of(spec, sizes))


def sizes_of(declared: OwnOperator, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes of a call with inputs of these ``shapes``, in the operator's order.

    A size is read off an axis that is its name, else off one that is a multiple of it (``"2 * n"``, ``"rows * n"``).
    Raises ``ProblemError`` where they do not fit together, or a size can be read off nothing.
    """
    found: dict[str, int] = {}
    specs = {name: spec for name, spec in declared.tensors.items() if name in declared.inputs}
    seen: list[tuple[str | int, int]] = []
    for name, spec in specs.items():
        if name not in shapes or len(shapes[name]) != len(spec.shape):
            raise ProblemError(f"{declared.name}: {name} must have {len(spec.shape)} axes {spec.shape}")
        seen += [(axis, int(size)) for axis, size in zip(spec.shape, shapes[name], strict=True)]
    found = {axis: size for axis, size in reversed(seen) if isinstance(axis, str) and axis in declared.sizes}
    for _ in declared.sizes:  # each round may give what another axis lacks
        for axis, size in seen:
            unknown = [name for name in (_names(axis) if isinstance(axis, str) else ()) if name not in found]
            if len(unknown) == 1:
                found[unknown[0]] = max(1, size // _axis(axis, {**found, unknown[0]: 1}))
    missing = [name for name in declared.sizes if name not in found]
    if missing:
        raise ProblemError(f"{declared.name}: no input has an axis that gives {', '.join(missing)}")
    for name, spec in specs.items():
        if shape_of(spec, found) != tuple(shapes[name]):
            raise ProblemError(
                f"{declared.name}: {name} has shape {tuple(shapes[name])}, but the others make it "
                f"{shape_of(spec, found)}"
            )
    return {name: found[name] for name in declared.sizes}


def axes_of(spec: TensorSpec) -> tuple[str, ...]:
    """The shape parameters that its axes are, or are made of."""
    return tuple(dict.fromkeys(name for axis in spec.shape if isinstance(axis, str) for name in _names(axis)))


def _names(axis: str) -> tuple[str, ...]:
    return tuple(sorted(Expression.parse(axis).used))


def _axis(axis: str | int, sizes: Mapping[str, int]) -> int:
    try:
        value = axis if isinstance(axis, int) else Expression.parse(axis).evaluate(sizes)
    except ExpressionError as error:
        raise ProblemError(f"the axis {axis!r}: {error}") from None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ProblemError(f"the axis {axis!r} gives {value!r}; it must give a whole number of at least 1")
    return value
