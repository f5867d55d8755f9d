"""Bugs of the loops over tiles of keys and of queries."""

from __future__ import annotations

from tests.mutation.attention_templates import KEYS, attention
from tests.mutation.rewriting import Change

LOOPS = (
    attention(
        "tail_dropped", "the ragged last tile is left out", Change("end = kv_len", "end = kv_len // BLOCK_N * BLOCK_N")
    ),
    attention(
        "lone_last_key_lost",
        "a last tile of one key is left out",
        Change(KEYS, "tl.range(start, end - 1, BLOCK_N, **any_more)"),
    ),
    attention(
        "last_tile_lost_where_full",
        "the last tile of keys is taken where it is ragged only",
        Change(
            KEYS,
            "tl.range(start, (end - 1) // BLOCK_N * BLOCK_N + tl.minimum(end % BLOCK_N, 1), BLOCK_N, **any_more)",
        ),
    ),
    attention(
        "first_tile_skipped",
        "the first tile of each loop is left out",
        Change(KEYS, "tl.range(start + BLOCK_N, end, BLOCK_N, **any_more)"),
    ),
    attention(
        "tiles_from_the_sixth_lost",
        "the loop ends after five tiles",
        Change(KEYS, "tl.range(start, tl.minimum(end, 5 * BLOCK_N), BLOCK_N, **any_more)"),
    ),
    attention(
        "queries_from_the_fourth_tile_lost",
        "queries from the fourth tile on are not written",
        Change("query < q_len", "query < tl.minimum(q_len, 3 * BLOCK_M)"),
    ),
    attention(
        "values_shifted_by_one_key",
        "each weight meets the next key's value",
        Change("v_ptr + key.to(tl.int64)[:, None] * any_s", "v_ptr + (key + 1).to(tl.int64)[:, None] * any_s"),
        ("pointer",),
        also={
            "descriptor": Change(
                "v_desc.load([batch, kv_head, first_key, 0])", "v_desc.load([batch, kv_head, first_key + 1, 0])"
            )
        },
    ),
    attention(
        "keys_swapped_in_pairs",
        "neighbouring keys change places, their values do not",
        Change(
            "k_ptr + key.to(tl.int64)[:, None] * any_s",
            "k_ptr + (key - key % 2 + (key + 1) % 2).to(tl.int64)[:, None] * any_s",
        ),
        ("pointer",),
    ),
    attention(
        "values_of_the_keys",
        "the keys are taken for the values",
        Change("v_ptr + batch * any_s + any_h", "k_ptr + batch * any_s + any_h"),
        ("pointer",),
        also={"descriptor": Change("rows(v, BLOCK_N)", "rows(k, BLOCK_N)")},
    ),
    attention(
        "ahead_not_advanced",
        "q.k of this tile is taken for the next tile's",
        Change("first_key + BLOCK_N", "first_key"),
        ("descriptor",),
        config="OVERLAP_QK=true",
    ),
    attention(
        "ahead_starts_at_the_second_tile",
        "the first q.k that is issued ahead is the second tile's",
        Change(
            "_logits(q, k_desc, batch, kv_head, 0, **any_more)",
            "_logits(q, k_desc, batch, kv_head, BLOCK_N, **any_more)",
        ),
        ("descriptor",),
        config="OVERLAP_QK=true",
    ),
    attention(
        "ahead_lost_between_the_loops",
        "the tiles with a mask start from the first tile's q.k",
        Change("acc, l, m, ahead = _attend(**any_more)", "acc, l, m, lost = _attend(**any_more)", which=1),
        ("descriptor",),
        config="OVERLAP_QK=true",
    ),
    attention(
        "tiles_walked_with_too_long_a_step",
        "programs that walk over the query tiles leave some out",
        Change("tl.num_programs(0)", "(tl.num_programs(0) + 1)"),
        ("descriptor",),
        config="PERSISTENT=true",
    ),
    attention(
        "tiles_of_one_batch_walked",
        "programs that walk over the query tiles end with the first batch",
        Change("tiles_m * batch_heads", "tiles_m * heads"),
        ("descriptor",),
        config="PERSISTENT=true",
    ),
    attention(
        "descending_from_past_the_end",
        "the last query tile first, counted from one too many",
        Change("tiles_m - 1 - work % tiles_m", "tiles_m - work % tiles_m"),
        config="TILE_ORDER=descending",
        causal=True,
    ),
    attention(
        "longest_first_in_one_batch",
        "all query tiles of the first batch, over and over",
        Change("work % batch_heads", "work % heads"),
        config="TILE_ORDER=longest_first",
        causal=True,
    ),
)
