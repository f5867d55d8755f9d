"""Bugs of attention over a cache: what it shares with attention, lengths, pages, and the merge of splits."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutant import Changes, Mutant, mutant
from tests.mutation.rewriting import Change

ALL = ("single", "split", "descriptor")
SPLIT = ("split", "descriptor")
INF = 'float("-inf")'
BASE_2 = "USE_EXP2=true"
MERGE = "attention_decode_merge_kernel"
VISIBLE = "tl.expand_dims(key, ROWS) <= tl.expand_dims(last_key, KEYS)"
FILLED = "filled = any_s < seq_len"
LENGTH = "seq_len = tl.load(seq_lens_ptr + batch)"
PAGES, LARGE_PAGES = {"page_size": 16}, {"page_size": 64}


def decode(name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = ALL, **more: Any) -> Mutant:
    """A mutant of attention over a cache, of every template where none is named."""
    return mutant("attention_decode", name, breaks, changes, on, **more)


RECURRENCE = (
    decode(
        "acc_not_rescaled",
        "the accumulator keeps the scale of an older maximum",
        Change("acc * tl.expand_dims(alpha, KEYS)", "acc"),
    ),
    decode(
        "l_not_rescaled",
        "the running sum keeps the scale of an older maximum",
        Change("l * alpha + any_s", "l + any_s"),
        ("single",),
    ),
    decode(
        "weights_in_base_e",
        "the rescaling is in base 2, the weights are in base e",
        Change("p = tl.exp2(x)", "p = tl.exp(x)"),
        ("single",),
        config=BASE_2,
    ),
    decode(
        "block_maximum_not_carried",
        "the maximum is the last tile's alone, so that alpha may exceed 1 and overflow",
        Change("tl.maximum(m, any_x)", "any_x"),
        ("single",),
    ),
    decode(
        "no_guard_on_an_empty_tile",
        "-inf - -inf for a query that has seen no key yet",
        Change(f"tl.where(m_new == {INF}, 0.0, m_new)", "m_new"),
        ("single",),
    ),
    decode(
        "maximum_starts_at_a_sentinel",
        "queries whose logits all lie below the finite stand-in for -inf underflow",
        Change(f"tl.full([BLOCK_M], {INF}, tl.float32)", "tl.full([BLOCK_M], -5.0e4, tl.float32)"),
        ("single",),
    ),
    decode(
        "maximum_starts_at_zero",
        "queries whose logits all lie far below 0 underflow",
        Change(f"tl.full([BLOCK_M], {INF}, tl.float32)", "tl.zeros([BLOCK_M], tl.float32)"),
        ("single",),
    ),
    decode(
        "sum_of_rounded_weights",
        "the row sum is of the rounded weights, which was not declared",
        Change("tl.sum(p, axis=KEYS)", "tl.sum(p.to(q.dtype).to(tl.float32), axis=KEYS)"),
        ("single",),
        dtypes=("bf16", "fp16"),
    ),
    decode(
        "acc_in_bf16",
        "the accumulator is rounded at every tile",
        Change(
            "acc * tl.expand_dims(alpha, KEYS)", "(acc * tl.expand_dims(alpha, KEYS)).to(tl.bfloat16).to(tl.float32)"
        ),
        ("single",),
    ),
)

LENGTHS = (
    decode(
        "diagonal_lost",
        "a query does not see the key at its own place",
        Change(VISIBLE, VISIBLE.replace("<=", "<")),
        ("single",),
    ),
    decode(
        "one_key_too_far",
        "a query sees the key after its own, which for the last one is beyond the sequence",
        Change(VISIBLE, f"{VISIBLE} + 1"),
        ("single",),
    ),
    decode(
        "unmasked_for_the_last_query",
        "a tile that the last query sees whole takes no mask",
        Change("diagonal + 1", "diagonal + q_len"),
        ("single",),
    ),
    decode(
        "length_of_the_first_sequence",
        "every sequence is as long as the first one",
        Change(LENGTH, "seq_len = tl.load(seq_lens_ptr)", which=0),
        ("single",),
    ),
    decode(
        "values_beyond_the_length",
        "values beyond the sequence's length are read: 0 times NaN",
        Change("tl.load(v_tile, mask=inside, other=0.0)", "tl.load(v_tile, mask=dim < HEAD_DIM, other=0.0)"),
        ("single",),
        also={"descriptor": Change("tl.where((key < seq_len)[:, None], v, 0.0)", "v")},
    ),
)

PLACES = (
    decode(
        "heads_by_modulo",
        "query heads go round the key/value heads",
        Change("kv_head * group + row // q_len", "kv_head + row // q_len * kv_heads"),
        ("single",),
    ),
    decode(
        "rows_beyond_the_group",
        "the rows that fill up a tile are written",
        Change("real = row < group * q_len", "real = row < BLOCK_M"),
        ("single",),
    ),
    decode(
        "padded_lanes_loaded",
        "the keys' lanes beyond head_dim hold the next rows",
        (
            Change("(key < seq_len)[:, None] & (dim < HEAD_DIM)", "(key < seq_len)[:, None]"),
            Change("tl.load(k_tile, mask=dim < HEAD_DIM, other=0.0)", "tl.load(k_tile)"),
            Change("real[:, None] & (dim < HEAD_DIM)", "real[:, None]", which=0),
        ),
        ("single",),
    ),
    decode(
        "block_table_ignored",
        "pages are taken in their order",
        Change(
            "tl.load(table_ptr + key // PAGE_SIZE, **any_more).to(tl.int64)",
            "(key // PAGE_SIZE).to(tl.int64)",
        ),
        ("single",),
        shape=PAGES,
    ),
    decode(
        "block_table_ignored_for_large_pages",
        "pages are taken in their order where a tile lies in one",
        Change("tl.load(table_ptr + first_key // PAGE_SIZE)", "(first_key // PAGE_SIZE + seq_len * 0)"),
        ("descriptor",),
        shape=LARGE_PAGES,
    ),
    decode(
        "block_table_of_the_first_sequence",
        "every sequence reads the first one's pages",
        Change("table_ptr + any_b * table_stride", "table_ptr"),
        ("descriptor",),
        shape=LARGE_PAGES,
    ),
    decode(
        "place_in_the_page_lost",
        "every tile is the first one of its page",
        Change("first_key % PAGE_SIZE", "first_key % PAGE_SIZE * 0"),
        ("descriptor",),
        shape=LARGE_PAGES,
    ),
    decode(
        "lse_in_base_2",
        "the log-sum-exp is a logarithm to base 2",
        Change("(any_m + tl.log2(l_safe)) * LN2", "any_m + tl.log2(l_safe)"),
        ("single",),
        config=BASE_2,
    ),
)

MERGING = (
    decode(
        "maxima_ignored",
        "the splits are added as if they had one maximum",
        Change("weight = tl.exp(m - m_safe)", f"weight = tl.where(m > {INF}, 1.0, 0.0)"),
        SPLIT,
    ),
    decode(
        "merge_in_base_2",
        "the splits are in base e, their merge is in base 2",
        Change("weight = tl.exp(m - m_safe)", "weight = tl.exp2(m - m_safe)"),
        ("split",),
    ),
    decode(
        "merge_without_a_guard",
        "-inf - -inf for a query that no split has a key for",
        Change(f"tl.where(m_row == {INF}, 0.0, m_row)", "m_row"),
        ("split",),
    ),
    decode(
        "splits_averaged",
        "the splits' outputs are averaged as if they weighed the same",
        Change("tl.sum(acc * weight[:, None], axis=0) / l_safe", "tl.sum(acc, axis=0) / tl.sum(l, axis=0)"),
        ("split",),
    ),
    decode(
        "empty_splits_read",
        "splits that nobody wrote are merged as well",
        Change(FILLED, "filled = split >= 0"),
        SPLIT,
    ),
    decode(
        "last_split_lost",
        "the last split is not merged",
        Change(FILLED, "filled = (any_s < seq_len) & (split < SPLITS - 1)"),
        ("split",),
    ),
    decode(
        "split_in_its_neighbours_place",
        "each split is stored one place on",
        Change("any_r * SPLITS + split", "any_r * SPLITS + (split + 1) % SPLITS", which=0),
        ("split",),
    ),
)
