"""Inputs of attention over packed sequences: the families of attention, each sequence's for its own lengths.

In ``nonfinite`` a sequence with fewer than ``NONFINITE_KEYS`` keys stays as it is drawn, and what nobody sees, the keys
and values of a sequence without queries, is NaN. Nothing of that may reach the sequences beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise

import torch

from tuner.errors import ProblemError
from tuner.operators import attention_inputs
from tuner.operators.attention_fwd import FAMILIES, NONFINITE_KEYS
from tuner.operators.tensors import seed_of, standard_normal
from tuner.operators.varlen_lengths import queries_and_keys
from tuner.problem import Problem


def normal(problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
    """Standard normal q, k, v, contiguous, and where the problem's sequences begin and end."""
    s, lengths = problem.sizes, queries_and_keys(problem)
    ends = {
        "cu_seqlens_q": [0, *accumulate(queries for queries, _ in lengths)],
        "cu_seqlens_kv": [0, *accumulate(keys for _, keys in lengths)],
    }
    tokens = {"q": ends["cu_seqlens_q"][-1], "k": ends["cu_seqlens_kv"][-1], "v": ends["cu_seqlens_kv"][-1]}
    heads = {"q": s["heads"], "k": s["kv_heads"], "v": s["kv_heads"]}
    drawn = {
        name: standard_normal((count, heads[name], s["head_dim"]), problem.dtype, seed_of(name, seed), device)
        for name, count in tokens.items()
    }
    return drawn | {name: torch.tensor(at, dtype=torch.int32, device=device) for name, at in ends.items()}


def make(problem: Problem, family: str, seed: int, device: str, scale: float) -> dict[str, torch.Tensor]:
    """The inputs of one family. Raises ``ProblemError`` on an unknown family."""
    if family not in FAMILIES:
        raise ProblemError(f"{problem.operator} has no input family {family!r}; it has {', '.join(FAMILIES)}")
    drawn = normal(problem, seed_of(family, seed), device)
    causal = bool(problem.settings["causal"])
    for queries, keys in sequences(drawn):
        if family == "nonfinite" and queries.start == queries.stop:
            for name in ("k", "v"):
                drawn[name][keys] = torch.nan
        few = queries.start == queries.stop or keys.stop - keys.start < (NONFINITE_KEYS if family == "nonfinite" else 1)
        if not few:
            q, k, v = by_head(drawn, queries, keys)
            attention_inputs.change(family, q, k, v, scale, causal, problem.dtype)
    return drawn


def sequences(inputs: Mapping[str, torch.Tensor]) -> Iterator[tuple[slice, slice]]:
    """By sequence, which tokens are its queries and which are its keys."""
    queries, keys = (pairwise(inputs[name].tolist()) for name in ("cu_seqlens_q", "cu_seqlens_kv"))
    for q, k in zip(queries, keys, strict=True):
        yield slice(*q), slice(*k)


def by_head(
    inputs: Mapping[str, torch.Tensor], queries: slice, keys: slice
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Views of some tokens as attention has them: q [1, heads, queries, head_dim], k and v [1, kv_heads, keys, ...]."""
    places = {"q": queries, "k": keys, "v": keys}
    q, k, v = (inputs[name][at].transpose(0, 1)[None] for name, at in places.items())
    return q, k, v
