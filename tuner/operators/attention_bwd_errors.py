"""Classical wrong gradients of attention, in float64, on which the check's inputs must prove themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from tuner.operators.attention_errors import (
    DIAGONAL_LOST,
    LAST_KEY_LOST,
    NEIGHBOURS_HEAD,
    ONE_TOO_FAR,
    SCALE_TOO_LARGE,
    SCALE_TOO_SMALL,
    TOP_LEFT,
    ZEROS,
)
from tuner.operators.online_errors import TILE_DOUBLED, TILE_DROPPED, WRONG_BASE

NO_DELTA, NEIGHBOURS_DELTA = "delta left out", "the delta of the query before"
SIGN_OF_DELTA, NO_SCALE = "delta added", "the scale left out of dq and dk"
LSE_IN_BASE_2, NO_MASK = "the log-sum-exp taken to be in base 2", "no mask on the recomputed weights"
LAST_QUERY_LOST, GROUP_OVERWRITTEN = "the last query lost", "one head of the group alone"
QUERIES_DROPPED, QUERIES_DOUBLED = "a tile of queries dropped", "a tile of queries doubled"
_SCALES = {SCALE_TOO_LARGE: 1.0 + 2.0**-6, SCALE_TOO_SMALL: 1.0 - 2.0**-6}
_TIMES = {TILE_DROPPED: 0.0, TILE_DOUBLED: 2.0, QUERIES_DROPPED: 0.0, QUERIES_DOUBLED: 2.0}


def errors(sizes: Mapping[str, int], scale: float, causal: bool, q_tile: int, kv_tile: int) -> tuple[str, ...]:
    """The errors that change anything at all on a problem of this shape, taken in tiles of these sizes."""
    q_len, kv_len = sizes["q_len"], sizes["kv_len"]
    found = [ZEROS, NO_DELTA]
    if kv_len > 1:
        found += [*_SCALES, SIGN_OF_DELTA, WRONG_BASE, LSE_IN_BASE_2, LAST_KEY_LOST]
        found += [NO_SCALE] if scale != 1.0 else []
        found += [NEIGHBOURS_DELTA, LAST_QUERY_LOST] if q_len > 1 else []
        found += [NEIGHBOURS_HEAD] if sizes["kv_heads"] > 1 else []
        found += [GROUP_OVERWRITTEN] if sizes["heads"] > sizes["kv_heads"] else []
    if kv_len > kv_tile:
        found += [TILE_DROPPED, TILE_DOUBLED]
    dead = max(0, q_len - kv_len) if causal else 0
    if q_len > q_tile and (_middle(q_len, q_tile) + 1) * q_tile > dead:
        found += [QUERIES_DROPPED, QUERIES_DOUBLED]
    if causal:
        found.append(DIAGONAL_LOST)
        if q_len > 1 and kv_len > 1:
            found += [ONE_TOO_FAR, NO_MASK]
        if q_len != kv_len and kv_len > 1:
            found.append(TOP_LEFT)
    return tuple(found)


def answer(
    inputs: Mapping[str, torch.Tensor], scale: float, causal: bool, error: str, q_tile: int, kv_tile: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What a kernel with ``error`` would give for the first sequence, in float64, unrounded.

    ``inputs`` as of ``attention_bwd_bound.reference``. Returns dq [q_len, head_dim] of the first query head, and dk and
    dv [kv_len, head_dim] of the first key/value head.
    """
    group = inputs["q"].shape[1] // inputs["k"].shape[1]
    kv_head = 1 if error == NEIGHBOURS_HEAD else 0
    q, dout, out, lse = (inputs[name][0, :group].double() for name in ("q", "dout", "out", "lse"))
    k, v = (inputs[name][0, kv_head].double() for name in ("k", "v"))
    q_len, kv_len = q.shape[1], len(k)
    x = scale * _SCALES.get(error, 1.0) * (q @ k.T) - lse[..., None] * (
        math.log(2.0) if error == LSE_IN_BASE_2 else 1.0
    )
    p = (x * (math.log(2.0) if error == WRONG_BASE else 1.0)).exp()
    at, key = torch.arange(q_len, device=q.device)[:, None], torch.arange(kv_len, device=q.device)[None, :]
    if causal and error != NO_MASK:
        diagonal = 0 if error == TOP_LEFT else kv_len - q_len
        p = p.masked_fill(key > at + diagonal + {DIAGONAL_LOST: -1, ONE_TOO_FAR: 1}.get(error, 0), 0.0)
    if error == LAST_KEY_LOST:
        p[..., -1] = 0.0
    if error == LAST_QUERY_LOST:
        p[:, -1] = 0.0
    if error in (TILE_DROPPED, TILE_DOUBLED):
        p = p * _times(key, kv_tile, _TIMES[error])
    if error in (QUERIES_DROPPED, QUERIES_DOUBLED):
        p = p * _times(at, q_tile, _TIMES[error])
    delta = (dout * out).sum(dim=-1, keepdim=True)
    if error == NEIGHBOURS_DELTA:
        delta = delta.roll(1, dims=1)
    delta = delta * {NO_DELTA: 0.0, SIGN_OF_DELTA: -1.0}.get(error, 1.0)
    ds = p * (dout @ v.T - delta)
    factor = 0.0 if error == ZEROS else 1.0
    of_scores = factor * (1.0 if error == NO_SCALE else scale * _SCALES.get(error, 1.0))
    first = group - 1 if error == GROUP_OVERWRITTEN else 0
    dk = of_scores * (ds.mT @ q)[first:].sum(dim=0)
    dv = factor * (p.mT @ dout)[first:].sum(dim=0)
    return of_scores * (ds[0] @ k), dk, dv


def _times(at: torch.Tensor, tile: int, times: float) -> torch.Tensor:
    """``times`` where ``at`` lies in the middle tile, 1 elsewhere."""
    return torch.where(at // tile == _middle(at.numel(), tile), times, 1.0)


def _middle(length: int, tile: int) -> int:
    return (length - 1) // tile // 2
