"""Classical wrong answers of the softmax with top-k, in float64, on which the check's inputs must prove themselves.

Those of the softmax change the values alone. Those of the selection take other elements, with the right probabilities
of these, or give other columns.
"""

from __future__ import annotations

import torch

from tuner.operators import softmax_errors
from tuner.operators.topk_bound import largest

LAST_OF_EQUALS, SIGNED_ZEROS = "of equal elements the last first", "-0.0 below 0.0"
LAST_LOST, FIRST_LOST = "the k-th lost", "the largest lost"
ASCENDING, COLUMNS_FROM_ONE = "in ascending order", "columns counted from 1"
COLUMNS_IN_TILE, TILE_NOT_SEARCHED = "columns counted from the tile's first", "a tile not searched"
ONE_OF_A_GROUP = "one element of each group"
_GROUP = 4  # the fewest elements that a thread loads at once


def errors(rows: int, cols: int, k: int, tile: int) -> tuple[str, ...]:
    """The errors that change anything at all on a problem of this shape with tiles of ``tile`` columns."""
    found = [*softmax_errors.errors(rows, cols, tile), COLUMNS_FROM_ONE]
    if k > 1:
        found += [ASCENDING]
    if cols > k:
        found += [LAST_OF_EQUALS, SIGNED_ZEROS, LAST_LOST, FIRST_LOST]
    if k > 1 and cols >= k * _GROUP:
        found += [ONE_OF_A_GROUP]
    if cols > tile:
        found += [COLUMNS_IN_TILE]
    if cols - tile >= k and cols > tile:
        found += [TILE_NOT_SEARCHED]
    return tuple(found)


def answer(x: torch.Tensor, k: int, error: str, tile: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and indices [rows, k] of a kernel with ``error`` on ``x`` [rows, cols]: float64. Unrounded."""
    x = x.double()
    right = largest(x, k)
    chosen = right
    if error in (LAST_LOST, FIRST_LOST):
        more = largest(x, k + 1)
        chosen = more[:, 1:] if error == FIRST_LOST else torch.cat([more[:, : k - 1], more[:, k:]], dim=1)
    elif error == ASCENDING:
        chosen = right.flip(1)
    elif error == LAST_OF_EQUALS:
        chosen = x.shape[1] - 1 - largest(x.flip(1), k)
    elif error == SIGNED_ZEROS:
        chosen = largest(torch.where((x == 0.0) & torch.signbit(x), -torch.finfo(x.dtype).tiny, x), k)
    elif error == TILE_NOT_SEARCHED:
        middle = -(-x.shape[1] // tile) // 2 * tile
        chosen = largest(torch.cat([x[:, :middle], x[:, middle + tile :]], dim=1), k)
        chosen = torch.where(chosen < middle, chosen, chosen + tile)
    elif error == ONE_OF_A_GROUP:
        whole = x[:, : x.shape[1] // _GROUP * _GROUP].reshape(len(x), -1, _GROUP)
        groups = largest(whole.amax(dim=2), k)
        chosen = groups * _GROUP + whole.argmax(dim=2).gather(1, groups)
    values = softmax_errors.answer(x, error, tile).gather(1, chosen)
    if error == COLUMNS_FROM_ONE:
        chosen = chosen + 1
    elif error == COLUMNS_IN_TILE:
        chosen = chosen % tile
    return values, chosen.double()
