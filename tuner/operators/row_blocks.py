"""References of operators whose rows are independent: all rows of small matrices, a selection of large ones, in blocks.

Float64 needs eight bytes an element for each of a handful of temporaries, so that no matrix is taken as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tuner.operators.reference import BLOCK_ELEMENTS, OutputReference

# All rows are compared up to this many elements, a selection beyond.
_WHOLE = 2**22
_SELECTED = 2**23
_FEWEST_ROWS, _MOST_ROWS = 16, 512
# The rms check is of means; below this many columns there are too few roundings to average.
_RMS_COLUMNS = 256

Block = Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


def reference_of_rows(matrices: Sequence[torch.Tensor], has_nan: bool, block: Block) -> OutputReference:
    """What ``block`` makes of ``matrices``, each [rows, cols]; of a few hundred of their rows where they are large.

    ``block`` is given some rows of each in float64, and gives their expected values, bound and variance.
    """
    rows, cols = matrices[0].shape
    index = None
    if rows * cols > _WHOLE:
        index = (torch.tensor(_rows(rows, cols), device=matrices[0].device),)
        matrices = [matrix[index] for matrix in matrices]
    size = max(1, BLOCK_ELEMENTS // cols)
    pieces = zip(*(torch.split(matrix, size) for matrix in matrices), strict=True)
    parts = [block(*(piece.double() for piece in some)) for some in pieces]
    expected, bound, variance = (torch.cat(column) for column in zip(*parts, strict=True))
    return OutputReference(expected, bound, variance if cols >= _RMS_COLUMNS else None, index, has_nan)


def _rows(rows: int, cols: int) -> list[int]:
    """The first, the last, and rows spread evenly between them."""
    count = min(rows, max(_FEWEST_ROWS, min(_MOST_ROWS, _SELECTED // cols)))
    if count == 1:
        return [0]
    return sorted({i * (rows - 1) // (count - 1) for i in range(count)})
