"""Bugs of the softmax's gradient."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutant import Changes, Mutant, mutant
from tests.mutation.rewriting import Change
from tests.mutation.softmax_templates import HALF, STORE

EVERY = ("whole_row", "two_pass")
_WHOLE = ("whole_row",)
_LOAD = "tl.load(any_p, mask=any_m, other=0.0, **any_more)"
_SHAPE = "rows, cols = y.shape"
_DX = "any_y * (any_dy - total)"
_NARROW = "dx.to(dx_ptr.dtype.element_ty)"
_SUMS = "tl.zeros([BLOCK_COLS], tl.float32)"
_WALK = "tl.range(tl.program_id(0), rows, **any_more)"


def _bug(name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = EVERY, **more: Any) -> Mutant:
    return mutant("softmax_bwd", name, breaks, changes, on, **more)


SUM = (
    _bug("sum_left_out", "y dy, without the row's sum", Change(_DX, "any_y * (any_dy - 0.0 * total)")),
    _bug("y_left_out", "dy less the sum, not multiplied with y", Change(_DX, "any_dy - total"), _WHOLE),
    _bug(
        "sum_of_dy",
        "the sum is of dy, not of y dy",
        also={
            "whole_row": Change("tl.sum(y * dy, axis=0)", "tl.sum(dy, axis=0)"),
            "two_pass": Change("sums += any_y * any_dy", "sums += any_dy"),
        },
    ),
    _bug(
        "products_in_bf16",
        "the sum is of products that were rounded to bf16",
        also={
            "whole_row": Change("tl.sum(y * dy, axis=0)", "tl.sum((y * dy).to(tl.bfloat16).to(tl.float32), axis=0)"),
            "two_pass": Change("sums += any_y * any_dy", "sums += (any_y * any_dy).to(tl.bfloat16).to(tl.float32)"),
        },
    ),
    _bug(
        "sum_in_bf16",
        "the sum is rounded to bf16",
        Change("total = tl.sum(any_s, axis=0)", "total = tl.sum(any_s, axis=0).to(tl.bfloat16).to(tl.float32)"),
    ),
    _bug(
        "sum_carried_into_the_next_row",
        "the sum is not reset between the rows of one program",
        (Change(f"sums = {_SUMS}", ""), Change("tiles = any_t", f"tiles = any_t\nsums = {_SUMS}")),
        ("two_pass",),
    ),
    _bug(
        "first_tile_not_in_the_sum",
        "the first pass starts at the second tile",
        Change("tl.range(0, tiles, **any_more)", "tl.range(1, tiles, **any_more)", which=0),
        ("two_pass",),
    ),
    _bug(
        "last_tile_not_in_the_sum",
        "the first pass stops one tile early",
        Change("tl.range(0, tiles, **any_more)", "tl.range(0, tiles - 1, **any_more)", which=0),
        ("two_pass",),
    ),
    _bug(
        "last_column_not_in_the_sum",
        "the sum is a column too short",
        also={
            "whole_row": Change("tl.sum(y * dy, axis=0)", "tl.sum(tl.where(col < cols - 1, y * dy, 0.0), axis=0)"),
            "two_pass": Change("sums += any_p", "sums += tl.where(col < cols - 1, any_p, 0.0)"),
        },
    ),
)

VALUES = (
    _bug(
        "wrong_by_1_percent", "every element is too large", Change(_NARROW, "(dx * 1.01).to(dx_ptr.dtype.element_ty)")
    ),
    _bug(
        "small_outputs_flushed",
        "what is below 1e-7 in magnitude is written as 0",
        Change(_NARROW, "tl.where(tl.abs(dx) < 1.0e-7, 0.0, dx).to(dx_ptr.dtype.element_ty)"),
        _WHOLE,
        dtypes=("bf16", "fp32"),
    ),
    _bug(
        "output_through_fp16",
        "the output is rounded to fp16 on its way",
        Change(_NARROW, "dx.to(tl.float16).to(dx_ptr.dtype.element_ty)"),
        _WHOLE,
        dtypes=("bf16", "fp32"),
    ),
    _bug(
        "nan_written_as_zero",
        "NaN in a row is taken for 0",
        Change(_NARROW, "tl.where(dx == dx, dx, 0.0).to(dx_ptr.dtype.element_ty)"),
        _WHOLE,
    ),
    _bug(
        "halves_swapped",
        "the two 16-bit halves of a word change places",
        Change("low.to(tl.uint32) | (high.to(tl.uint32) << 16)", "high.to(tl.uint32) | (low.to(tl.uint32) << 16)"),
        _WHOLE,
        config="HOLD_SHORT=true",
        dtypes=HALF,
    ),
    _bug(
        "one_for_the_other",
        "y and dy are held under each other's names",
        Change("_pack(y_in)", "_pack(dy_in)"),
        _WHOLE,
        config="HOLD_SHORT=true",
        dtypes=HALF,
    ),
)

PLACES = (
    _bug("load_not_masked", "reads past the end of a row", Change(_LOAD, "tl.load(any_p, **any_more)"), _WHOLE),
    _bug(
        "store_not_masked", "writes past the end of a row", Change(STORE, "tl.store(any_p, any_y, **any_more)"), _WHOLE
    ),
    _bug("tail_loaded_as_one", "columns past the end count", Change(_LOAD, _LOAD.replace("0.0", "1.0"))),
    _bug("last_row_left_out", "programs stop one early", Change(_WALK, _WALK.replace("rows", "rows - 1"))),
    _bug("stride_of_y_taken_for_columns", "y is read as if it had no gaps", Change("y.stride(0)", "cols"), _WHOLE),
    _bug("stride_of_dy_taken_for_columns", "dy is read as if it had no gaps", Change("dy.stride(0)", "cols"), _WHOLE),
    _bug(
        "stride_of_dx_taken_for_columns", "dx is written as if it had no gaps", Change("dx.stride(0)", "cols"), _WHOLE
    ),
    _bug(
        "dy_of_the_neighbour",
        "the next row of dy",
        Change("any_r * dy_row_stride", "(any_r + 1) * dy_row_stride"),
        _WHOLE,
    ),
    _bug("written_over_dy", "launch() scales dy in place", Change(_SHAPE, f"{_SHAPE}\ndy.mul_(2.0)"), _WHOLE),
    _bug(
        "first_input_kept",
        "launch() computes the first dy of each shape that it was given again and again",
        Change(_SHAPE, f"{_SHAPE}\ndy = launch.__dict__.setdefault((dy.shape, dy.stride()), dy.clone())"),
        _WHOLE,
    ),
    _bug(
        "second_pass_off_by_one_tile",
        "the backward pass starts past the end and never reaches the first tile",
        Change("tiles - 1 - tile", "tiles - tile"),
        ("two_pass",),
        config="REVERSE_SECOND_PASS=true",
    ),
    _bug(
        "more_programs_than_rows",
        "programs without a row are launched",
        Change("min(rows, NUM_PROGRAMS)", "NUM_PROGRAMS + rows"),
        _WHOLE,
        equivalent="a program whose first row is past the end does nothing",
    ),
)

MUTANTS = (*SUM, *VALUES, *PLACES)
