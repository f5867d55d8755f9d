"""Bugs of what a template does where values have a head_dim of their own, and head_dim is taken in two parts."""

from __future__ import annotations

from tests.mutation.attention_templates import attention
from tests.mutation.rewriting import Change

_OWN = {"head_dim": 40, "v_head_dim": 24}
_POINTER, _DESCRIPTOR = ("pointer",), ("descriptor",)
_STORED = "inside = (query < q_len)[:, None] & (dim < V_DIM)"
_REST = "HEAD_DIM_PADDED + tl.arange(0, REST_PADDED)[None, :]"

VALUE_DIMS = (
    attention(
        "outputs_as_wide_as_queries",
        "writes beyond an output's row",
        Change(_STORED, "inside = (query < q_len)[:, None] & (dim < HEAD_DIM)"),
        _POINTER,
        shape=_OWN,
    ),
    attention(
        "one_value_too_few",
        "the last column is not written",
        Change(_STORED, "inside = (query < q_len)[:, None] & (dim < V_DIM - 1)"),
        _POINTER,
        shape=_OWN,
    ),
    attention(
        "rest_of_q_left_out",
        "the logits are of the first part alone",
        Change("tl.dot(q_rest, any_k, x, **any_more)", "x"),
        shape=_OWN,
    ),
    attention(
        "rest_in_the_place_of_the_first_part",
        "the logits are of the second part alone",
        Change("tl.dot(q_rest, any_k, x, **any_more)", "tl.dot(q_rest, any_k, **any_more)"),
        shape=_OWN,
    ),
    attention(
        "rest_not_masked",
        "the rest of a row runs into the next one",
        Change("inside_rest = (query < q_len)[:, None] & (rest < HEAD_DIM)", "inside_rest = (query < q_len)[:, None]"),
        _POINTER,
        shape=_OWN,
    ),
    attention(
        "rest_from_the_start",
        "the first columns count twice, the last ones not at all",
        Change(_REST, "tl.arange(0, REST_PADDED)[None, :]"),
        _POINTER,
        shape=_OWN,
        also={
            "descriptor": (
                Change(
                    "q_rest_desc.load([batch, head, tile_m * BLOCK_M, HEAD_DIM])",
                    "q_rest_desc.load([batch, head, tile_m * BLOCK_M, 0])",
                ),
                Change(
                    "k_rest_desc.load([batch, kv_head, any_f, HEAD_DIM])",
                    "k_rest_desc.load([batch, kv_head, any_f, 0])",
                ),
            )
        },
    ),
    attention(
        "rest_of_another_tile",
        "the second part is of the first keys",
        Change(
            "k_rest_desc.load([batch, kv_head, any_f, HEAD_DIM])", "k_rest_desc.load([batch, kv_head, 0, HEAD_DIM])"
        ),
        _DESCRIPTOR,
        shape=_OWN,
    ),
    attention(
        "rest_of_the_query_head",
        "the second part is of another head's keys",
        Change("k_rest_desc.load([batch, kv_head, any_f, HEAD_DIM])", "k_rest_desc.load([batch, 0, any_f, HEAD_DIM])"),
        _DESCRIPTOR,
        shape=_OWN,
    ),
    attention(
        "scale_of_the_values_dim",
        "the parts are scaled as if each were whole",
        Change("x = tl.dot(q_rest, any_k, x, **any_more)", "x = 0.5 * tl.dot(q_rest, any_k, x, **any_more)"),
        _POINTER,
        shape=_OWN,
    ),
)
