"""What the softmax templates have in common, for the modules that plant bugs in them."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutant import Changes, Mutant, mutant

BLOCK = ("whole_row", "several_rows", "persistent")  # the row in one block
TILED = ("online", "split_row")  # a running maximum and sum in every lane
EVERY = (*BLOCK, *TILED)
EXP2 = "USE_EXP2=true"
RECOMPUTE = "RECOMPUTE_EXP=true"
HALF = ("bf16", "fp16")

INF = 'float("-inf")'
LOAD = f"tl.load(any_p, mask=any_m, other={INF}, **any_more)"
TAIL = "tl.load(any_p, mask=col < cols, **any_more)"
STORE = "tl.store(any_p, any_y, mask=any_m, **any_more)"
NARROW = "any_y.to(out_ptr.dtype.element_ty)"
FIRST_M = f"tl.full([BLOCK_COLS], {INF}, tl.float32)"
FIRST_L = "tl.zeros([BLOCK_COLS], tl.float32)"
ROW_MAX = "m = tl.max(logits, **any_more)"
PARTIAL = "softmax_split_partial_kernel"
WRITE = "softmax_split_write_kernel"
SHAPE = "rows, cols = x.shape"


def softmax(name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = EVERY, **more: Any) -> Mutant:
    """A mutant of the row softmax, of every template where none is named."""
    return mutant("softmax", name, breaks, changes, on, **more)
