"""Input families of the row softmax.

=============== ====================================================================================================
randn           standard normal
masked          -inf entries: the first half of a row, all of them, all but the last column, the second half, 70 % at
                random; a tile of nothing but -inf comes first, last and between. What is left of every third row lies
                200 lower, so that a maximum of 0 that a guard leaves behind underflows it
rising          the maximum grows in every tile, by tens of nats over three tiles
falling         the maximum falls by more than 128 / log2(e) nats per tile of three, so that a wrong alpha overflows
climbing        the maximum grows by 3 to 5 over the row: every tile has a share in the sum, and an error of alpha
                stays (only where the sum itself is seen, or its logarithm)
very_negative   every value far below any finite sentinel that fits the format
one_hot         one value decides the row, in another column of every row; a third of the rows lie 300 lower, so that
                the maximum of another row underflows them
huge            standard normal times 64, in every third row times 1024
constant        every value of a row the same
tiny            standard normal times 2^-13: weights that are all but equal
nonfinite       a NaN at a row's start or end, +inf in its middle (the row is NaN), -inf in its middle (it is not)
=============== ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tuner.errors import ProblemError
from tuner.operators.tensors import TORCH_DTYPES, seed_of, standard_normal
from tuner.problem import Problem

# Rows of a structured family are filled in blocks of about this many elements, so that temporaries stay small.
_BLOCK = 2**26
_RISE = 120.0
_FALL = 700.0  # over the row: three tiles and a tail fall by about 200 nats each
_VERY_NEGATIVE = {"fp16": -6.0e4, "bf16": -4.0e6, "fp32": -4.0e6}

Fill = Callable[[torch.Tensor, torch.Tensor, str], torch.Tensor]


def normal(problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
    """Standard normal ``x`` [rows, cols] with the problem's row stride."""
    return {"x": _normal(problem, seed, device)}


def make(problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
    """``x`` [rows, cols] of one family. Raises ``ProblemError`` on an unknown family."""
    if family == "randn":
        return normal(problem, seed_of(family, seed), device)
    if family not in _FILLS:
        raise ProblemError(f"{problem.operator} has no input family {family!r}; it has randn, {', '.join(_FILLS)}")
    x = _normal(problem, seed_of(family, seed), device)
    rows, cols = x.shape
    step = max(1, _BLOCK // cols)
    for start in range(0, rows, step):
        block = x[start : start + step]
        index = torch.arange(start, start + block.shape[0], device=x.device)[:, None]
        block.copy_(_FILLS[family](block.float(), index, problem.dtype))
    return {"x": x}


def _normal(problem: Problem, seed: int, device: str) -> torch.Tensor:
    s = problem.sizes
    shape = (s["rows"], s["cols"])
    strides = None if s["row_stride"] == s["cols"] else (s["row_stride"], 1)
    return standard_normal(shape, problem.dtype, seed, device, strides)


def _place(x: torch.Tensor) -> torch.Tensor:
    """Each column's place in the row, 0 to 1: float [1, cols]."""
    cols = x.shape[1]
    return torch.arange(cols, device=x.device)[None, :] / max(1, cols - 1)


def _masked(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    place, cols = _place(x), x.shape[1]
    column = torch.arange(cols, device=x.device)[None, :]
    kind = row % 6
    scattered = (column * 7919 + row * 104729) % 1000 < 700
    mask = (kind == 0) & (place < 0.5)
    mask |= kind == 1
    mask |= (kind == 2) & (column < cols - 1)
    mask |= (kind == 3) & (place >= 0.5)
    mask |= (kind == 4) & scattered
    mask |= (kind == 5) & (place > 0.3) & (place < 0.8)
    return (x - 200.0 * (row % 3 == 0)).masked_fill(mask, float("-inf"))


def _lowest(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    """Masks as models add them: the lowest finite number, over a part of a row or all of it."""
    place = _place(x)
    mask = (row % 3 == 0) | ((row % 3 == 1) & (place < 0.6))
    return x.masked_fill(mask, torch.finfo(TORCH_DTYPES[dtype]).min)


def _plateau(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    """A few maxima and many equal weights below them: roundings of the weights do not average out in the sum."""
    return torch.where(_place(x) < 0.1, 0.0, -0.3 - 0.1 * (row % 5)).expand_as(x)


def _rising(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    return x + _RISE * _place(x)


def _climbing(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    return 0.1 * x + (3.0 + row % 3) * _place(x)


def _falling(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    return x - _FALL * _place(x)


def _very_negative(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    return x + _VERY_NEGATIVE[dtype]


def _one_hot(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    cols = x.shape[1]
    column = torch.arange(cols, device=x.device)[None, :]
    low = row * 37 % 101 % 3 == 0  # no step from row to row keeps to either kind
    return 0.1 * x + 40.0 * (column == (row * 37 + 11) % cols) - 300.0 * low


def _huge(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    return torch.where(row % 3 == 1, 1024.0, 64.0) * x


def _constant(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    return (row % 7 - 3.0).expand_as(x)


def _tiny(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    return 2.0**-13 * x


def _nonfinite(x: torch.Tensor, row: torch.Tensor, dtype: str) -> torch.Tensor:
    cols = x.shape[1]
    column = torch.arange(cols, device=x.device)[None, :]
    x = x.masked_fill(((row % 5 == 0) & (column == cols - 1)) | ((row % 5 == 3) & (column == 0)), float("nan"))
    x = x.masked_fill((row % 5 == 1) & (column == cols // 2), float("inf"))
    return x.masked_fill((row % 5 == 2) & (column == cols // 2), float("-inf"))


_FILLS: dict[str, Fill] = {
    "masked": _masked,
    "lowest": _lowest,
    "plateau": _plateau,
    "rising": _rising,
    "climbing": _climbing,
    "falling": _falling,
    "very_negative": _very_negative,
    "one_hot": _one_hot,
    "huge": _huge,
    "constant": _constant,
    "tiny": _tiny,
    "nonfinite": _nonfinite,
}
