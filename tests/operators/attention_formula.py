"""Attention by its formula in float64, on the whole matrix, written without a part of the project: what tests compare
the references with."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def attention(
    inputs: Mapping[str, torch.Tensor],
    scale: float,
    *,
    left: int | None = None,
    right: int | None = None,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Out [batch, heads, q_len, head_dim] and log-sum-exp [batch, heads, q_len] of q, k and v.

    ``left``, ``right``: how many keys before and after its own place, aligned at the bottom right, a query sees.
    ``softcap``: the logits are softcap tanh(scale q k^T / softcap). ``inputs`` may have ``sinks`` and
    ``slopes`` [heads], and ``bias`` [batch or 1, heads or 1, q_len, kv_len].
    """
    q, k, v = (inputs[name].double() for name in ("q", "k", "v"))
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    s = scale * (q @ k.transpose(2, 3))
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    distance = torch.arange(k.shape[2])[None, :] - (torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2])
    if "slopes" in inputs:
        s = s - inputs["slopes"].double()[:, None, None] * distance.abs()
    if "bias" in inputs:
        s = s + inputs["bias"].double()
    if left is not None:
        s = s.masked_fill(distance < -left, -torch.inf)
    if right is not None:
        s = s.masked_fill(distance > right, -torch.inf)
    if "sinks" in inputs:  # a key more, with a value of 0
        s = torch.cat([s, inputs["sinks"].double()[:, None, None].expand(*s.shape[:2], s.shape[2], 1)], -1)
        v = torch.cat([v, torch.zeros_like(v[:, :, :1])], 2)
    # Of a logit of +inf torch makes a log-sum-exp of +inf; here it is NaN, as the row is.
    lse = torch.logsumexp(s, -1).masked_fill(s.isposinf().any(-1), torch.nan)
    weights = torch.softmax(s, -1).masked_fill(torch.isneginf(s.amax(-1, keepdim=True)), 0.0)
    return weights @ v, lse
