"""Input families of declared operators: standard normal tensors, changed in place.

======== ==========================================================================================================
randn    standard normal, as the operator's ``draw`` leaves them
uniform  from 0 to 1: every product and sum has one sign
huge     the first tensor of floating point times 64
tiny     the first tensor of floating point times 2^-10
offset   the first tensor of floating point plus 16: what a sum loses shows against what it should cancel to
one      every tensor of floating point is 1: equal terms, whose roundings do not average out
spiky    the first tensor of floating point is 0 but for one element of each row, in another column every row
======== ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tuner.errors import ProblemError
from tuner.operators.tensors import seed_of, standard_normal
from tuner.own_operators.declaration import INTEGER_DTYPES, OwnOperator
from tuner.own_operators.shapes import shape_of
from tuner.problem import Problem

_INTEGERS = {"int32": torch.int32, "int64": torch.int64}
_STEP = 7919  # a prime, so that neighbouring rows have their element far apart

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
    """The families that apply, the generic one first."""
    own = tuple(declared.families)
    return tuple(name for name in ("randn", *own, *_CHANGES) if name not in declared.without)


def _spiky(tensors: list[torch.Tensor]) -> None:
    first = tensors[0]
    cols = first.shape[-1]
    rows = first.view(-1, cols)
    at = torch.arange(rows.shape[0], device=first.device)[:, None] * _STEP % cols
    rows.masked_fill_(torch.arange(cols, device=first.device)[None, :] != at, 0.0)


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
}
