"""Classical wrong answers of attention over a cache, in float64, on which the check's inputs must prove themselves."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tuner.operators import attention_errors
from tuner.operators.decode_inputs import gathered

LENGTH_IGNORED = "keys beyond the sequence's length"
PAGES_IN_ORDER = "the block table ignored"
MAXIMA_IGNORED, BASE_OF_MERGE, AVERAGED = (
    "splits merged without their maxima",
    "splits merged in base 2",
    "splits averaged",
)
_OF_SPLITS = (MAXIMA_IGNORED, BASE_OF_MERGE, AVERAGED)

Answer = dict[str, tuple[tuple[int, ...], torch.Tensor]]


def errors(sizes: Mapping[str, int], tile: int) -> tuple[str, ...]:
    """The errors that change anything at all on a problem of this shape with tiles of ``tile`` keys."""
    found = attention_errors.errors(dict(sizes), True, tile)
    if sizes["kv_len"] > tile:
        found += _OF_SPLITS
    if sizes["kv_len"] > 1:
        found += (LENGTH_IGNORED,)
    if 0 < sizes["page_size"] < sizes["kv_len"]:
        found += (PAGES_IN_ORDER,)
    return found


def answer(inputs: Mapping[str, torch.Tensor], scale: float, error: str, tile: int) -> Answer:
    """What a kernel with ``error`` would give for the first query head of one sequence, in float64, unrounded.

    ``inputs``: as ``tuner.operators.decode_inputs`` makes them. The sequence is the first one, or the shortest where
    its length is ignored. The places are of out [q_len, head_dim] and the log-sum-exp [q_len].
    """
    if error == LENGTH_IGNORED:
        sequence = int(inputs["seq_lens"].argmin())
        # What lies beyond is NaN, for every query that looks there; nothing lies beyond a sequence of full length.
        k, _ = gathered(inputs, sequence)
        cut = k.shape[1] < _room(inputs)
        out, lse = _right(inputs, sequence, scale, tile)
        out, lse = (t.fill_(torch.nan) if cut else t for t in (out, lse))
    elif error == PAGES_IN_ORDER:
        sequence, table = 0, inputs["block_table"]
        in_order = torch.arange(table.numel(), dtype=table.dtype, device=table.device).view_as(table)
        out, lse = _right({**inputs, "block_table": in_order}, sequence, scale, tile)
    elif error in _OF_SPLITS:
        sequence = 0
        out, lse = _merged(inputs, scale, error)
    else:
        sequence = 0
        out, lse = _right(inputs, sequence, scale, tile, error)
    return {"out": ((sequence, 0), out), "lse": ((sequence, 0), lse)}


def _room(inputs: Mapping[str, torch.Tensor]) -> int:
    """Tokens that a sequence has room for."""
    k = inputs["k"]
    return k.shape[1] * inputs["block_table"].shape[1] if "block_table" in inputs else k.shape[2]


def _right(
    inputs: Mapping[str, torch.Tensor], sequence: int, scale: float, tile: int, error: str = ""
) -> tuple[torch.Tensor, torch.Tensor]:
    """What is right for one sequence's first head, or has one of attention's own errors."""
    k, v = gathered(inputs, sequence)
    q = inputs["q"][sequence]
    if not k.shape[1]:
        return torch.zeros_like(q[0], dtype=torch.float64), torch.full_like(q[0, :, 0], -torch.inf, dtype=torch.float64)
    return attention_errors.answer(q[None], k[None], v[None], scale, True, error, tile)


def _merged(inputs: Mapping[str, torch.Tensor], scale: float, error: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The first head of the first sequence from two splits that are each right and merged wrongly."""
    k, v = gathered(inputs, 0)
    queries, keys, values = inputs["q"][0, 0].double(), k[0].double(), v[0].double()
    q_len, length = len(queries), len(keys)
    last = torch.arange(q_len, device=queries.device)[:, None] + length - q_len
    logits = scale * queries @ keys.T
    logits = logits.masked_fill(torch.arange(length, device=queries.device) > last, -torch.inf)
    halves = [slice(0, length // 2), slice(length // 2, length)]
    m = torch.stack([logits[:, half].amax(dim=1) if length > 1 else logits[:, 0] for half in halves])
    safe = m.masked_fill(m.isneginf(), 0.0)
    p = [(logits[:, half] - safe[at][:, None]).exp() for at, half in enumerate(halves)]
    l = torch.stack([weights.sum(dim=1) for weights in p])  # noqa: E741
    acc = torch.stack([weights @ values[half] for weights, half in zip(p, halves, strict=True)])
    top = m.amax(dim=0)
    if error == MAXIMA_IGNORED:
        weight = torch.ones_like(m)
    else:
        weight = (m - top).exp2() if error == BASE_OF_MERGE else (m - top).exp()
    total = (l * weight).sum(dim=0)
    if error == AVERAGED:
        return (acc / l[..., None]).mean(dim=0), top + total.log()
    return (acc * weight[..., None]).sum(dim=0) / total[:, None], top + total.log()
