"""Offsets of 32 bits, which overflow in tensors of more than 2^31 elements: of some kinds on one template each."""

from __future__ import annotations

from tests.mutation.cross_entropy_bwd_mutants import gradient
from tests.mutation.mutant import mutant
from tests.mutation.rewriting import Change

_NAME, _BREAKS = "row_offset_in_32_bits", "a row's place overflows"
_ROWS = {"rows": 22_000_000}

LARGE = (
    mutant(
        "softmax",
        _NAME,
        _BREAKS,
        Change("tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
        ("whole_row",),
        shape=_ROWS,
    ),
    mutant(
        "softmax_bwd",
        _NAME,
        _BREAKS,
        Change("tl.cast(row, tl.int64) * any_s", "row * any_s"),
        ("whole_row",),
        shape=_ROWS,
    ),
    gradient(
        _NAME,
        _BREAKS,
        also={"row_tiles": Change("(tl.program_id(0) // tiles).to(tl.int64)", "tl.program_id(0) // tiles")},
        shape={"rows": 1_000_000},
    ),
)
