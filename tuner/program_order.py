"""The order in which Triton's interpreter runs the programs of a launch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def last_program_first() -> Iterator[None]:
    """Within it the programs of a grid run from the last to the first. Nothing changes where kernels are compiled.

    A GPU runs them in any order, so that no right kernel depends on it.
    """
    interpreter = sys.modules.get("triton.runtime.interpreter")  # loaded by the first kernel that it interprets
    if interpreter is None:
        yield
        return
    builder = interpreter.interpreter_builder
    in_order = builder.set_grid_idx

    def from_the_end(*place: int) -> None:
        in_order(*(size - 1 - at for size, at in zip(builder.grid_dim, place, strict=True)))

    builder.set_grid_idx = from_the_end
    try:
        yield
    finally:
        builder.set_grid_idx = in_order
