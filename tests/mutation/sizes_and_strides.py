"""Bugs of all operators that show at certain sizes alone, or where two tensors do not lie alike."""

from __future__ import annotations

from tests.mutation.attention_templates import UNMASKED, attention
from tests.mutation.mutant import mutant
from tests.mutation.rewriting import Change

_POINTER, _WHOLE_ROW = ("pointer",), ("whole_row",)

SIZES = (
    attention(
        "groups_of_four_at_most",
        "a fifth query head of a group has the next key/value head",
        Change("head // group", "head // tl.minimum(group, 4)"),
        _POINTER,
        shape={"heads": 16},
    ),
    attention(
        "four_query_tiles_at_most",
        "queries beyond the fourth tile are left out",
        Change("triton.cdiv(q_len, BLOCK_M)", "min(4, triton.cdiv(q_len, BLOCK_M))"),
        _POINTER,
    ),
    attention(
        "diagonal_unmasked_in_squares_of_whole_tiles",
        "where there are as many queries as keys, and whole tiles of them, the diagonal's tile has no mask",
        Change(UNMASKED, f"{UNMASKED} + tl.where((q_len == kv_len) & (q_len % BLOCK_M == 0), BLOCK_N, 0)"),
        _POINTER,
        causal=True,
        shape={"q_len": 256, "kv_len": 256},
    ),
    mutant(
        "softmax",
        "a_program_for_each_multiprocessor",
        "no more rows are written than a GPU has multiprocessors",
        Change("softmax_whole_row_kernel[(rows,)]", "softmax_whole_row_kernel[(min(rows, 132),)]"),
        _WHOLE_ROW,
    ),
    mutant(
        "softmax",
        "last_of_eight_columns_lost",
        "the last column is left out where there are whole eights of them",
        Change("inside = col < cols", "inside = col < cols - tl.where(cols % 8 == 0, 1, 0)"),
        _WHOLE_ROW,
        shape={"cols": 104},
    ),
    mutant(
        "softmax_topk",
        "eight_at_most",
        "no more than eight of the largest are written",
        Change("slot < K", "slot < min(K, 8)"),
        _WHOLE_ROW,
        shape={"k": 20},
    ),
)

STRIDES = (
    attention(
        "output_strides_of_the_queries",
        "the output is written with the queries' strides",
        tuple(Change(f"out.stride({axis})", f"q.stride({axis})") for axis in range(3)),
        _POINTER,
    ),
    mutant(
        "attention_decode",
        "value_strides_of_the_keys",
        "values are read with the keys' strides",
        (
            Change("v.stride(0)", "k.stride(0)"),
            Change("v.stride(by_head)", "k.stride(by_head)"),
            Change("v.stride(tokens)", "k.stride(tokens)"),
        ),
        ("single",),
    ),
    mutant(
        "softmax_bwd",
        "strides_of_y_for_dy",
        "dy is read with the stride of y",
        Change("dy.stride(0)", "y.stride(0)"),
        _WHOLE_ROW,
    ),
    mutant(
        "log_softmax",
        "output_stride_of_the_input",
        "the output is written with the input's stride",
        Change("out.stride(0)", "x.stride(0)"),
        _WHOLE_ROW,
    ),
)
