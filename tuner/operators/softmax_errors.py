"""Classical wrong answers of the row softmax, in float64, on which the check's inputs must prove themselves."""

from __future__ import annotations

import torch

from tuner.operators.online_errors import OF_TILES, WRONG_BASE, online

SCALE_TOO_LARGE, SCALE_TOO_SMALL = "scale 1 + 2^-6", "scale 1 - 2^-6"
LAST_COLUMN_LOST, PHANTOM_COLUMN = "the last column lost", "a column too many"
ZEROS, UNIFORM, NEIGHBOURS_ROW = "zeros", "all columns alike", "the row before"
_SCALES = {SCALE_TOO_LARGE: 1.0 + 2.0**-6, SCALE_TOO_SMALL: 1.0 - 2.0**-6}


def errors(rows: int, cols: int, tile: int) -> tuple[str, ...]:
    """The errors that change anything at all on a problem of this shape with tiles of ``tile`` columns."""
    found = [ZEROS, PHANTOM_COLUMN]
    if cols > 1:
        found += [WRONG_BASE, *_SCALES, LAST_COLUMN_LOST, UNIFORM]
    if cols > 1 and rows > 1:
        found.append(NEIGHBOURS_ROW)
    if cols > tile:
        found += OF_TILES
    return tuple(found)


def answer(x: torch.Tensor, error: str, tile: int) -> torch.Tensor:
    """What a kernel with ``error`` would make of ``x`` [rows, cols]: float64. Unrounded."""
    x = x.double()
    if error == ZEROS:
        return torch.zeros_like(x)
    if error == UNIFORM:
        return torch.full_like(x, 1.0 / x.shape[1])
    if error == NEIGHBOURS_ROW:
        return torch.softmax(x, dim=1).roll(1, dims=0)
    x, m, l = maximum_and_sum(x, error, tile)  # noqa: E741
    if error == WRONG_BASE:
        return torch.exp2(x - m) / l
    return (x - m).exp() / l


def maximum_and_sum(x: torch.Tensor, error: str, tile: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``x`` [rows, cols] as a kernel with ``error`` scales it, and the m and l [rows, 1] that it makes of it: float64.

    Right where ``error`` is none of the scale, of the columns that are seen, or of the tiles.
    """
    x = x.double() * _SCALES.get(error, 1.0)
    seen = x
    if error == LAST_COLUMN_LOST:
        seen = x[:, :-1]
    if error == PHANTOM_COLUMN:
        seen = torch.cat([x, torch.zeros_like(x[:, :1])], dim=1)
    m, l, _ = online(seen, None, tile, error)  # noqa: E741
    return x, m, l
