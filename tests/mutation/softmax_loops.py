"""Bugs of the loops over tiles and rows, and of the launch."""

from __future__ import annotations

from tests.mutation.rewriting import Change
from tests.mutation.softmax_templates import PARTIAL, SHAPE, WRITE, softmax

LOOPS = (
    softmax(
        "trip_count_rounded_down",
        "the ragged last tile is left out",
        also={
            "online": Change("tl.cdiv(cols, BLOCK_COLS)", "cols // BLOCK_COLS"),
            "split_row": Change("triton.cdiv(any_c, BLOCK_COLS)", "any_c // BLOCK_COLS"),
        },
    ),
    softmax(
        "split_length_rounded_down",
        "the splits together are up to SPLITS - 1 columns too short, where whole tiles do not hide it",
        Change("triton.cdiv(cols, SPLITS)", "cols // SPLITS"),
        ("split_row",),
        shape={"cols": 8193, "row_stride": 8193},
    ),
    softmax(
        "first_tile_not_in_the_sum",
        "the first pass starts at the second tile",
        also={
            "online": Change("tl.range(0, tiles, **any_more)", "tl.range(1, tiles, **any_more)", which=0),
            "split_row": Change(
                "tl.range(split * split_cols, **any_more)",
                "tl.range(split * split_cols + BLOCK_COLS, **any_more)",
                function=PARTIAL,
            ),
        },
    ),
    softmax(
        "last_tile_not_in_the_sum_where_it_is_full",
        "the first pass takes the last tile where it is ragged only",
        also={
            "online": Change(
                "tl.range(0, tiles, **any_more)",
                "tl.range(0, (cols - 1) // BLOCK_COLS + tl.minimum(cols % BLOCK_COLS, 1), **any_more)",
                which=0,
            )
        },
        shape={"cols": 3072, "row_stride": 3072},
    ),
    softmax(
        "a_lone_last_column_not_in_the_sum",
        "the first pass leaves out a last tile of one column",
        also={
            "online": Change(
                "tl.range(0, tiles, **any_more)", "tl.range(0, tl.cdiv(cols - 1, BLOCK_COLS), **any_more)", which=0
            ),
            "split_row": Change(
                "tl.range(any_s, end, **any_more)", "tl.range(any_s, end - 1, **any_more)", function=PARTIAL
            ),
        },
    ),
    softmax(
        "tiles_from_the_sixth_not_in_the_sum",
        "the first pass ends after five tiles",
        also={
            "online": Change(
                "tl.range(0, tiles, **any_more)", "tl.range(0, tl.minimum(tiles, 5), **any_more)", which=0
            ),
            "split_row": Change(
                "tl.range(any_s, end, **any_more)",
                "tl.range(any_s, tl.minimum(end, any_s + 5 * BLOCK_COLS), **any_more)",
                function=PARTIAL,
            ),
        },
    ),
    softmax(
        "a_tile_read_twice",
        "the first pass reads every even tile twice and no odd one",
        Change("col = tile * BLOCK_COLS + lanes", "col = (tile - tile % 2) * BLOCK_COLS + lanes", which=0),
        ("online",),
    ),
    softmax(
        "second_pass_off_by_one_tile",
        "the backward pass starts past the end and never reaches the first tile",
        Change("tiles - 1 - tile", "tiles - tile"),
        ("online",),
        config="REVERSE_SECOND_PASS=true",
    ),
    softmax(
        "second_pass_writes_the_mirrored_tile",
        "tiles are read backwards and written forwards",
        Change(
            "tl.store(out_row + col, any_y, mask=any_m, **any_more)",
            "tl.store(out_row + (tile * BLOCK_COLS + lanes), any_y, mask=tile * BLOCK_COLS + lanes < cols, **any_more)",
        ),
        ("online",),
        config="REVERSE_SECOND_PASS=true",
    ),
    softmax(
        "rows_walked_with_too_long_a_step",
        "programs that walk over the rows leave some out",
        Change("tl.num_programs(0)", "(tl.num_programs(0) + 1)"),
        ("persistent", "online"),
    ),
    softmax(
        "last_row_left_out",
        "programs that walk over the rows stop one early",
        Change("tl.range(tl.program_id(0), rows, **any_more)", "tl.range(tl.program_id(0), rows - 1, **any_more)"),
        ("persistent", "online"),
    ),
)

LAUNCHES = (
    softmax(
        "one_program_too_few",
        "the last program is not launched",
        also={
            "whole_row": Change("softmax_whole_row_kernel[(rows,)]", "softmax_whole_row_kernel[(rows - 1,)]"),
            "several_rows": Change("triton.cdiv(rows, ROWS_PER_PROGRAM)", "rows // ROWS_PER_PROGRAM"),
            "split_row": Change(
                "softmax_split_write_kernel[(rows * SPLITS,)]", "softmax_split_write_kernel[(rows * SPLITS - 1,)]"
            ),
        },
    ),
    softmax(
        "programs_for_the_first_split_only",
        "one program a row where there should be one a split",
        Change("softmax_split_write_kernel[(rows * SPLITS,)]", "softmax_split_write_kernel[(rows,)]"),
        ("split_row",),
    ),
    softmax(
        "more_programs_than_rows",
        "programs without a row are launched",
        Change("min(rows, NUM_PROGRAMS)", "NUM_PROGRAMS + rows"),
        ("persistent", "online"),
        equivalent="a program whose first row is past the end does nothing",
    ),
    softmax(
        "input_stride_taken_for_columns",
        "rows of the input are read as if they had no gaps",
        Change("x.stride(0)", "cols"),
    ),
    softmax(
        "output_stride_taken_for_columns",
        "rows of the output are written as if they had no gaps",
        Change("out.stride(0)", "cols"),
    ),
    softmax(
        "output_stride_of_the_input",
        "the output is written with the input's stride",
        Change("out.stride(0)", "x.stride(0)"),
    ),
    softmax(
        "row_of_the_neighbour",
        "the next row is read",
        Change("any_r * x_row_stride", "(any_r + 1) * x_row_stride"),
    ),
    softmax(
        "rows_swapped",
        "rows are written to their neighbours' places",
        Change("any_r * out_row_stride", "(any_r - any_r % 2 + (any_r + 1) % 2) * out_row_stride"),
        ("whole_row", "several_rows", "persistent", "online"),
    ),
    softmax(
        "parts_of_the_first_row",
        "every row is divided by the first row's sum",
        Change("row.to(tl.int64) * SPLITS + tl.arange(0, SPLITS)", "tl.arange(0, SPLITS)", function=WRITE),
        ("split_row",),
    ),
    softmax(
        "parts_swapped",
        "a split's sum is read as its maximum, and its maximum as its sum",
        (Change("m = tl.load(part)", "m = tl.load(part + 1)"), Change("l = tl.load(part + 1)", "l = tl.load(part)")),
        ("split_row",),
    ),
    softmax(
        "input_changed",
        "launch() subtracts the maximum in place",
        Change(SHAPE, f"{SHAPE}\nx.sub_(x.amax(1, keepdim=True))"),
    ),
    softmax(
        "first_input_kept",
        "launch() computes the first input of each shape that it was given again and again",
        Change(SHAPE, f"{SHAPE}\nx = launch.__dict__.setdefault((x.shape, x.stride()), x.clone())"),
    ),
)
