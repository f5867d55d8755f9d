"""Bugs of attention over packed sequences: what it shares with attention, ends, places, and how tiles are found.

``pointer`` is checked without a causal mask, ``searched`` and ``descriptor`` with one (``setups``).
"""

from __future__ import annotations

from typing import Any

from tests.mutation.mutant import Changes, Mutant, mutant
from tests.mutation.rewriting import Change

BOTH, FULL, CAUSAL, TMA = ("pointer", "searched"), ("pointer",), ("searched",), ("descriptor",)
INF = 'float("-inf")'
AS_GIVEN = "LONGEST_FIRST=false"
PLACE, RANK = "_place", "attention_varlen_rank_kernel"
VISIBLE = "(key[None, :] <= last_key[:, None]) & (key[None, :] < kv_len)"
START_OF_M = f"tl.full([BLOCK_M], {INF}, tl.float32)"


def packed(name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = BOTH, **more: Any) -> Mutant:
    """A mutant of attention over packed sequences, of both templates where none is named."""
    return mutant("attention_varlen", name, breaks, changes, on, **more)


RECURRENCE = (
    packed(
        "acc_not_rescaled", "the accumulator keeps the scale of an older maximum", Change("acc * alpha[:, None]", "acc")
    ),
    packed(
        "block_maximum_not_carried",
        "the maximum is the last tile's alone, so that alpha may exceed 1 and overflow",
        Change("tl.maximum(m, any_x)", "any_x"),
        FULL,
    ),
    packed(
        "no_guard_on_an_empty_tile",
        "-inf - -inf for a query that has seen no key yet",
        Change(f"tl.where(m_new == {INF}, 0.0, m_new)", "m_new"),
        CAUSAL,
    ),
    packed(
        "maximum_starts_at_a_sentinel",
        "queries whose logits all lie below the finite stand-in for -inf underflow",
        Change(START_OF_M, "tl.full([BLOCK_M], -5.0e4, tl.float32)"),
        FULL,
    ),
    packed(
        "maximum_starts_at_zero",
        "queries whose logits all lie far below 0 underflow",
        Change(START_OF_M, "tl.zeros([BLOCK_M], tl.float32)"),
        FULL,
    ),
    packed(
        "sum_of_rounded_weights",
        "the row sum is of the rounded weights, which was not declared",
        Change("tl.sum(p, axis=1)", "tl.sum(p.to(q.dtype).to(tl.float32), axis=1)"),
        FULL,
        dtypes=("bf16", "fp16"),
    ),
)

