"""Bugs of the gradient of the cross-entropy, planted in its templates."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutant import Changes, Mutant, mutant
from tests.mutation.rewriting import Change

EVERY = ("row_tiles", "row_loop")
EXP2 = "USE_EXP2=true"
MANY_ROWS = {"rows": 300}  # one is enough for what does not concern others
HOT = Change("tl.where(any_c == any_h, any_v, 0.0)", "0.0 * any_v")


def gradient(name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = EVERY, **more: Any) -> Mutant:
    """A mutant of the gradient of the cross-entropy, of both templates where none is named."""
    return mutant("cross_entropy_bwd", name, breaks, changes, on, **more)


MUTANTS = (
    gradient(
        "weights_in_base_2",
        "the weights forget log2(e)",
        Change("tl.where(any_c, 0.5, LOG2E)", "tl.where(any_c, 0.5, 1.0)"),
        config=EXP2,
    ),
    gradient(
        "folded_product_overflows",
        "log2(e) times the lowest number is -inf, and -inf - -inf NaN",
        Change("tl.where(any_c, 0.5, LOG2E)", "LOG2E"),
        ("row_tiles",),
        config=EXP2,
        dtypes=("bf16", "fp32"),
    ),
    gradient(
        "weights_in_bf16",
        "the weights are rounded before the target's 1 is taken away",
        Change("tl.exp(any_x)", "tl.exp(any_x).to(tl.bfloat16).to(tl.float32)"),
        ("row_tiles",),
        dtypes=("bf16", "fp16", "fp32"),
    ),
    gradient("target_not_taken_away", "the weights alone", HOT, ("row_loop",)),
    gradient(
        "the_column_after_the_target",
        "the 1 is taken away one column too late",
        Change("target.to(tl.int32)", "target.to(tl.int32) + 1"),
        ("row_tiles",),
    ),
    gradient(
        "column_of_the_tile_for_that_of_the_row",
        "every tile has a target's column",
        Change("hot_place - tile", "hot_place % BLOCK_COLS"),
        ("row_loop",),
    ),
    gradient(
        "target_not_smoothed",
        "the target keeps its whole label while some of it is spread",
        Change("1.0 - label_smoothing", "1.0"),
        ("row_loop",),
    ),
    gradient(
        "labels_not_spread",
        "nothing is taken from the other columns",
        Change("slope * y - base - any_h", "slope * y - any_h"),
        ("row_loop",),
    ),
    gradient(
        "labels_spread_over_a_block",
        "the label is shared by as many columns as a tile has",
        Change("label_smoothing / cols", "label_smoothing / BLOCK_COLS"),
        ("row_tiles",),
    ),
    gradient(
        "z_loss_without_its_2",
        "the derivative of a square lacks its factor",
        Change("2.0 * z_loss * lse", "z_loss * lse"),
        ("row_loop",),
    ),
    gradient(
        "z_loss_upside_down",
        "the z-loss is taken away",
        Change("1.0 + any_z", "1.0 - any_z"),
        ("row_tiles",),
    ),
    gradient(
        "gradient_of_the_loss_ignored",
        "every row's loss counts as much",
        Change("tl.load(grad_ptr + row)", "1.0"),
        ("row_loop",),
    ),
    gradient(
        "ignored_counted",
        "ignored rows have a gradient",
        Change("tl.where(counts, d, 0.0)", "d"),
        ("row_tiles",),
        shape=MANY_ROWS,
    ),
    gradient(
        "ignored_by_multiplication",
        "0 times what is not finite is no 0",
        Change("tl.where(counts, d, 0.0)", "(d * counts.to(tl.float32))"),
        ("row_loop",),
        shape=MANY_ROWS,
    ),
    gradient(
        "log_sum_exp_of_the_row_before",
        "the weights are those of another row",
        Change("lse_ptr + row", "lse_ptr + tl.maximum(row - 1, 0)"),
        ("row_tiles",),
        shape=MANY_ROWS,
    ),
    gradient(
        "log_sum_exp_of_the_first_row",
        "it is read once for all rows of a program",
        Change("lse_ptr + row", "lse_ptr + tl.program_id(0)"),
        ("row_loop",),
        shape=MANY_ROWS,
    ),
    gradient(
        "store_not_masked",
        "what is beyond the row's end is written",
        Change("tl.store(any_p, any_d, mask=inside, **any_more)", "tl.store(any_p, any_d, **any_more)"),
        ("row_tiles",),
    ),
    gradient(
        "tail_dropped",
        "the last, partial tile is not written",
        Change("rest < end", "rest < 0"),
        ("row_loop",),
    ),
    gradient(
        "first_whole_tile_dropped",
        "the tiles begin one too late",
        Change("tl.range(start, any_w, any_b, **any_more)", "tl.range(start + BLOCK_COLS, any_w, any_b, **any_more)"),
        ("row_loop",),
    ),
    gradient(
        "realigned_without_what_lies_before",
        "the row's tiles start where the row does, and their columns are counted as if they did not",
        Change("row * row_stride - before", "row * row_stride"),
        ("row_loop",),
        shape=MANY_ROWS,
    ),
    gradient(
        "target_not_realigned",
        "the target's place is that of a row whose tiles start where it does",
        Change("hot_place += before", "hot_place += 0"),
        ("row_loop",),
        shape=MANY_ROWS,
    ),
    gradient(
        "rows_without_a_gap",
        "rows are written as if they followed one another at once",
        Change("row * out_row_stride", "row * cols"),
        ("row_tiles",),
        shape=MANY_ROWS,
    ),
)
