"""What holds for every element of a large output of attention over packed sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from tuner.operators.invariants import Invariant, largest_deviation, ones_tolerance
from tuner.operators.varlen_inputs import sequences
from tuner.precision import PrecisionProfile


def ones_give_ones(
    inputs: Mapping[str, torch.Tensor], scale: float, causal: bool, profile: PrecisionProfile, kv_len: int
) -> Invariant:
    """Of finite q and k over a v of ones: the output is 1, and 0 where a query sees no key.

    ``kv_len``: the most keys that a query sees.
    """
    q, k = inputs["q"], inputs["k"]
    tolerance = ones_tolerance(q, k, scale, profile, kv_len)
    dead = torch.zeros(len(q), dtype=torch.bool)
    for queries, keys in sequences(inputs):
        count = keys.stop - keys.start
        # Under causal the first queries see nothing where there are more of them than keys.
        blind = max(0, queries.stop - queries.start - count) if causal or not count else 0
        dead[queries.start : queries.start + blind] = True
    expected = (~dead).float().to(q.device)[:, None, None]

    def excess(outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        deviation = outputs["out"].float() - expected
        worst = largest_deviation(deviation) / tolerance
        wrong = ((outputs["out"] != 0) & (expected == 0)).any()
        return torch.where(wrong, math.inf, worst)

    ones = {"q": q, "k": k, "v": torch.ones_like(inputs["v"])}
    return Invariant("a v of ones gives an output of ones", ones, excess)
