"""How long the sequences of a packed batch are: a fixed rule, so that a problem is the same one in every run.

With n sequences of at most L tokens:

======== ==========================================================================================================
equal    all L
uniform  L / n, 2 L / n, ... L, rounded up
skewed   L (r / n)^3 for r = 1 ... n, rounded up, as real batches are: half of them at most L / 8, a quarter of L on
         average
edges    L, 1, L / 2 + 1, L / 2 - 1, 0, L / 2 (rounded down), and from the start again: what the check looks at
======== ==========================================================================================================

``uniform`` and ``skewed`` are in no order: sequence i has the rank of (i + 1) 2654435769 modulo 2^32 among all, the
golden ratio's multiples (Knuth, The Art of Computer Programming, vol. 3, 6.4), so that neighbours differ. Keys are
spread by the same rule over their own maximum; a sequence that has the most queries has the most keys. In ``edges``
they go round the other way, and one place on after every round, so that every number of queries meets every number of
keys.
"""

from __future__ import annotations

from functools import lru_cache

from tuner.problem import Problem

LENGTHS = ("equal", "uniform", "skewed", "edges")
_POWERS = {"uniform": 1, "skewed": 3}
_GOLDEN = 2654435769  # 2^32 over the golden ratio


def queries_and_keys(problem: Problem) -> tuple[tuple[int, int], ...]:
    """By sequence of an ``attention_varlen``, how many queries and keys it has."""
    s = problem.sizes
    return _pairs(str(problem.settings["lengths"]), s["batch"], s["max_len"], s["max_kv_len"])


@lru_cache(maxsize=256)
def _pairs(rule: str, count: int, most_queries: int, most_keys: int) -> tuple[tuple[int, int], ...]:
    if rule == "equal":
        return ((most_queries, most_keys),) * count
    if rule == "edges":
        queries, keys = _edges(most_queries), _edges(most_keys)
        return tuple((queries[i % 6], keys[(i // 6 - i) % 6]) for i in range(count))
    power = _POWERS[rule]
    shares = [(rank + 1) ** power for rank in _ranks(count)]
    # -(-a // b) is a / b rounded up, exactly.
    return tuple((-(-most_queries * a // count**power), -(-most_keys * a // count**power)) for a in shares)


def _edges(most: int) -> tuple[int, ...]:
    half = most // 2
    return (most, 1, min(most, half + 1), max(0, half - 1), 0, half)


def _ranks(count: int) -> list[int]:
    order = sorted(range(count), key=lambda i: (i + 1) * _GOLDEN % 2**32)
    ranks = [0] * count
    for rank, sequence in enumerate(order):
        ranks[sequence] = rank
    return ranks
