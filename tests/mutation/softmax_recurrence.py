"""Bugs of the running maximum and sum."""

from __future__ import annotations

from tests.mutation.rewriting import Change
from tests.mutation.softmax_templates import EXP2, FIRST_L, FIRST_M, INF, TILED, WRITE, softmax

_DELETE_M, _DELETE_L = Change(f"m = {FIRST_M}", ""), Change(f"l = {FIRST_L}", "")

RECURRENCE = (
    softmax(
        "l_not_rescaled",
        "the running sum keeps the scale of an older maximum",
        Change("l * tl.exp(m - m_safe) + any_p", "l + any_p"),
        TILED,
        classic=True,
    ),
    softmax(
        "alpha_in_base_2",
        "the rescaling forgets log2(e), the weights do not",
        Change("l * tl.exp2((m - m_safe) * LOG2E) + any_p", "l * tl.exp2(m - m_safe) + any_p"),
        TILED,
        config=EXP2,
        classic=True,
    ),
    softmax(
        "weights_in_base_2",
        "the weights forget log2(e), the rescaling does not",
        Change("tl.exp2((logits - m_safe) * LOG2E)", "tl.exp2(logits - m_safe)"),
        TILED,
        config=EXP2,
        classic=True,
    ),
    softmax(
        "block_maximum_not_carried",
        "the maximum is the last tile's alone, so that alpha may exceed 1 and overflow",
        Change("m_new = tl.maximum(m, logits)", "m_new = logits"),
        TILED,
        classic=True,
    ),
    softmax(
        "no_guard_on_an_empty_tile",
        "-inf - -inf where a lane has seen nothing yet",
        Change(f"tl.where(m_new == {INF}, 0.0, m_new)", "m_new"),
        TILED,
        classic=True,
    ),
    softmax(
        "state_carried_into_the_next_row",
        "maximum and sum are not reset between the rows of one program",
        (_DELETE_M, _DELETE_L, Change("tiles = any_t", f"tiles = any_t\nm = {FIRST_M}\nl = {FIRST_L}")),
        ("online",),
        classic=True,
    ),
    softmax(
        "maximum_carried_into_the_next_row",
        "the maximum alone is not reset: all weights of a much lower row underflow",
        (_DELETE_M, Change("tiles = any_t", f"tiles = any_t\nm = {FIRST_M}")),
        ("online",),
        classic=True,
    ),
    softmax(
        "sum_carried_into_the_next_row",
        "the sum alone is not reset: 0 times what is left of it is no 0 after a row that is not finite",
        (_DELETE_L, Change("tiles = any_t", f"tiles = any_t\nl = {FIRST_L}")),
        ("online",),
    ),
    softmax(
        "sum_starts_at_one",
        "the sum starts at 1",
        Change(FIRST_L, "tl.full([BLOCK_COLS], 1.0, tl.float32)"),
        TILED,
        equivalent="the maximum starts at -inf, so that the first rescaling multiplies the 1 by 0",
    ),
    softmax(
        "alpha_upside_down",
        "rescaled by exp(new - old)",
        Change("l * tl.exp(m - m_safe) + any_p", "l * tl.exp(tl.minimum(m_safe - m, 80.0)) + any_p"),
        TILED,
    ),
    softmax(
        "rescaled_twice",
        "the square of the rescaling",
        Change("l * tl.exp(m - m_safe) + any_p", "l * tl.exp(2.0 * (m - m_safe)) + any_p"),
        TILED,
    ),
    softmax(
        "weights_by_the_old_maximum",
        "the weights are taken before the maximum is brought up to date",
        Change("tl.exp(logits - m_safe)", "tl.exp(logits - m)"),
        TILED,
    ),
    softmax(
        "guard_kept_as_the_maximum",
        "the 0 that guards an empty lane stays its maximum",
        Change("m = m_new", "m = m_safe"),
        TILED,
    ),
    softmax(
        "maximum_starts_at_zero",
        "rows that lie below -104 underflow",
        Change(FIRST_M, FIRST_L),
        TILED,
    ),
    softmax(
        "maximum_starts_at_zero_and_sum_at_one",
        "a phantom element of 0 in every lane",
        (
            Change(FIRST_L, "tl.full([BLOCK_COLS], 1.0, tl.float32)"),
            Change(FIRST_M, FIRST_L),
        ),
        TILED,
    ),
    softmax(
        "maximum_starts_at_a_sentinel",
        "rows that lie below the finite stand-in for -inf underflow",
        Change(FIRST_M, "tl.full([BLOCK_COLS], -5.0e4, tl.float32)"),
        TILED,
    ),
    softmax(
        "lanes_added_without_their_maxima",
        "the lanes' sums are added as if they had one maximum",
        also={
            "online": Change("tl.sum(l * tl.exp(m - m_row), axis=0)", "tl.sum(l, axis=0)"),
            "split_row": Change("tl.sum(l * tl.exp(m - m_safe), axis=0)", "tl.sum(l, axis=0)"),
        },
    ),
    softmax(
        "lanes_added_in_base_2",
        "the lanes' sums are brought to one maximum without log2(e)",
        also={
            "online": Change("tl.exp2((m - m_row) * LOG2E)", "tl.exp2(m - m_row)"),
            "split_row": Change(
                "tl.sum(l * tl.exp2((m - m_safe) * LOG2E), axis=0)", "tl.sum(l * tl.exp2(m - m_safe), axis=0)"
            ),
        },
        config=EXP2,
    ),
    softmax(
        "splits_added_without_their_maxima",
        "the splits' sums are added as if they had one maximum",
        Change("l * tl.exp(m - m_row)", "l", function=WRITE),
        ("split_row",),
    ),
    softmax(
        "splits_added_in_base_2",
        "the splits' sums are brought to one maximum without log2(e)",
        Change("tl.exp2((m - m_row) * LOG2E)", "tl.exp2(m - m_row)", function=WRITE),
        ("split_row",),
        config=EXP2,
    ),
    softmax(
        "splits_averaged",
        "the row's sum is the mean of the splits' sums",
        Change("tl.sum(any_l * any_e, axis=0)", "tl.sum(any_l * any_e, axis=0) / SPLITS", function=WRITE),
        ("split_row",),
    ),
    softmax(
        "no_guard_on_an_empty_split",
        "-inf - -inf where a split has nothing but -inf, or no column at all",
        Change(f"tl.where(m_split == {INF}, 0.0, m_split)", "m_split"),
        ("split_row",),
    ),
)
