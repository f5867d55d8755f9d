"""Bugs of the cross-entropy, planted in its templates."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutant import Changes, Mutant, mutant
from tests.mutation.rewriting import Change

EVERY = ("whole_row", "online", "split_row")
EXP2 = "USE_EXP2=true"
INF = 'float("-inf")'
COMBINE = "cross_entropy_split_combine_kernel"
STEP = "_step"
MANY_ROWS = {"rows": 300}  # one is enough for what does not concern others


def cross_entropy(name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = EVERY, **more: Any) -> Mutant:
    """A mutant of the cross-entropy, of every template where none is named."""
    return mutant("cross_entropy", name, breaks, changes, on, **more)


RECURRENCE = (
    cross_entropy(
        "l_not_rescaled",
        "the running sum keeps the scale of an older maximum",
        Change("l * tl.exp(m - m_safe) + any_p", "l + any_p", function=STEP),
        ("online",),
    ),
    cross_entropy(
        "alpha_in_base_2",
        "the rescaling forgets log2(e), the weights do not",
        Change("l * tl.exp2((m - m_safe) * LOG2E) + any_p", "l * tl.exp2(m - m_safe) + any_p"),
        ("online",),
        config=EXP2,
    ),
    cross_entropy(
        "weights_in_base_2",
        "the weights forget log2(e)",
        also={
            "whole_row": Change("tl.where(any_c, 0.5, LOG2E)", "tl.where(any_c, 0.5, 1.0)"),
            "split_row": Change("tl.exp2((x - m_safe[:, None]) * LOG2E)", "tl.exp2(x - m_safe[:, None])"),
        },
        config=EXP2,
    ),
    cross_entropy(
        "folded_product_overflows",
        "log2(e) times the lowest number is -inf, and -inf - -inf NaN",
        Change("tl.where(any_c, 0.5, LOG2E)", "LOG2E"),
        ("whole_row",),
        config=EXP2,
        dtypes=("bf16", "fp32"),
    ),
    cross_entropy(
        "block_maximum_not_carried",
        "the maximum is the last tile's alone, so that alpha may exceed 1 and overflow",
        Change("tl.maximum(m, tl.max(x, axis=1))", "tl.max(x, axis=1)"),
        ("online",),
    ),
    cross_entropy(
        "no_guard_on_an_empty_tile",
        "-inf - -inf where a lane has seen nothing yet",
        Change(f"tl.where(m_new == {INF}, 0.0, m_new)", "m_new"),
        ("online",),
    ),
    cross_entropy(
        "maximum_starts_at_zero",
        "rows that lie below -104 underflow",
        Change(f"tl.full([LANES], {INF}, tl.float32)", "tl.zeros([LANES], tl.float32)"),
        ("split_row",),
    ),
    cross_entropy(
        "lanes_added_without_their_maxima",
        "the lanes' sums are added as if they had one maximum",
        also={
            "online": Change("tl.sum(l * tl.exp(m - m_row), axis=0)", "tl.sum(l, axis=0)"),
            "split_row": Change("tl.sum(l * tl.exp(m - m_safe), axis=0)", "tl.sum(l, axis=0)"),
        },
    ),
    cross_entropy(
        "splits_added_without_their_maxima",
        "the splits' sums are added as if they had one maximum",
        Change("l * tl.exp(m - m_row)", "l", function=COMBINE),
        ("split_row",),
    ),
    cross_entropy(
        "no_guard_on_an_empty_split",
        "-inf - -inf where a split has nothing but -inf, or no column at all",
        Change(f"tl.where(m_split == {INF}, 0.0, m_split)", "m_split"),
        ("split_row",),
    ),
    cross_entropy(
        "weights_in_bf16",
        "the weights are rounded before they are added",
        Change("tl.sum(p, axis=0)", "tl.sum(p.to(tl.bfloat16).to(tl.float32), axis=0)"),
        ("whole_row",),
    ),
)

LOOPS = (
    cross_entropy(
        "tail_of_zeros",
        "the columns that are not there count as logits of 0",
        Change(f"tl.load(any_p, mask=inside, other={INF})", "tl.load(any_p, mask=inside, other=0.0)"),
        ("whole_row", "online"),
    ),
    cross_entropy("tail_dropped", "the last, partial tile is left out", Change("rest < end", "rest < 0"), ("online",)),
    cross_entropy(
        "first_whole_tile_dropped",
        "the tiles begin one too late",
        Change("tl.range(start, any_w, any_b, **any_more)", "tl.range(start + BLOCK_COLS, any_w, any_b, **any_more)"),
        ("online",),
    ),
    cross_entropy(
        "split_one_column_short",
        "each split ends before its last column",
        Change("start + split_cols", "start + split_cols - 1"),
        ("split_row",),
    ),
    cross_entropy(
        "realigned_without_what_lies_before",
        "the row's tiles start where the row does, and their columns are counted as if they did not",
        Change("row * row_stride - before", "row * row_stride"),
        ("online",),
        shape=MANY_ROWS,
    ),
    cross_entropy(
        "realigned_into_the_row_before",
        "what lies before the row is read as if it belonged to it",
        Change("(lane >= before) & (lane < end)", "lane < end"),
        ("online",),
        shape=MANY_ROWS,
    ),
    cross_entropy(
        "rows_without_a_gap",
        "rows are taken to follow one another at once",
        Change("any_row * row_stride", "any_row * cols"),
        ("whole_row",),
    ),
)

VALUES = (
    cross_entropy(
        "lse_in_base_2",
        "the logarithm of the sum is in base 2",
        Change("tl.log(any_l)", "tl.log2(any_l)"),
        ("whole_row",),
    ),
    cross_entropy(
        "lse_of_ignored_rows_lost",
        "an ignored row's log-sum-exp is 0 as its loss is",
        Change("tl.store(lse_ptr + row, lse)", "tl.store(lse_ptr + row, tl.where(counts, lse, 0.0))"),
        ("online",),
        shape=MANY_ROWS,
    ),
    cross_entropy(
        "the_column_before_the_target",
        "the target's logit is read one column too early",
        Change("any_p + target", "any_p + tl.maximum(target - 1, 0)"),
        ("whole_row", "split_row"),
    ),
    cross_entropy(
        "ignored_counted", "ignored rows have a loss", Change("tl.where(counts, loss, 0.0)", "loss"), ("whole_row",)
    ),
    cross_entropy(
        "ignored_by_multiplication",
        "0 times what is not finite is no 0",
        Change("tl.where(counts, loss, 0.0)", "loss * counts.to(tl.float32)"),
        ("online",),
        shape=MANY_ROWS,
    ),
    cross_entropy(
        "target_not_smoothed",
        "the target keeps its whole label while some of it is spread",
        Change("(1.0 - label_smoothing) * at_target", "at_target"),
        ("split_row",),
    ),
    cross_entropy(
        "labels_spread_over_one_column_more",
        "the mean of the logits is over cols + 1",
        Change("any_s / cols", "any_s / (cols + 1)"),
        ("split_row",),
    ),
    cross_entropy(
        "masked_columns_in_the_mean",
        "what stands for columns that are not there is added to the sum of the logits",
        Change("tl.where(inside, x, 0.0)", "x"),
        ("split_row",),
    ),
    cross_entropy(
        "sum_of_the_logits_of_one_split",
        "the last split's sum of the logits stands for the row's",
        Change("tl.sum(tl.load(part + 2), axis=0)", "tl.load(part_ptr + (row * SPLITS + SPLITS - 1) * 3 + 2)"),
        ("split_row",),
    ),
    cross_entropy(
        "whole_tiles_not_in_the_mean",
        "the sum of the logits leaves the whole tiles out",
        Change("total += tl.sum(x, axis=1)", "total += 0.0 * tl.sum(x, axis=1)"),
        ("online",),
    ),
    cross_entropy(
        "z_loss_of_the_log_sum_exp",
        "the log-sum-exp is not squared",
        Change("z_loss * lse * lse", "z_loss * lse"),
        ("split_row",),
    ),
)

MUTANTS = (*RECURRENCE, *LOOPS, *VALUES)
