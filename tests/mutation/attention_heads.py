"""Bugs of what each head has of its own: a sink, a slope."""

from __future__ import annotations

from tests.mutation.attention_templates import attention
from tests.mutation.rewriting import Change

_SINKS, _SLOPES = {"sinks": True}, {"alibi": True}
_LOG2E = "1.4426950408889634"
_FIRST = "m = tl.zeros([BLOCK_M], tl.float32) + sink"
_WEIGHT = "l + 1.0"
_AWAY = "tl.abs(away).to(tl.float32)"

HEADS = (
    attention("sink_left_out", "the sink is not in the sum", Change("l = l + 1.0", ""), options=_SINKS),
    attention("sink_twice", "the sink counts twice", Change(_WEIGHT, "l + 2.0"), options=_SINKS),
    attention(
        "sink_in_base_2",
        "the sink is not in the base of the logits",
        Change(f"sink * {_LOG2E}", "sink"),
        options=_SINKS,
    ),
    attention(
        "sink_scaled",
        "the sink is scaled as the logits are",
        Change(_FIRST, "m = tl.zeros([BLOCK_M], tl.float32) + sink * qk_scale"),
        options=_SINKS,
    ),
    attention(
        "sink_of_the_first_head", "all heads have one sink", Change("sinks_ptr + head", "sinks_ptr"), options=_SINKS
    ),
    attention(
        "sink_of_the_batch_and_head",
        "the sinks are counted through the batch",
        Change("sinks_ptr + head", "sinks_ptr + batch_head % (2 * heads) // 2"),
        options=_SINKS,
    ),
    attention("slope_upwards", "far keys gain", Change("x - slope * any_x", "x + slope * any_x"), options=_SLOPES),
    attention(
        "slope_in_base_2",
        "the slope is not in the base of the logits",
        Change(f"slope * {_LOG2E}", "slope"),
        options=_SLOPES,
    ),
    attention(
        "slope_of_the_first_head",
        "all heads have one slope",
        Change("slopes_ptr + head", "slopes_ptr"),
        options=_SLOPES,
    ),
    attention("later_keys_gain", "a distance with its sign", Change(_AWAY, "-away.to(tl.float32)"), options=_SLOPES),
    attention(
        "slope_from_the_top_left",
        "as if there were as many queries as keys",
        Change("place = last_key", "place = query"),
        options=_SLOPES,
    ),
    attention(
        "slope_within_the_tile",
        "distances are counted in each tile",
        Change(
            "(first_key + tl.arange(0, BLOCK_N))[None, :] - place[:, None]",
            "tl.arange(0, BLOCK_N)[None, :] - place[:, None]",
        ),
        options=_SLOPES,
    ),
    attention(
        "slope_before_the_scale",
        "the logits with their slope are scaled",
        Change("x = x * logit_scale", "x = x"),
        options=_SLOPES,
    ),
)
