"""Bugs of fp8: scales left out or misplaced, and the weights' scale and format."""

from __future__ import annotations

from typing import Any

from tests.mutation.attention_templates import BASE_E, attention
from tests.mutation.mutant import Changes, Mutant
from tests.mutation.rewriting import Change

_LOGITS = "qk_scale * (tl.load(q_scale_ptr) * tl.load(k_scale_ptr))"
_CAST = "p.to(tl.float8e4nv)"
_SINKS = {"sinks": True}


def fp8(name: str, breaks: str, changes: Changes, **more: Any) -> Mutant:
    """A mutant of attention forward of fp8, of both templates."""
    return attention(name, breaks, changes, dtypes=("fp8",), **more)


BUGS = (
    fp8("v_scale_left_out", "the output is not scaled", Change("tl.load(v_scale_ptr)", "1.0")),
    fp8("k_scale_left_out", "the logits lack the keys' scale", Change(_LOGITS, "qk_scale * tl.load(q_scale_ptr)")),
    fp8("q_scale_left_out", "the logits lack the queries' scale", Change(_LOGITS, "qk_scale * tl.load(k_scale_ptr)")),
    fp8(
        "q_scale_twice",
        "the queries' scale stands for the keys'",
        Change("tl.load(k_scale_ptr)", "tl.load(q_scale_ptr)"),
    ),
    fp8(
        "scales_swapped",
        "the keys' scale stands for the values'",
        Change("tl.load(v_scale_ptr)", "tl.load(k_scale_ptr)"),
    ),
    fp8("weights_saturate", "the largest weights are beyond 448", Change("x - 8.0", "x - 10.0")),
    fp8(
        "weights_saturate_in_base_e",
        "they are 403 times too large",
        Change("x - 5.545177444479562", "x - 8.0"),
        config=BASE_E,
    ),
    fp8("weights_lowered", "the weights are divided by 256, and most are 0", Change("x - 8.0", "x + 8.0")),
    fp8("weights_in_e5m2", "the weights have two bits of mantissa", Change(_CAST, "p.to(tl.float8e5)")),
    fp8(
        "weights_scaled_once_more",
        "the weights' scale is not undone",
        Change(_CAST, "(p * 0.5).to(tl.float8e4nv)"),
    ),
    fp8(
        "weights_not_of_their_sum",
        "the sum is of weights up to 1",
        Change("l * alpha + tl.sum(p, axis=1)", "l * alpha + tl.sum(p, axis=1) / 256.0"),
    ),
    fp8(
        "weights_too_small",
        "the weights are a quarter too small, their sum is not",
        Change(_CAST, "(p * 0.75).to(tl.float8e4nv)"),
    ),
    fp8(
        "sink_of_unscaled_weights",
        "the sink's weight is 1 and not 256",
        Change("l + 256.0", "l + 1.0"),
        options=_SINKS,
    ),
    fp8(
        "sink_not_lowered",
        "the maximum starts at the sink, its weight at 256",
        Change("_lowered(sink, USE_EXP2=USE_EXP2)", "sink"),
        options=_SINKS,
    ),
)
