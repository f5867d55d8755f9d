"""How far a config may be from the reference, element by element; ``tuner.autotuning.referee`` has the rule.

|got - expected| <= (2 u_out + ARITHMETIC) |expected| + SENSITIVITY * s
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tuner.autotuning.arguments import base_tensor
from tuner.autotuning.asking import Reference, wide
from tuner.autotuning.kernel_source import KernelSource
from tuner.autotuning.written import keyword_values, mentions
from tuner.numerics import FORMATS

ARITHMETIC = 2.0**-15
SENSITIVITY = 8.0
FLOOR, VECTOR_FLOOR = 0.5, 0.1
DRAWS = 8

Tolerance = tuple[float, float]
"""Relative and absolute, in the place of the rule: |got - expected| <= relative * |expected| + absolute."""

_UNITS = {torch.float32: FORMATS["fp32"].u, torch.float16: FORMATS["fp16"].u, torch.bfloat16: FORMATS["bf16"].u}


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next larger number; 0 for what is no float."""
    return _UNITS.get(dtype, torch.finfo(dtype).eps / 2.0 if dtype.is_floating_point else 0.0)


def coarsest_unit(source: KernelSource, named: Mapping[str, Any]) -> float:
    """The unit roundoff of the coarsest format that the kernel's arithmetic uses."""
    dtypes = [base_tensor(value).dtype for value in named.values() if base_tensor(value) is not None]
    units = [unit_roundoff(dtype) for dtype in dtypes if dtype.is_floating_point and dtype.itemsize > 1]
    if (
        torch.float32 in dtypes
        and mentions(source, "dot")
        and keyword_values(source, "dot", "input_precision") != {"ieee"}
    ):
        units.append(FORMATS["tf32"].u)
    return max(units, default=0.0)


def bounds(
    reference: Reference,
    named: Mapping[str, Any],
    expected: Mapping[str, torch.Tensor],
    tolerance: Tolerance | None,
    unit: float,
) -> dict[str, torch.Tensor]:
    """Of every output in ``expected``, which ``reference`` gives for ``named``; ``unit`` is the coarsest's roundoff."""
    spread = {} if tolerance is not None else _spread(reference, named, expected, unit)
    return {
        name: _bound(want, base_tensor(named[name]).dtype, spread.get(name), tolerance)
        for name, want in expected.items()
    }


def _spread(
    reference: Reference, named: Mapping[str, Any], expected: Mapping[str, torch.Tensor], unit: float
) -> dict[str, torch.Tensor]:
    """Root mean square, element by element, of how far moved inputs move the result."""
    total = {name: torch.zeros_like(want, dtype=torch.float64) for name, want in expected.items()}
    for draw in range(DRAWS):
        generators: dict[str, torch.Generator] = {}
        moved = {name: _moved(value, unit, draw, generators) for name, value in wide(named).items()}
        found = reference.again(moved)
        for name, want in expected.items():
            difference = (found[name].double() - want.double()).square()
            total[name] += torch.where(torch.isfinite(difference), difference, 0.0)
    return {name: (summed / DRAWS).sqrt() for name, summed in total.items()}


def _bound(
    want: torch.Tensor, dtype: torch.dtype, spread: torch.Tensor | None, tolerance: Tolerance | None
) -> torch.Tensor:
    size = torch.where(torch.isfinite(want.double()), want.double().abs(), 0.0)
    if not dtype.is_floating_point:
        return torch.zeros_like(size)
    if tolerance is not None:
        return tolerance[0] * size + tolerance[1]
    assert spread is not None
    spread = spread.maximum(_floor(spread))
    unit = unit_roundoff(dtype)
    return (2.0 * unit + ARITHMETIC) * size + SENSITIVITY * spread + torch.finfo(dtype).tiny


def _floor(spread: torch.Tensor) -> torch.Tensor:
    """The least that an element's spread is taken to be, from those beside it."""
    squares = spread.square()
    if spread.dim() < 2:
        return VECTOR_FLOOR * squares.mean().sqrt()
    along = [squares.mean(dim=axis, keepdim=True).expand_as(spread) for axis in range(spread.dim())]
    return FLOOR * torch.stack(along).amin(dim=0).sqrt()


def _moved(value: Any, unit: float, draw: int, generators: dict[str, torch.Generator]) -> Any:
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return value
    device = str(value.device)
    generator = generators.setdefault(device, torch.Generator(device).manual_seed(draw))
    change = torch.rand(value.shape, generator=generator, dtype=torch.float64, device=device) * 2.0 - 1.0
    return value * (1.0 + unit * change)
