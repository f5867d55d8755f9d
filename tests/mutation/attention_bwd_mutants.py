"""Bugs of the attention's gradients. Where nothing else is said, attention is causal."""

from __future__ import annotations

from typing import Any

from tests.mutation.attention_templates import INF
from tests.mutation.mutant import Changes, Mutant, mutant
from tests.mutation.rewriting import Change

_SPLIT, _FUSED, _DESCRIPTOR = ("split",), ("fused",), ("split_descriptor",)
_BOTH = (*_SPLIT, *_DESCRIPTOR)
_KEYS = "attention_bwd_keys_kernel"
_DEAD = f'tl.where(lse == {INF}, float("inf"), any_s)'
_MASK = f"tl.where(any_v, x, {INF})"
_START = "tl.maximum(first_key - diagonal, 0) // BLOCK_M * BLOCK_M"
_OF_KEYS = "ds = (p * (dp - delta[None, :])).to(q.dtype)"


def _bug(
    name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = (), causal: bool = True, **more: Any
) -> Mutant:
    return mutant("attention_bwd", name, breaks, changes, on, causal=causal, **more)


VALUES = (
    _bug(
        "delta_left_out",
        "dS is P dP alone",
        (Change("dp - delta[None, :]", "dp"), Change("dp - delta[:, None]", "dp")),
        _BOTH,
    ),
    _bug(
        "delta_of_dout",
        "delta is of dout twice",
        Change("tl.sum(out * dout, axis=1)", "tl.sum(dout * dout, axis=1)"),
        _FUSED,
    ),
    _bug(
        "delta_in_bf16",
        "delta is rounded to bf16",
        Change("tl.sum(out * dout, axis=1)", "tl.sum(out * dout, axis=1).to(tl.bfloat16).to(tl.float32)"),
        _FUSED,
    ),
    _bug("scale_left_out_of_dq", "dq is not scaled", Change("sums * scale", "sums"), _FUSED),
    _bug(
        "lse_in_base_e",
        "the log-sum-exp is not brought to base 2, the logits are",
        Change("lse * LOG2E if USE_EXP2 else lse", "lse"),
        _SPLIT,
    ),
    _bug("weights_in_base_e", "weights of base 2 by exp", Change("tl.exp2(x)", "tl.exp(x)"), _BOTH),
    _bug(
        "ds_in_bf16",
        "dS is rounded to bf16, which is not declared",
        Change(_OF_KEYS, "ds = (p * (dp - delta[None, :])).to(tl.bfloat16).to(q.dtype)"),
        _FUSED,
        dtypes=("fp32", "fp16"),
    ),
)

