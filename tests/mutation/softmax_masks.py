"""Bugs of what is read and written at the end of a row."""

from __future__ import annotations

from tests.mutation.rewriting import Change
from tests.mutation.softmax_templates import BLOCK, LOAD, STORE, TAIL, TILED, softmax

MASKS = (
    softmax(
        "tail_masked_with_a_sentinel",
        "columns past the end count as -1e4, which outweighs rows below it",
        Change(LOAD, "tl.load(any_p, mask=any_m, other=-1.0e4, **any_more)"),
        classic=True,
    ),
    softmax(
        "tail_masked_with_the_lowest_half",
        "columns past the end count as the lowest number of fp16, which is also what masks in fp16 are made of",
        Change(LOAD, "tl.load(any_p, mask=any_m, other=-65504.0, **any_more)"),
        classic=True,
    ),
    softmax(
        "tail_masked_with_the_lowest_bf16",
        "columns past the end count as the lowest number of bf16, which is also what masks in bf16 are made of",
        Change(LOAD, "tl.load(any_p, mask=any_m, other=-3.3895313892515355e38, **any_more)"),
        dtypes=("bf16", "fp32"),
    ),
    softmax(
        "tail_loaded_as_zero",
        "columns past the end count as 0",
        Change(LOAD, "tl.load(any_p, mask=any_m, other=0.0, **any_more)"),
    ),
    softmax(
        "load_not_masked",
        "reads past the end of a row",
        Change(LOAD, "tl.load(any_p, **any_more)"),
    ),
    softmax(
        "load_one_column_too_many",
        "reads the column past the end",
        Change("tl.load(any_p, mask=inside, **any_more)", "tl.load(any_p, mask=col < cols + 1, **any_more)"),
        BLOCK,
        also=dict.fromkeys(
            TILED,
            Change(TAIL, "tl.load(any_p, mask=col < cols + 1, **any_more)"),
        ),
    ),
    softmax(
        "load_one_column_too_few",
        "the last column counts as -inf",
        Change("tl.load(any_p, mask=inside, **any_more)", "tl.load(any_p, mask=col < cols - 1, **any_more)"),
        ("whole_row", "persistent"),
        also=dict.fromkeys(
            TILED,
            Change(TAIL, "tl.load(any_p, mask=col < cols - 1, **any_more)"),
        ),
    ),
    softmax(
        "sum_one_column_too_short",
        "the last column is in the output, but not in the sum",
        Change(TAIL, "tl.load(any_p, mask=col < cols - 1, **any_more)", which=0),
        TILED,
    ),
    softmax(
        "store_not_masked",
        "writes past the end of a row",
        Change(STORE, "tl.store(any_p, any_y, **any_more)"),
    ),
    softmax(
        "store_one_column_too_many",
        "writes the column past the end",
        Change(STORE, "tl.store(any_p, any_y, mask=col < cols + 1, **any_more)"),
        ("whole_row", "persistent", *TILED),
    ),
    softmax(
        "store_one_column_too_few",
        "the last column is never written",
        Change(STORE, "tl.store(any_p, any_y, mask=col < cols - 1, **any_more)"),
        ("whole_row", "persistent", *TILED),
    ),
    softmax(
        "rows_not_masked",
        "the last program's block reads and writes rows past the end",
        Change("(row < rows) & (col < cols)", "col < cols"),
        ("several_rows",),
    ),
    softmax(
        "rows_masked_one_short",
        "the last row is never written",
        Change("(row < rows) & (col < cols)", "(row < rows - 1) & (col < cols)"),
        ("several_rows",),
    ),
    softmax(
        "split_end_not_cut",
        "the last split's loop goes on past the end of the row",
        Change("tl.minimum((split + 1) * split_cols, cols)", "(split + 1) * split_cols"),
        ("split_row",),
        equivalent="loads and stores are masked by the columns, so that tiles past the end are of -inf",
    ),
)
