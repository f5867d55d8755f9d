"""The online recurrence in float64, right or with one classical error in it.

For each tile of logits x: m_new = max(m, max x), alpha = exp(m - m_new), p = exp(x - m_new), l = l alpha + sum p, acc =
acc alpha + p v (Milakov and Gimelshein, arXiv 1805.02867). alpha has the range of fp32, so that it overflows where a
kernel's would.
"""

from __future__ import annotations

import math

import torch

ACC_NOT_RESCALED = "acc not rescaled"
L_NOT_RESCALED = "l not rescaled"
TILE_DROPPED = "a tile dropped"
TILE_DOUBLED = "a tile doubled"
MAXIMUM_NOT_CARRIED = "block maximum not carried"
ALPHA_IN_BASE_2 = "alpha in base 2"
WRONG_BASE = "weights in base 2"
OF_TILES = (L_NOT_RESCALED, TILE_DROPPED, TILE_DOUBLED, MAXIMUM_NOT_CARRIED, ALPHA_IN_BASE_2)
"""What can only go wrong where there are several tiles (for attention ``ACC_NOT_RESCALED`` as well)."""

_FP32_MOST, _FP32_LEAST = 3.4e38, 2.0**-126
_LN2 = math.log(2.0)


def online(
    logits: torch.Tensor, values: torch.Tensor | None, tile: int, error: str = "", kept: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """m, l [rows, 1] and acc [rows, head_dim] (None without ``values``) of logits [rows, n] and values [n, head_dim].

    All float64. ``kept`` [rows, n]: what a weight is multiplied by in acc alone. ``error``: one of this module's names;
    empty (or a name it does not know) for the right ones. The tile that is dropped or doubled is the middle one.
    """
    rows, n = logits.shape
    m = torch.full((rows, 1), -math.inf, dtype=torch.float64, device=logits.device)
    l = torch.zeros_like(m)  # noqa: E741
    acc = None if values is None else values.new_zeros((rows, values.shape[1]))
    starts = list(range(0, n, tile))
    middle = starts[len(starts) // 2]
    times = {TILE_DROPPED: 0, TILE_DOUBLED: 2}.get(error, 1)
    for start in starts:
        for _ in range(times if start == middle else 1):
            x = logits[:, start : start + tile]
            m_new = x.amax(dim=1, keepdim=True)
            if error != MAXIMUM_NOT_CARRIED:
                m_new = torch.maximum(m, m_new)
            safe = m_new.masked_fill(m_new.isneginf(), 0.0)
            p = ((x - safe) * (_LN2 if error == WRONG_BASE else 1.0)).exp()
            alpha = _fp32(((m - safe) * (_LN2 if error in (WRONG_BASE, ALPHA_IN_BASE_2) else 1.0)).exp())
            l = (l if error == L_NOT_RESCALED else l * alpha) + p.sum(dim=1, keepdim=True)  # noqa: E741
            if acc is not None and values is not None:
                met = p if kept is None else p * kept[:, start : start + tile]
                acc = (acc if error == ACC_NOT_RESCALED else acc * alpha) + met @ values[start : start + tile]
            m = m_new
    return m, l, acc


def _fp32(x: torch.Tensor) -> torch.Tensor:
    """``x`` at least 0, infinite or 0 where fp32 would be."""
    x = torch.where(x > _FP32_MOST, math.inf, x)
    return torch.where(x < _FP32_LEAST, 0.0, x)
