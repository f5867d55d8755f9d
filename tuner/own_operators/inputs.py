"""Input families of declared operators: standard normal tensors, changed in place.

========= =========================================================================================================
randn     standard normal, as the operator's ``draw`` leaves them
uniform   from 0 to 1: every product and sum has one sign
huge      the first tensor of floating point times 64
tiny      the first tensor of floating point times 2^-10
offset    the first tensor of floating point plus 16: what a sum loses shows against what it should cancel to
one       every tensor of floating point is 1: equal terms, whose roundings do not average out
spiky     the first tensor of floating point is 0 but for one element of each row, in another column every row
outlier   one element of each row of the first one is 256 or, by turns, -256, in another column every row
constant  every row of the first one holds one value of its own
blank     every third row of the first one is 0, its first row among them
zeros     every tensor of floating point is 0
nonfinite in the first one some rows hold a NaN, at their start or end, some +inf or -inf in their middle; where the
          file says that this is defined
========= =========================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from tuner.errors import ProblemError
from tuner.operators.tensors import seed_of, standard_normal
from tuner.own_operators.declaration import INTEGER_DTYPES, OwnOperator
from tuner.own_operators.shapes import shape_of
from tuner.problem import Problem

_INTEGERS = {"int32": torch.int32, "int64": torch.int64}
_STEP = 7919  # a prime, so that neighbouring rows have their element far apart
# exp() of it overflows in fp32 and not in the reference's float64; its square and sums of such fit into fp32.
_FAR = 256.0
NONFINITE = "nonfinite"

Tensors = dict[str, torch.Tensor]


def normal(declared: OwnOperator, problem: Problem, seed: int, device: str) -> Tensors:
    """The inputs of the family ``randn``; on ``meta`` tensors without values."""
    made: Tensors = {}
    for name, spec in declared.tensors.items():
        if name not in declared.inputs:
            continue
        shape, dtype = shape_of(spec, problem.sizes), spec.dtype or problem.dtype
        if dtype in INTEGER_DTYPES:
            made[name] = torch.zeros(shape, dtype=_INTEGERS[dtype], device=device)
        else:
            made[name] = standard_normal(shape, dtype, seed_of(seed, name), device)
    if declared.draw is not None and device != "meta":
        declared.draw(made, problem.sizes, torch.Generator("cpu").manual_seed(seed_of(seed, "draw")))
    return made


def make(declared: OwnOperator, problem: Problem, family: str, seed: int, device: str) -> Tensors:
    """The inputs of one family. Raises ``ProblemError`` on an unknown family."""
    made = normal(declared, problem, seed_of(family, seed), device)
    if family == "randn":
        return made
    if family in declared.families:
        declared.families[family](made)
        return made
    if family not in _CHANGES:
        raise ProblemError(f"{declared.name} has no input family {family!r}; it has {', '.join(names(declared))}")
    _CHANGES[family]([t for t in made.values() if t.is_floating_point()])
    return made


def names(declared: OwnOperator) -> tuple[str, ...]:
    """The families that apply, the generic one first. One of the file's own takes the place of a shipped one."""
    every = dict.fromkeys(("randn", *declared.families, *_CHANGES))
    return tuple(n for n in every if n not in declared.without and (n != NONFINITE or declared.nonfinite))


def _spiky(tensors: list[torch.Tensor]) -> None:
    rows, here = _one_of_each_row(tensors[0])
    rows.masked_fill_(~here, 0.0)


def _outlier(tensors: list[torch.Tensor]) -> None:
    rows, here = _one_of_each_row(tensors[0])
    sign = 1.0 - 2.0 * (torch.arange(len(rows), device=rows.device) % 2)[:, None]
    rows.copy_(torch.where(here, _FAR * sign.to(rows.dtype), rows))


def _constant(tensors: list[torch.Tensor]) -> None:
    rows = _rows(tensors[0])
    rows.copy_(rows[:, :1].clone().expand_as(rows))


def _blank(tensors: list[torch.Tensor]) -> None:
    _rows(tensors[0])[::3] = 0.0


def _zeros(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        tensor.zero_()


def _nonfinite(tensors: list[torch.Tensor]) -> None:
    rows = _rows(tensors[0])
    last = rows.shape[1] - 1
    # The first row is one of them, since there may be no other; the second stays finite.
    for first, (column, value) in zip(
        (0, 2, 3, 4), ((last, math.nan), (0, math.nan), (last // 2, math.inf), (last // 2, -math.inf)), strict=True
    ):
        rows[first::5, column] = value


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1, tensor.shape[-1])


def _one_of_each_row(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of ``tensor``, and where in them one element of each is, in another column every row: bool."""
    rows = _rows(tensor)
    at = torch.arange(len(rows), device=rows.device)[:, None] * _STEP % rows.shape[1]
    return rows, torch.arange(rows.shape[1], device=rows.device)[None, :] == at


def _uniform(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        tensor.copy_(tensor.float().mul_(0.7071).erf_().add_(1.0).mul_(0.5))  # the normal distribution's own quantile


def _one(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        tensor.fill_(1.0)


_CHANGES: dict[str, Callable[[list[torch.Tensor]], object]] = {
    "uniform": _uniform,
    "huge": lambda tensors: tensors[0].mul_(64.0),
    "tiny": lambda tensors: tensors[0].mul_(2.0**-10),
    "offset": lambda tensors: tensors[0].add_(16.0),
    "one": _one,
    "spiky": _spiky,
    "outlier": _outlier,
    "constant": _constant,
    "blank": _blank,
    "zeros": _zeros,
    NONFINITE: _nonfinite,
}
