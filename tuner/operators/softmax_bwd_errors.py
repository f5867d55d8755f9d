"""Classical wrong answers of the softmax's gradient, in float64, on which the check's inputs must prove themselves."""

from __future__ import annotations

import torch

from tuner.operators.online_errors import TILE_DOUBLED, TILE_DROPPED
from tuner.operators.softmax_errors import LAST_COLUMN_LOST, NEIGHBOURS_ROW, ZEROS

SUM_LEFT_OUT = "the row's sum left out"
SUM_ADDED = "the row's sum added"
SUM_OF_DY = "the row's sum of dy, not of y dy"
SUM_OF_THE_NEIGHBOUR = "the sum of the row before"
Y_LEFT_OUT = "not multiplied with y"
Y_TWICE = "multiplied with y twice"
_OF_TILES = (TILE_DROPPED, TILE_DOUBLED)


def errors(rows: int, cols: int, tile: int) -> tuple[str, ...]:
    """The errors that change anything at all on a problem of this shape with tiles of ``tile`` columns."""
    found = [SUM_LEFT_OUT, SUM_ADDED]
    if cols > 1:
        found += [ZEROS, SUM_OF_DY, Y_LEFT_OUT, Y_TWICE, LAST_COLUMN_LOST]
    if cols > 1 and rows > 1:
        found += [NEIGHBOURS_ROW, SUM_OF_THE_NEIGHBOUR]
    if cols > tile:
        found += _OF_TILES
    return tuple(found)


def answer(y: torch.Tensor, dy: torch.Tensor, error: str, tile: int) -> torch.Tensor:
    """What a kernel with ``error`` would make of ``y`` and ``dy`` [rows, cols]: float64. Unrounded."""
    y, dy = y.double(), dy.double()
    if error == ZEROS:
        return torch.zeros_like(y)
    total = _sum(dy if error == SUM_OF_DY else y * dy, error, tile)
    if error == Y_LEFT_OUT:
        return dy - total
    dx = y * (dy - total)
    if error == NEIGHBOURS_ROW:
        return dx.roll(1, dims=0)
    return y * dx if error == Y_TWICE else dx


def _sum(products: torch.Tensor, error: str, tile: int) -> torch.Tensor:
    """Of ``products`` [rows, cols], what such a kernel subtracts: [rows, 1]."""
    total = products.sum(dim=1, keepdim=True)
    if error == SUM_LEFT_OUT:
        return torch.zeros_like(total)
    if error == SUM_ADDED:
        return -total
    if error == SUM_OF_THE_NEIGHBOUR:
        return total.roll(1, dims=0)
    if error == LAST_COLUMN_LOST:
        return products[:, :-1].sum(dim=1, keepdim=True)
    if error in _OF_TILES:
        starts = range(0, products.shape[1], tile)
        middle = starts[len(starts) // 2]
        part = products[:, middle : middle + tile].sum(dim=1, keepdim=True)
        return total - part if error == TILE_DROPPED else total + part
    return total
