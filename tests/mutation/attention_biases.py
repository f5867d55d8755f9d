"""Bugs of the bias that is added to the logits."""

from __future__ import annotations

from tests.mutation.attention_templates import GUARD, attention
from tests.mutation.rewriting import Change

_BOTH, _HEADS, _ONE = {"bias": "both"}, {"bias": "heads"}, {"bias": "one"}
_ADDED = "x = x + bias"

BIASES = (
    attention("bias_left_out", "the bias is loaded and not added", Change(_ADDED, "x = x + 0.0 * bias"), options=_ONE),
    attention(
        "bias_in_base_2",
        "the bias is not in the base of the logits",
        Change("bias * 1.4426950408889634", "bias"),
        options=_HEADS,
    ),
    attention(
        "bias_scaled",
        "the logits with their bias are scaled",
        (Change("x = x * logit_scale", "x = x"), Change(_ADDED, "x = (x + bias) * logit_scale")),
        options=_ONE,
    ),
    attention(
        "bias_of_the_same_tile",
        "every tile of keys takes the bias of the first",
        Change("biased = (first_key + tl.arange(0, BLOCK_N))[None, :]", "biased = tl.arange(0, BLOCK_N)[None, :]"),
        options=_HEADS,
    ),
    attention(
        "bias_of_one_head",
        "all heads take the first one's bias",
        Change("bias.stride(1) if bias.shape[1] == heads else 0", "0"),
        options=_HEADS,
    ),
    attention(
        "bias_of_one_sequence",
        "all sequences take the first one's bias",
        Change("bias.stride(0) if bias.shape[0] == batch else 0", "0"),
        options=_BOTH,
    ),
    attention(
        "one_bias_strided",
        "a bias that all heads share is walked through by head",
        Change("bias.stride(1) if bias.shape[1] == heads else 0", "bias.stride(1)"),
        options=_ONE,
    ),
    attention(
        "bias_rows_packed",
        "rows of the bias are taken to follow one another",
        Change("bias.stride(2)", "kv_len"),
        options=_HEADS,
    ),
    attention(
        "no_guard_where_a_bias_is_infinite",
        "-inf - -inf where a bias takes all keys of a tile away",
        Change(GUARD, "m_new"),
        options=_HEADS,
    ),
)