ENDS = (
    packed(
        "one_key_of_the_next_sequence",
        "a sequence's keys end one too late",
        Change("tl.load(cu_kv_ptr + sequence + 1) - kv_start", "tl.load(cu_kv_ptr + sequence + 1) - kv_start + 1"),
        FULL,
    ),
    packed(
        "keys_from_the_second_one",
        "a sequence's keys begin one too late, and end where they should",
        Change("kv_start = tl.load(cu_kv_ptr + sequence)", "kv_start = tl.load(cu_kv_ptr + sequence) + 1"),
        FULL,
    ),
    packed(
        "keys_where_the_queries_are",
        "the keys are taken to begin where the queries do",
        Change("kv_start.to(tl.int64)", "q_start.to(tl.int64)"),
    ),
    packed(
        "diagonal_at_the_top_left",
        "the mask is aligned as if there were as many keys as queries",
        Change("diagonal = kv_len - q_len", "diagonal = 0"),
        CAUSAL,
    ),
    packed(
        "diagonal_lost",
        "a query does not see the key at its own place",
        Change(VISIBLE, VISIBLE.replace("<=", "<")),
        CAUSAL,
    ),
    packed(
        "one_key_too_far",
        "a query sees the key after its own",
        Change("last_key = query + diagonal", "last_key = query + diagonal + 1"),
        CAUSAL,
    ),
    packed(
        "unmasked_for_the_last_query",
        "a tile that the last query sees whole takes no mask",
        Change("tile_m * BLOCK_M + diagonal + 1", "tile_m * BLOCK_M + diagonal + BLOCK_M"),
        CAUSAL,
    ),
    packed(
        "last_tile_not_cut_off",
        "the last tile is masked as in a batch of sequences that are all longer",
        Change("visible = key[None, :] < kv_len", "visible = key[None, :] < kv_len + BLOCK_N"),
        FULL,
    ),
    packed(
        "values_of_the_next_sequence",
        "the next sequence's values are read: 0 times NaN",
        Change("tl.load(v_tile, mask=inside, other=0.0)", "tl.load(v_tile, mask=dim < HEAD_DIM, other=0.0)"),
        FULL,
    ),
    packed(
        "values_of_the_next_sequence_kept",
        "the next sequence's values, which come with a whole tile, are not set to 0",
        Change("tl.where((key < kv_len)[:, None], v, 0.0)", "v"),
        TMA,
    ),
    packed(
        "queries_of_the_next_sequence_written",
        "the rows that fill up a tile are written into the next sequence",
        Change(
            "tl.store(out_row[:, None] + dim, out, mask=inside)",
            "tl.store(out_row[:, None] + dim, out, mask=dim < HEAD_DIM)",
        ),
        (*FULL, *TMA),
    ),
    packed(
        "keys_of_the_first_sequence",
        "every sequence sees the first one's keys",
        Change("[kv_start + first_key, kv_head, 0]", "[first_key, kv_head, 0]"),
        TMA,
    ),
)

PLACES = (
    packed(
        "lse_by_place_in_the_sequence",
        "every sequence's log-sum-exp is written where the first one's belongs",
        Change("lse_ptr + head * lse_stride_head + token", "lse_ptr + head * lse_stride_head + query"),
        (*FULL, *TMA),
    ),
    packed(
        "heads_by_modulo",
        "query heads go round the key/value heads",
        Change("head // group", "head % (heads // group)"),
    ),
    packed(
        "padded_lanes_loaded",
        "the keys' lanes beyond head_dim hold the next head",
        (
            Change("(key < kv_len)[:, None] & (dim < HEAD_DIM)", "(key < kv_len)[:, None]"),
            Change("tl.load(k_tile, mask=dim < HEAD_DIM, other=0.0)", "tl.load(k_tile)"),
            Change("(query < q_len)[:, None] & (dim < HEAD_DIM)", "(query < q_len)[:, None]", which=0),
        ),
        FULL,
    ),
)

SEARCH = (
    packed(
        "grid_rounded_down",
        "the longest sequence's last queries have no program",
        Change("triton.cdiv(max_len, BLOCK_M)", "(max_len // BLOCK_M)"),
        FULL,
    ),
    packed(
        "grid_of_the_tokens",
        "as many programs as the tokens have tiles: a sequence's cut-off tile has none",
        Change("q.shape[0] // BLOCK_M + batch", "q.shape[0] // BLOCK_M + 1"),
        TMA,
        config=AS_GIVEN,
    ),
    packed(
        "one_sequence_on",
        "the last number of a sequence is taken for the next one's first",
        Change("end <= number", "end <= number + 1"),
        TMA,
        config=AS_GIVEN,
    ),
    packed(
        "only_those_searched_first",
        "sequences beyond those that are looked at at a time are never found",
        Change("tl.range(0, batch, SEARCHED)", "tl.range(0, SEARCHED, SEARCHED)"),
        CAUSAL,
    ),
    packed(
        "last_tiles_not_counted",
        "the ranking counts whole tiles alone",
        Change("(q_len + BLOCK_M - 1) // BLOCK_M", "q_len // BLOCK_M", function=RANK),
        CAUSAL,
    ),
    packed(
        "rank_taken_for_the_sequence",
        "the sequences are taken as they lie, with the tiles of those ranked",
        Change("sequence = tl.load(order_ptr + before)", "sequence = before", function=PLACE),
        TMA,
    ),
)
