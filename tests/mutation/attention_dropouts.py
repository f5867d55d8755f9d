"""Bugs of dropout: which weights stay, where in the recurrence the others go, and by what the rest is multiplied."""

from __future__ import annotations

from tests.mutation.attention_templates import SUM, attention
from tests.mutation.rewriting import Change

_DROPOUT, _ON = {"dropout": 0.3}, ("pointer",)
_PLACE = "tl.philox(seed, group[None, :], query[:, None], head, batch)"
_CALL = "_kept(seed, cutoff, batch, head, query, first_key, BLOCK_N=BLOCK_N)"
_WHO = "dropout_batch, dropout_head = batch.to(tl.int32), head.to(tl.int32)"
_SCALE = "acc * dropout_scale"

DROPOUTS = tuple(
    attention(name, breaks, change, _ON, options=_DROPOUT)
    for name, breaks, change in (
        (
            "dropout_within_the_tile",
            "every tile of keys loses the same",
            Change("first_key // 8 + tl.arange(0, BLOCK_N // 8)", "tl.arange(0, BLOCK_N // 8)"),
        ),
        (
            "dropped_from_the_sum",
            "the sum is of what stays",
            Change(SUM, SUM.replace("tl.sum(p,", f"tl.sum(tl.where({_CALL}, p, 0.0),")),
        ),
        ("kept_not_scaled", "what stays is not scaled", Change(_SCALE, "acc")),
        (
            "dropout_of_query_in_the_tile",
            "every tile of queries loses the same",
            Change(_PLACE, _PLACE.replace("query[:, None]", "tl.arange(0, query.shape[0])[:, None]")),
        ),
        (
            "dropout_of_the_kv_head",
            "a group's heads lose the same",
            Change(_WHO, _WHO.replace("head.to", "kv_head.to")),
        ),
        (
            "dropout_of_one_sequence",
            "all sequences lose the same",
            Change(_PLACE, _PLACE.replace("batch", "batch * 0")),
        ),
        ("kept_scaled_twice", "what stays is scaled twice", Change(_SCALE, "acc * dropout_scale * dropout_scale")),
        ("scaled_by_the_chance", "scaled by the chance to go", Change("1.0 / (1.0 - dropout_p)", "1.0 / dropout_p")),
        ("kept_are_dropped", "what should stay goes", Change("any_w >= cutoff", "any_w < cutoff")),
        ("halves_swapped", "keys side by side change places", Change("tl.join(low, high)", "tl.join(high, low)")),
        (
            "words_in_another_order",
            "other keys' bits",
            Change("tl.join(a & 0xFFFF, c & 0xFFFF)", "tl.join(a & 0xFFFF, b & 0xFFFF)"),
        ),
        ("seven_rounds", "another generator", Change(_PLACE, _PLACE.replace("batch)", "batch, n_rounds=7)"))),
        (
            "half_a_seed",
            "the seed's high word does nothing",
            Change("tl.load(dropout_seed_ptr)", "tl.load(dropout_seed_ptr) & 0xFFFFFFFF"),
        ),
        (
            "chance_in_256ths",
            "the chance is rounded to 8 bits",
            Change("round(dropout_p * 65536)", "round(dropout_p * 256) * 256"),
        ),
    )
)
