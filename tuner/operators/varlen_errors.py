"""Classical wrong answers of attention over packed sequences, in float64, on which the inputs must prove themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tuner.operators import attention_errors
from tuner.operators.varlen_inputs import by_head, sequences

ONE_TOO_LONG = "a sequence one key too long"
ONE_TOKEN_ON = "keys from the second one to the next sequence's first"
LONGEST_FOR_ALL = "keys up to the longest sequence's length"
LSE_OF_THE_QUERY_BEFORE = "the log-sum-exp of the query before"
_OF_NEIGHBOURS = (ONE_TOO_LONG, ONE_TOKEN_ON, LONGEST_FOR_ALL)

Lengths = Sequence[tuple[int, int]]
Answer = dict[str, tuple[tuple[int | slice, ...], torch.Tensor]]


def errors(lengths: Lengths, kv_heads: int, causal: bool, tile: int) -> tuple[str, ...]:
    """The errors that change anything at all in sequences of these (queries, keys) with tiles of ``tile`` keys."""
    q_len, kv_len = lengths[_longest(lengths)]
    found = attention_errors.errors({"q_len": q_len, "kv_len": kv_len, "kv_heads": kv_heads}, causal, tile)
    found += tuple(error for error in _OF_NEIGHBOURS if _of(lengths, error) is not None)
    if q_len > 1 and kv_len > 1:
        found += (LSE_OF_THE_QUERY_BEFORE,)
    return found


def answer(inputs: Mapping[str, torch.Tensor], scale: float, causal: bool, error: str, tile: int) -> Answer:
    """What a kernel with ``error`` would give for the first query head of one sequence, in float64, unrounded.

    ``inputs``: as ``tuner.operators.varlen_inputs`` makes them. The sequence is the one with the most keys, or the
    first of those that an error of its neighbours shows in. The places are of its out and its log-sum-exp.
    """
    places = list(sequences(inputs))
    lengths = [(queries.stop - queries.start, keys.stop - keys.start) for queries, keys in places]
    which = _of(lengths, error) if error in _OF_NEIGHBOURS else _longest(lengths)
    assert which is not None
    queries, keys = places[which]
    if error == ONE_TOO_LONG:
        keys = slice(keys.start, keys.stop + 1)
    elif error == ONE_TOKEN_ON:
        keys = slice(keys.start + 1, keys.stop + 1)
    elif error == LONGEST_FOR_ALL:
        most = max(count for _, count in lengths)
        keys = slice(keys.start, min(keys.start + most, len(inputs["k"])))
    out, lse = attention_errors.answer(*by_head(inputs, queries, keys), scale, causal, error, tile)
    if error == LSE_OF_THE_QUERY_BEFORE:
        lse = lse.roll(1)
    return {"out": ((queries, 0), out), "lse": ((0, queries), lse)}


def _longest(lengths: Lengths) -> int:
    """Of those with queries and keys, the first with the most keys."""
    return max(range(len(lengths)), key=lambda at: (min(lengths[at]) > 0, lengths[at][1], -at))


def _of(lengths: Lengths, error: str) -> int | None:
    """The first sequence in which an error of its neighbours shows: it has queries and keys, and keys come after it."""
    most = max(count for _, count in lengths)
    after = sum(count for _, count in lengths)
    for at, (q_len, kv_len) in enumerate(lengths):
        after -= kv_len
        if q_len and kv_len and after and (error != LONGEST_FOR_ALL or kv_len < most):
            return at
    return None
