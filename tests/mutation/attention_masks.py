"""Bugs of masks: which keys a query sees."""

from __future__ import annotations

from tests.mutation.attention_templates import DEAD, INF, MASK, UNMASKED, attention
from tests.mutation.rewriting import Change

MASKS = (
    attention(
        "maximum_before_the_mask",
        "invisible keys have a say in the maximum",
        (
            Change(MASK, "x * qk_scale"),
            Change("x - m_safe[:, None]", f"tl.where(visible, x - m_safe[:, None], {INF})", which=0),
        ),
    ),
    attention(
        "phantom_keys",
        "keys past the end count with a logit of 0",
        Change("visible = key[None, :] < kv_len", "visible = key[None, :] >= 0"),
    ),
    attention(
        "causal_mask_alone",
        "a causal mask without the end of the keys",
        Change("(key[None, :] <= last_key[:, None]) & (key[None, :] < kv_len)", "key[None, :] <= last_key[:, None]"),
        causal=True,
        equivalent="the last key of a query that is stored is kv_len - 1 at most",
    ),
    attention(
        "aligned_top_left",
        "the diagonal starts at the first key and the first query",
        Change("diagonal = kv_len - q_len", "diagonal = 0"),
        causal=True,
    ),
    attention(
        "lengths_swapped_in_the_diagonal",
        "q_len and kv_len change places",
        Change("diagonal = kv_len - q_len", "diagonal = q_len - kv_len"),
        causal=True,
    ),
    attention(
        "diagonal_lost",
        "a query does not see the key at its own place",
        Change("key[None, :] <= last_key[:, None]", "key[None, :] < last_key[:, None]"),
        causal=True,
    ),
    attention(
        "one_key_too_far",
        "a query sees the key after its own",
        Change("key[None, :] <= last_key[:, None]", "key[None, :] <= last_key[:, None] + 1"),
        causal=True,
    ),
    attention(
        "diagonal_one_too_low",
        "masks and loops agree on a diagonal that is off by one",
        Change("diagonal = kv_len - q_len", "diagonal = kv_len - q_len - 1"),
        causal=True,
    ),
    attention(
        "unmasked_past_the_diagonal",
        "the tiles without a mask are rounded up, into the diagonal",
        Change(UNMASKED, "tl.cdiv(tl.maximum(unmasked, 0), BLOCK_N) * BLOCK_N"),
        causal=True,
    ),
    attention(
        "unmasked_up_to_the_query_tile",
        "the tiles without a mask end where the query tile starts, right only where a tile of keys ends there too",
        (
            Change("tile_m * BLOCK_M + diagonal + 1", "tile_m * BLOCK_M + diagonal"),
            Change(UNMASKED, "tl.cdiv(tl.maximum(unmasked, 0), BLOCK_N) * BLOCK_N"),
        ),
        causal=True,
    ),
    attention(
        "unmasked_one_key_too_far",
        "the tiles without a mask may hold one key that the tile's first query does not see",
        Change("tile_m * BLOCK_M + diagonal + 1", "tile_m * BLOCK_M + diagonal + 2"),
        causal=True,
    ),
    attention(
        "unmasked_one_key_too_short",
        "the tiles without a mask may be one fewer than they could be",
        Change("tile_m * BLOCK_M + diagonal + 1", "tile_m * BLOCK_M + diagonal"),
        causal=True,
        equivalent="the mask of a tile that every query sees changes nothing",
    ),
    attention(
        "unmasked_without_the_diagonal",
        "the tiles without a mask are counted as if there were as many queries as keys",
        Change("tile_m * BLOCK_M + diagonal + 1", "tile_m * BLOCK_M + 1"),
        causal=True,
    ),
    attention(
        "unmasked_not_cut_at_the_keys",
        "the tiles without a mask are not held to the number of keys",
        Change("tl.minimum(tile_m * BLOCK_M + diagonal + 1, kv_len)", "tile_m * BLOCK_M + diagonal + 1"),
        causal=True,
        equivalent="a tile's first query is there, so that it sees kv_len keys at most",
    ),
    attention(
        "causal_end_a_tile_short",
        "the loop over the keys ends where the query tile starts",
        Change("(tile_m + 1) * BLOCK_M", "tile_m * BLOCK_M"),
        causal=True,
    ),
    attention(
        "causal_end_rounded_down",
        "the last, ragged tile of keys of a query tile is left out",
        Change("end = tl.minimum(any_a, any_b)", "end = tl.minimum(any_a, any_b) // BLOCK_N * BLOCK_N"),
        causal=True,
    ),
    attention(
        "causal_end_without_the_diagonal",
        "the loop over the keys ends as if there were as many queries as keys",
        Change("tl.minimum((tile_m + 1) * BLOCK_M, q_len) + diagonal", "tl.minimum((tile_m + 1) * BLOCK_M, q_len)"),
        causal=True,
    ),
    attention(
        "causal_end_not_cut_at_the_queries",
        "the last query tile goes on as if it were full",
        Change("tl.minimum((tile_m + 1) * BLOCK_M, q_len)", "(tile_m + 1) * BLOCK_M"),
        causal=True,
        equivalent="the end is held to kv_len, which is where the last query's keys end",
    ),
    attention(
        "dead_queries_divide_by_zero",
        "a query that sees no key gives 0 / 0",
        Change(DEAD, "l"),
        causal=True,
        classic=True,
    ),
    attention(
        "dead_queries_divide_by_zero_where_none_is",
        "the same without a causal mask",
        Change(DEAD, "l"),
        equivalent="without a causal mask every query sees a key",
    ),
)