MASKS = (
    _bug("no_mask", "weights that the forward pass masked are recomputed", Change(_MASK, "x"), _FUSED),
    _bug(
        "diagonal_lost",
        "a query does not see the key at its own place",
        Change("query[None, :] >= first_seen[:, None]", "query[None, :] > first_seen[:, None]"),
        _SPLIT,
    ),
    _bug(
        "diagonal_lost_to_dq",
        "for dq a query does not see the key at its own place",
        Change("key[None, :] <= last_key[:, None]", "key[None, :] < last_key[:, None]"),
        _BOTH,
    ),
    _bug(
        "aligned_top_left",
        "the diagonal starts at the first key and the first query",
        Change("diagonal = kv_len - q_len", "diagonal = 0"),
        _SPLIT,
    ),
    _bug(
        "unmasked_a_query_early",
        "a tile of queries may take no mask though its first query does not see the last key",
        Change("first_key + BLOCK_N - 1 - diagonal", "first_key + BLOCK_N - 2 - diagonal"),
        _SPLIT,
    ),
    _bug(
        "diagonal_lost_in_a_tile",
        "a query does not see the key at its own place",
        Change(
            "(query - first_seen)[None, :] >= tl.arange(0, BLOCK_N)[:, None]",
            "(query - first_seen)[None, :] > tl.arange(0, BLOCK_N)[:, None]",
        ),
        _DESCRIPTOR,
    ),
    _bug(
        "unmasked_a_query_early_in_a_tile",
        "a tile of queries may take no mask though its first query does not see the last key",
        Change("first_seen + BLOCK_N - 1", "first_seen + BLOCK_N - 2"),
        _DESCRIPTOR,
    ),
    _bug(
        "keys_past_the_end_not_masked_for_dq",
        "keys past the last one have weights, which overflow where the log-sum-exp is low: inf times 0",
        Change("tl.maximum(unmasked, 0) // BLOCK_N * BLOCK_N", "tl.maximum(tl.cdiv(unmasked, BLOCK_N), 0) * BLOCK_N"),
        _DESCRIPTOR,
        causal=False,
    ),
    _bug(
        "start_rounded_up",
        "the first, partial tile of queries that see some of the keys is left out",
        Change(_START, "tl.cdiv(tl.maximum(first_key - diagonal, 0), BLOCK_M) * BLOCK_M"),
        _FUSED,
    ),
    _bug(
        "dead_queries_not_guarded",
        "a query that sees no key has a shift of -inf",
        Change(_DEAD, "any_s"),
        _FUSED,
    ),
    _bug(
        "keys_past_the_end_not_masked",
        "keys past the last one have weights, which overflow where the log-sum-exp is low: inf times 0",
        Change("first_key + BLOCK_N > kv_len", "first_key > kv_len"),
        _FUSED,
        causal=False,
    ),
)

LOOPS = (
    _bug(
        "last_queries_lost",
        "the last, ragged tile of queries is left out of dk and dv",
        Change("tl.range(start, q_len, **any_more)", "tl.range(start, q_len // BLOCK_M * BLOCK_M, **any_more)"),
        _BOTH,
    ),
    _bug(
        "last_keys_lost",
        "the last, ragged tile of keys is left out of dq",
        Change("end = tl.minimum(any_a, any_b)", "end = tl.minimum(any_a, any_b) // BLOCK_N * BLOCK_N"),
        _BOTH,
    ),
    _bug(
        "dk_not_summed",
        "dk is of the last tile of queries alone",
        Change("tl.dot(ds, q, dk, **any_more)", "tl.dot(ds, q, **any_more)"),
        _FUSED,
    ),
    _bug(
        "dq_overwritten",
        "each tile of keys writes its share of dq over the others'",
        Change("dq_desc.atomic_add(any_o, any_s)", "dq_desc.store(any_o, any_s)"),
        _FUSED,
        config="BULK_ADD=true",
    ),
    _bug(
        "dq_not_zeroed",
        "dq's sums start at what the scratch holds",
        Change(
            "tl.store(dq_sum_ptr + sums, any_z, mask=any_m)", "tl.store(delta_ptr + place, tl.sum(out * dout, axis=1))"
        ),
        _FUSED,
    ),
    _bug(
        "group_overwritten",
        "dk and dv are of the last head of a group alone",
        Change("head = kv_head * group + member", "head = kv_head * group + member\ndk = dk * 0.0\ndv = dv * 0.0"),
        _BOTH,
    ),
)

ADDRESSES = (
    _bug(
        "first_head_of_the_group",
        "every member of a group is its first head",
        Change("kv_head * group + member", "kv_head * group"),
        _FUSED,
    ),
    _bug(
        "heads_by_modulo",
        "a head's keys are found by modulo",
        Change("head // group", "head % (heads // group)"),
        _BOTH,
    ),
    _bug(
        "padded_lanes_stored",
        "lanes beyond head_dim are written over the next rows",
        Change("(key < kv_len)[:, None] & (dim < HEAD_DIM)", "(key < kv_len)[:, None]", function=_KEYS),
        _SPLIT,
    ),
)

MUTANTS = (*VALUES, *MASKS, *LOOPS, *ADDRESSES)
