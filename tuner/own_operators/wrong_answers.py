"""Wrong answers that a check of any declared operator must be able to see, computed without a kernel.

An output of nothing but zeros; a factor of 1 + 2^-6; the neighbour's row; and a tile of the reduced axis left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tuner.own_operators.declaration import OwnOperator
from tuner.own_operators.shapes import axes_of

ZEROS, SCALED, NEIGHBOUR, LEFT_OUT = "all zeros", "a factor of 1 + 2^-6", "the neighbour's row", "a tile left out"

Tensors = Mapping[str, torch.Tensor]


def names(
    declared: OwnOperator, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]], tile: int
) -> tuple[str, ...]:
    """Those that would change the outputs. ``shapes``: of the outputs; ``tile``: elements of the reduced axis."""
    found = [ZEROS, SCALED]
    if any(shape[0] > 1 for shape in shapes.values()):
        found.append(NEIGHBOUR)
    if tile < sizes[declared.reduced] and _reduced(declared):
        found.append(LEFT_OUT)
    return tuple(found)


def answer(
    declared: OwnOperator, at: Callable[[Tensors], Tensors], inputs: Tensors, error: str, tile: int
) -> dict[str, torch.Tensor]:
    """The outputs with ``error``, float64. ``at`` is the reference of float64 inputs."""
    wide = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
    if error == LEFT_OUT:
        for name, axis in _reduced(declared):
            wide[name] = wide[name].clone()
            size = wide[name].shape[axis]
            wide[name].narrow(axis, (size - 1) // tile * tile, size - (size - 1) // tile * tile).zero_()
            break  # what is left out of one factor is out of the product
    right = at(wide)
    if error == ZEROS:
        return {name: torch.zeros_like(y) for name, y in right.items()}
    if error == SCALED:
        return {name: y * (1.0 + 2.0**-6) for name, y in right.items()}
    if error == NEIGHBOUR:
        return {name: y.roll(1, 0) for name, y in right.items()}
    return dict(right)


def _reduced(declared: OwnOperator) -> list[tuple[str, int]]:
    """The inputs of floating point that have the reduced axis as one of theirs, and where."""
    return [
        (name, spec.shape.index(declared.reduced))
        for name, spec in declared.tensors.items()
        if name in declared.inputs
        and declared.reduced in spec.shape
        and spec.dtype not in ("int32", "int64")
        and declared.reduced in axes_of(spec)
    ]
