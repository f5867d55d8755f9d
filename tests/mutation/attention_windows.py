"""Bugs of sliding windows: which keys a query sees, and which tiles its program takes."""

from __future__ import annotations

from tests.mutation.attention_templates import attention
from tests.mutation.rewriting import Change

_LEFT = {"window_left": 200}
_BOTH = {"window_left": 200, "window_right": 40}
_FIRST_SEEN = "key[None, :] >= first_seen[:, None]"

WINDOWS = (
    attention(
        "window_one_key_short",
        "the first key of the window is not seen",
        Change(_FIRST_SEEN, "key[None, :] > first_seen[:, None]"),
        causal=True,
        options=_LEFT,
    ),
    attention(
        "window_one_key_long",
        "the key before the window is seen",
        Change(_FIRST_SEEN, "key[None, :] >= first_seen[:, None] - 1"),
        options=_BOTH,
    ),
    attention(
        "window_without_a_left_end",
        "the window's own tiles alone, and all their keys",
        Change(_FIRST_SEEN, "key[None, :] >= 0"),
        causal=True,
        options=_LEFT,
    ),
    attention(
        "window_from_the_top_left",
        "the window is placed as if there were as many queries as keys",
        Change("first_seen = last_key - window_left", "first_seen = query - window_left"),
        causal=True,
        options=_LEFT,
    ),
    attention(
        "window_ends_swapped",
        "as many keys before a query as there should be after it",
        (
            Change("first_seen = last_key - window_left", "first_seen = last_key - window_right"),
            Change("last_key = last_key + window_right", "last_key = last_key + window_left"),
        ),
        options=_BOTH,
    ),
    attention(
        "window_right_one_key_short",
        "masks and loops agree on a right end that is off by one",
        (
            Change("last_key = last_key + window_right", "last_key = last_key + window_right - 1"),
            Change("past_last + window_right", "past_last + window_right - 1"),
        ),
        options=_BOTH,
    ),
    attention(
        "window_tiles_from_the_last_query",
        "the loop starts at the tile where the last query's window does",
        Change(
            "begin = tl.maximum(tile_m * BLOCK_M + diagonal - window_left, 0) // BLOCK_N * BLOCK_N",
            "begin = tl.maximum(past_last - 1 - window_left, 0) // BLOCK_N * BLOCK_N",
        ),
        causal=True,
        options=_LEFT,
    ),
    attention(
        "window_tiles_begin_rounded_up",
        "the first, ragged tile of the window is left out",
        Change(
            "begin = tl.maximum(any_x, 0) // BLOCK_N * BLOCK_N",
            "begin = tl.cdiv(tl.maximum(any_x, 0), BLOCK_N) * BLOCK_N",
        ),
        causal=True,
        options=_LEFT,
    ),
    attention(
        "window_unmasked_from_the_first_query",
        "tiles take no mask from where the first query's window starts, though the others' start later",
        Change("past_last - 1 - window_left", "tile_m * BLOCK_M + diagonal - window_left"),
        options=_BOTH,
    ),
    attention(
        "window_unmasked_one_key_early",
        "the tiles without a mask may hold one key before the last query's window",
        Change("past_last - 1 - window_left", "past_last - 2 - window_left"),
        options=_BOTH,
    ),
    attention(
        "window_masked_tiles_not_cut_at_the_end",
        "the tiles up to the first without a mask are taken even beyond the last key that is seen",
        Change("tl.minimum(whole_from, end)", "whole_from"),
        options=_BOTH,
        equivalent="what lies beyond is masked",
    ),
    attention(
        "window_tiles_taken_twice",
        "the tiles after those without a mask start over where the window does",
        Change("unmasked = tl.maximum(unmasked, whole_from)", "unmasked = tl.minimum(unmasked, whole_from)"),
        options=_BOTH,
    ),
    attention(
        "window_of_the_queries",
        "a window is cut at the number of queries",
        Change("tl.minimum(past_last + window_right, kv_len)", "tl.minimum(past_last + window_right, q_len)"),
        options=_BOTH,
    ),
)
