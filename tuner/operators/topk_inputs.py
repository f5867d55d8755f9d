"""Input families of the softmax with top-k: those of the softmax (``softmax_inputs``), and two of its own.

Each shows in its first row what it is for, since a problem may have no other.

=========== ========================================================================================================
ties        multiples of 1/2, so that many elements are equal; in a third of the rows the largest are 0.0 and -0.0, in
            another third 1, hundreds of times over all tiles
clustered   the largest elements lie together, twice k of them from a column on that differs from row to row, or
            each 1024 columns from the last: what looks at one element of a group, or of a lane of tiles, misses some
=========== ========================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tuner.operators import softmax_inputs
from tuner.operators.tensors import seed_of
from tuner.problem import Problem

_APART = 1024
_ABOVE = 20.0


def make(problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
    """``x`` [rows, cols] of one family. Raises ``ProblemError`` on an unknown family."""
    if family not in _FILLS:
        return softmax_inputs.make(problem, family, seed, device)
    x = softmax_inputs.normal(problem, seed_of(family, seed), device)["x"]
    row = torch.arange(x.shape[0], device=x.device)[:, None]
    column = torch.arange(x.shape[1], device=x.device)[None, :]
    return {"x": x.copy_(_FILLS[family](x.float(), row, column, problem.sizes["k"]))}


def _ties(x: torch.Tensor, row: torch.Tensor, column: torch.Tensor, k: int) -> torch.Tensor:
    x = torch.where(row % 3 == 1, x.clamp(max=1.0), x)
    x = torch.where(row % 3 == 0, -x.abs(), x)
    x = (2.0 * x).round() / 2.0
    return torch.where(x == 0.0, torch.where((column * 7919 + row) % 3 == 0, 0.0, -0.0), x)


def _clustered(x: torch.Tensor, row: torch.Tensor, column: torch.Tensor, k: int) -> torch.Tensor:
    place = column - row * 37 % x.shape[1]
    together = (place >= 0) & (place < 2 * k)
    apart = place % _APART == 0
    return x + _ABOVE * torch.where(row % 2 == 0, together, apart)


_FILLS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor]] = {
    "ties": _ties,
    "clustered": _clustered,
}
