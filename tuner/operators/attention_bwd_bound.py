"""The gradients of attention in float64, and the bound on what a kernel's rounding can do to each element of them.

All inputs count as they are given, out and lse with the rounding that the forward pass left in them: P = exp(s - lse)
is recomputed from them, as kernels do (Dao, Fu, Ermon, Rudra and Re, arXiv 2205.14135). Notation: as in
``attention_bound``, and delta = rowsum(dout out), dP = dout V^T, dS = P (dP - delta), so that dV = P^T dout,
dQ = scale dS K, dK = scale dS^T Q, the last two summed over the group's heads as dV is. To first order, each element on
its own:

* exponent: d = 2 c(D) u_a A (D products summed; the factor 2 allows tensor cores that truncate; Blanchard, Higham,
  Lopez, Mary and Pranesh, SIAM J. Sci. Comput. 42, 2020) + dot_u A (tf32 operands, which may be truncated) + u_in A
  (``prescaled``) + 4 u |s| (scale, log2(e), product, mask) + 2 u |lse| (log2(e) and the product with it) + 3 u
  |s - lse| (the difference; in base e the two roundings inside ``exp`` as well).
* weight, relative: E = exp(d) - 1 + eps; eps is the error of the declared exponential (PTX ISA). No row sum takes back
  what d does to a whole row, and logits of millions make d more than 1, so that it is not taken to first order.
* P as an operand: P E + (P + P E) p_u + eta_p; p_u is its rounding, or that of both operands to tf32; eta_p what the
  rounding loses of a weight below the normal range (IEEE 754-2019; flushed in fp32, PTX ISA).
* dV: the operand's error times |dout|, + 2 c(M) u_a (P + P E)^T |dout| for M queries in the group (Higham and Mary,
  SIAM J. Sci. Comput. 41, 2019).
* dP: 2 c(D) u_a |dout| |V|^T + dot_u |dout| |V|^T, and 2 c(D) u_a |delta| where delta is taken off within the product.
* delta: (c(D) + 2) u_a rowsum(|dout| |out|): D products, rounded where they are of fp32, and summed.
* dS: P E |dP - delta| + (P + P E) (1 + 2 u) (the errors of dP and delta) + 2 u (P + P E) |dP - delta| (the difference,
  the product) + eta |dP - delta| (a weight that is flushed). As an operand: that, + (|dS| + that) p_u + eta_p.
* dQ: scale (the operand's error |K| + 2 c(N) u_a (|dS| + its error) |K|) + 2 u |dQ| (scale, the product with it). dK:
  the same with |Q| and M in the place of |K| and N.
* output: u_out (what it is + all that) + eta_out (IEEE 754-2019).
* variance, if roundings are independent and uniform (u^2 / 3 each), for the root-mean-square check: of dV p_u^2/3 P^2
  dout^2 + (P E)^2 dout^2, of dQ scale^2 (p_u^2/3 dS^2 K^2 + (error of dS)^2 K^2), but the error of delta, which is the
  same for a whole row, summed as it is; and for each (3 u W)^2, W being its sum of magnitudes (c(N) u_a for 3 u where
  the accumulators are not fp32), u_out^2/3 of the square, and eta_out^2.

A query that sees no key is exact: its dQ is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tuner.numerics import EXPONENTIALS, FORMATS, sum_terms
from tuner.operators.attention_bound import batches, dot_roundoff, everything, selection
from tuner.operators.reference import OutputReference, Reference
from tuner.precision import PrecisionProfile

# All rows are compared up to this many query-key pairs, a selection beyond.
_WHOLE = 2**23
# The rms check is of means; below this many terms of a sum there are too few roundings to average.
_RMS_TERMS = 256
# Beyond it the bound holds nothing any more: exp of it must be finite, and so must what it is multiplied with.
_MOST_EXPONENT_ERROR = 60.0
_U = FORMATS["fp32"].u
_FLUSHED = FORMATS["fp32"].eta


@dataclass(frozen=True)
class _Rows:
    """Some queries of n heads, float64: q, dout [n, rows, head_dim]; lse, delta, and how far a kernel's may be from
    it [n, rows, 1]."""

    q: torch.Tensor
    dout: torch.Tensor
    lse: torch.Tensor
    delta: torch.Tensor
    delta_error: torch.Tensor


@dataclass(frozen=True)
class _Pairs:
    """Weights P, dS, and the errors of both before they are rounded [n, rows, keys]; ``delta_share``: what of the error
    of dS is the same for a whole row; ``p_operand``, ``ds_operand``: the errors as operands of the next product."""

    p: torch.Tensor
    p_error: torch.Tensor
    p_operand: torch.Tensor
    ds: torch.Tensor
    ds_error: torch.Tensor
    ds_operand: torch.Tensor
    delta_share: torch.Tensor


def reference(inputs: Mapping[str, torch.Tensor], scale: float, causal: bool, profile: PrecisionProfile) -> Reference:
    """dq, dk and dv with their bounds.

    ``inputs``: q, out, dout [batch, heads, q_len, head_dim], k, v [batch, kv_heads, kv_len, head_dim], lse [batch,
    heads, q_len], finite but for the lse of queries that see no key. Of large problems a selection of the queries (for
    dq) and of the keys (for dk and dv) is computed, as for the forward pass.
    """
    q, k = inputs["q"], inputs["k"]
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1:3]
    group = heads // kv_heads
    whole = batch * heads * q_len * kv_len <= _WHOLE
    choose = everything if whole else selection

    done, places = [], []
    for pairs, rows in batches(choose(batch, heads, q_len), kv_len, head_dim):
        b, h, on = pairs[:, 0].to(q.device), pairs[:, 1].to(q.device), rows.to(q.device)
        picked = _rows({n: inputs[n][b[:, None], h[:, None], on] for n in ("q", "dout", "out", "lse")}, profile)
        keys, values = inputs["k"][b, h // group].double(), inputs["v"][b, h // group].double()
        seen = torch.arange(kv_len, device=q.device) <= on[..., None] + (kv_len - q_len) if causal else None
        done.append(_of_queries(_pairs(picked, keys, values, seen, scale, profile), picked, keys, scale, profile))
        places.append(torch.stack([*pairs.T.unsqueeze(2).expand(2, *rows.shape), rows]).flatten(1))
    dq = _joined(done, places, (batch, heads, q_len) if whole else None, kv_len)

    grouped = {n: inputs[n].reshape(batch, kv_heads, group, *inputs[n].shape[2:]) for n in ("q", "dout", "out", "lse")}
    of_k, of_v, places = [], [], []
    for pairs, chosen in batches(choose(batch, kv_heads, kv_len), q_len * group, head_dim):
        b, h, on = pairs[:, 0].to(q.device), pairs[:, 1].to(q.device), chosen.to(q.device)
        picked = _rows({n: t[b, h].flatten(1, 2) for n, t in grouped.items()}, profile)
        keys, values = (
            inputs["k"][b[:, None], h[:, None], on].double(),
            inputs["v"][b[:, None], h[:, None], on].double(),
        )
        last = torch.arange(q_len, device=q.device).repeat(group) + (kv_len - q_len)
        seen = on[:, None, :] <= last[:, None] if causal else None
        taken = _pairs(picked, keys, values, seen, scale, profile)
        of_k.append(_of_keys(taken, picked, scale, profile))
        of_v.append(_of_values(taken, picked, profile))
        places.append(torch.stack([*pairs.T.unsqueeze(2).expand(2, *chosen.shape), chosen]).flatten(1))
    shape = (batch, kv_heads, kv_len) if whole else None
    dk, dv = (_joined(parts, places, shape, q_len * group) for parts in (of_k, of_v))
    return Reference({"dq": dq, "dk": dk, "dv": dv})


_Part = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _joined(
    parts: list[_Part], places: list[torch.Tensor], shape: tuple[int, int, int] | None, terms: int
) -> OutputReference:
    """Expected values, bounds and variances [n, rows, head_dim] of batches as one output: in their order with
    ``shape``, else as a selection."""
    expected, bound, variance = (torch.cat([t.flatten(0, 1) for t in column]) for column in zip(*parts, strict=True))
    place = torch.cat(places, dim=1).to(expected.device)
    index: tuple[torch.Tensor, ...] | None = (place[0], place[1], place[2])
    if shape is not None:
        order = torch.argsort((place[0] * shape[1] + place[1]) * shape[2] + place[2])
        expected, bound, variance = (t[order].reshape(*shape, -1) for t in (expected, bound, variance))
        index = None
    return OutputReference(expected, bound, variance if terms >= _RMS_TERMS else None, index)


def _rows(picked: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> _Rows:
    q, dout, out, lse = (picked[name].double() for name in ("q", "dout", "out", "lse"))
    delta = (dout * out).sum(dim=-1, keepdim=True)
    size = (dout * out).abs().sum(dim=-1, keepdim=True)
    error = (sum_terms(q.shape[-1]) + 2) * FORMATS[profile.accumulator].u * size
    return _Rows(q, dout, lse.unsqueeze(-1), delta, error)


def _pairs(
    rows: _Rows,
    k: torch.Tensor,
    v: torch.Tensor,
    seen: torch.Tensor | None,
    scale: float,
    profile: PrecisionProfile,
) -> _Pairs:
    """``rows`` against k, v [n, keys, head_dim]; ``seen`` [n or 1, rows, keys]: what a causal mask leaves."""
    u_a, eps = FORMATS[profile.accumulator].u, EXPONENTIALS[profile.exponential]
    dot_u, operand_u, operand_eta = dot_roundoff(profile.dot), _operand_u(profile), FORMATS[profile.p].eta
    products = 2 * sum_terms(k.shape[-1]) * u_a
    q_u = FORMATS[profile.input].u if profile.prescaled else 0.0

    def hidden(t: torch.Tensor) -> torch.Tensor:
        return t if seen is None else t.masked_fill(~seen, 0.0)

    s = scale * (rows.q @ k.mT)
    magnitude = scale * (rows.q.abs() @ k.abs().mT)
    p = hidden((s - rows.lse).exp())
    lse = rows.lse.masked_fill(rows.lse.isneginf(), 0.0)
    exponent = (products + dot_u + q_u) * magnitude + 4 * _U * s.abs() + 2 * _U * lse.abs() + 3 * _U * (s - lse).abs()
    p_error = p * (torch.expm1(exponent.clamp(max=_MOST_EXPONENT_ERROR)) + eps)
    p_most = p + p_error
    rest = rows.dout @ v.mT - rows.delta
    size = rest.abs()
    dp_error = (products + dot_u) * (rows.dout.abs() @ v.abs().mT) + products * rows.delta.abs()
    share = p_most * rows.delta_error
    ds = p * rest
    ds_error = p_error * size + (1 + 2 * _U) * (p_most * dp_error + share) + 2 * _U * p_most * size
    ds_error = ds_error + hidden(_FLUSHED * size)
    return _Pairs(
        p,
        p_error,
        p_error + p_most * operand_u + hidden(torch.full_like(p, operand_eta)),
        ds,
        ds_error,
        ds_error + (ds.abs() + ds_error) * operand_u + hidden(torch.full_like(p, operand_eta)),
        share,
    )


def _operand_u(profile: PrecisionProfile) -> float:
    """What P and dS lose where they enter a product, with what the other operand loses there."""
    return max(dot_roundoff(profile.pv_dot or profile.dot), FORMATS[profile.p].u if profile.p != "fp32" else 0.0)


def _of_queries(pairs: _Pairs, rows: _Rows, k: torch.Tensor, scale: float, profile: PrecisionProfile) -> _Part:
    abs_k = k.abs()
    most = scale * ((pairs.ds.abs() + pairs.ds_error) @ abs_k)
    dq = scale * (pairs.ds @ k)
    error = scale * (pairs.ds_operand @ abs_k)
    own = pairs.ds_error - pairs.delta_share
    variance = scale**2 * ((_operand_u(profile) ** 2 / 3 * pairs.ds**2 + own**2) @ k**2)
    variance = variance + (scale * (pairs.delta_share @ abs_k)) ** 2
    expected, bound, variance = _rounded(dq, error, most, variance, k.shape[1], profile)
    # A query that sees no key has no rounding in it: nothing but 0 will do.
    return expected, bound.masked_fill(rows.lse.isneginf(), 0.0), variance


def _of_keys(pairs: _Pairs, rows: _Rows, scale: float, profile: PrecisionProfile) -> _Part:
    abs_q = rows.q.abs()
    most = scale * ((pairs.ds.abs() + pairs.ds_error).mT @ abs_q)
    dk = scale * (pairs.ds.mT @ rows.q)
    error = scale * (pairs.ds_operand.mT @ abs_q)
    variance = scale**2 * ((_operand_u(profile) ** 2 / 3 * pairs.ds**2 + pairs.ds_error**2).mT @ rows.q**2)
    return _rounded(dk, error, most, variance, rows.q.shape[1], profile)


def _of_values(pairs: _Pairs, rows: _Rows, profile: PrecisionProfile) -> _Part:
    abs_dout = rows.dout.abs()
    most = (pairs.p + pairs.p_error).mT @ abs_dout
    dv = pairs.p.mT @ rows.dout
    variance = (_operand_u(profile) ** 2 / 3 * pairs.p**2 + pairs.p_error**2).mT @ rows.dout**2
    return _rounded(dv, pairs.p_operand.mT @ abs_dout, most, variance, rows.q.shape[1], profile)


def _rounded(
    gradient: torch.Tensor,
    error: torch.Tensor,
    most: torch.Tensor,
    variance: torch.Tensor,
    terms: int,
    profile: PrecisionProfile,
) -> _Part:
    """A gradient, its bound and variance, with what summing ``terms`` products and rounding the result add.

    ``error``: of the operands; ``most``: the sum of the products' magnitudes.
    """
    out, u_a = FORMATS[profile.output], FORMATS[profile.accumulator].u
    error = error + 2 * sum_terms(terms) * u_a * most + 2 * _U * gradient.abs()
    sums_u = 3 * _U if profile.accumulator == "fp32" else sum_terms(terms) * u_a
    variance = variance + (sums_u * most) ** 2 + (out.u * gradient) ** 2 / 3 + out.eta**2
    return gradient, error + out.u * (gradient.abs() + error) + out.eta, variance
