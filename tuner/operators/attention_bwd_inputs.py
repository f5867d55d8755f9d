"""Input families of the backward pass: those of the forward pass that bear on it, with an output and a log-sum-exp that
belong to them, and gradients dout.

============= ======================================================================================================
sparse_dout   standard normal, but dout is 0 for all queries but every 29th, counted from the last, where it is 32 times
              as large: few queries decide dk and dv
others        q, k and v of the family of that name in ``attention_inputs``; dout standard normal
============= ======================================================================================================
"""

from __future__ import annotations

import torch

from tuner.operators import attention_inputs
from tuner.operators.attention_bound import batches, everything
from tuner.operators.tensors import seed_of, standard_normal
from tuner.problem import Problem

SPARSE = "sparse_dout"
_SPARSE_STEP, _SPARSE_SIZE = 29, 32.0


def normal(problem: Problem, seed: int, device: str, scale: float) -> dict[str, torch.Tensor]:
    """Standard normal q, k, v and dout, with the output and log-sum-exp that belong to them; contiguous."""
    return _completed(problem, attention_inputs.normal(problem, seed, device), seed, scale)


def make(problem: Problem, family: str, seed: int, device: str, scale: float) -> dict[str, torch.Tensor]:
    """The inputs of one family. Raises ``ProblemError`` on an unknown family."""
    drawn = attention_inputs.make(problem, "randn" if family == SPARSE else family, seed, device, scale)
    inputs = _completed(problem, drawn, seed_of(family, seed), scale)
    if family == SPARSE:
        from_last = torch.arange(problem.sizes["q_len"] - 1, -1, -1, device=device)
        inputs["dout"].mul_(_SPARSE_SIZE * (from_last % _SPARSE_STEP == 0)[:, None])
    return inputs


def _completed(problem: Problem, drawn: dict[str, torch.Tensor], seed: int, scale: float) -> dict[str, torch.Tensor]:
    q, k, v = drawn["q"], drawn["k"], drawn["v"]
    device = str(q.device)
    dout = standard_normal(tuple(q.shape), problem.dtype, seed_of("dout", seed), device)
    if device == "meta":  # a layout without values
        out, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=device)
    else:
        out, lse = forward(q, k, v, scale, bool(problem.settings["causal"]))
    return {"q": q, "k": k, "v": v, "out": out, "lse": lse, "dout": dout}


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of q [batch, heads, q_len, head_dim] over k, v [batch, kv_heads, kv_len, head_dim], in float64.

    By blocks. Returns out, rounded to q's format, and the log-sum-exp [batch, heads, q_len] in fp32; 0 and
    -inf where a query sees no key.
    """
    batch, heads, q_len, head_dim = q.shape
    kv_len, group = k.shape[2], heads // k.shape[1]
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    for pairs, rows in batches(everything(batch, heads, q_len), kv_len, head_dim):
        b, h, on = pairs[:, :1].to(q.device), pairs[:, 1:].to(q.device), rows.to(q.device)
        keys, values = (t[b[:, 0], h[:, 0] // group].double() for t in (k, v))
        s = scale * (q[b, h, on].double() @ keys.mT)
        if causal:
            s = s.masked_fill(torch.arange(kv_len, device=q.device) > on[..., None] + (kv_len - q_len), -torch.inf)
        sums = torch.logsumexp(s, dim=-1)
        weights = (s - sums.masked_fill(sums.isneginf(), 0.0)[..., None]).exp()
        out[b, h, on] = (weights @ values).to(out.dtype)
        lse[b, h, on] = sums.float()
    return out, lse
