"""Two-pass attention in float64, and the bound on what a kernel's rounding can do to each element.

Notation: u is the unit roundoff of fp32, c(n) = min(n, 4 sqrt(n)) (``tuner.numerics.sum_terms``), T the number of
tiles, s = scale q k^T on the visible pairs, A = scale |q| |k|^T, m the row's maximum, l = sum exp(s - m), P = exp(s -
m) / l, O = P V, W = P |V|. All to first order, each element on its own:

* logit: ds = 2 c(D) u A (D products summed in fp32; the factor 2 allows tensor cores that truncate) + 4 u |s| (scale,
  log2(e), product, mask) + dot_u A (tf32 operands, which may be truncated) + u_in A (q scaled and rounded back:
  ``prescaled``).
* weight, relative: E = ds + 3 u |s - m| + eps (the subtraction; in base e the two roundings inside ``exp`` as well;
  eps is the error of ex2.approx). Shifting by m is safe and what rounding does to m cancels (Blanchard, Higham and
  Higham, IMA J. Numer. Anal. 41, 2021).
* rescaling: R = T (eps + 3 u), one exponential and its roundings for each rise of the running maximum (Milakov and
  Gimelshein, arXiv 1805.02867).
* row sum, relative: Ebar = sum P E, plus c(N) u + R (Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
* out: (P E) |V| + |O| Ebar + W (pv_u + 2 (c(N) u + R)) + |O| (2 (c(N) u + R) + 4 u) + eta_p / l sum |V| over visible
  keys, then one rounding to the output's format: u_out (|O| + that) + eta_out. pv_u is the rounding of P to its
  format, or of both operands to tf32; eta_p is what rounding P can lose of a weight below its normal range. The right
  scale is W, not |O|: where V cancels W is much larger, where V has one sign they are equal.
* lse: Ebar + c(N) u + R + 2 eps_lg2 + 2 u (|m| + |log l|) + u |lse| + eta, plus u_p where the row sum is of rounded
  weights.
* variance of out, if roundings are independent and uniform (u^2 / 3 each), for the root-mean-square check:
  pv_u^2/3 P^2 V^2 + (P E)^2 V^2 + u_out^2/3 O^2 + (3 u W)^2 + eta_out^2.

A query that sees no key is exact: 0 and -inf.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tuner.numerics import EPS_EX2, FORMATS, sum_terms
from tuner.operators.reference import BLOCK_ELEMENTS, OutputReference, Reference
from tuner.precision import PrecisionProfile

# All rows are compared up to this many query-key pairs, a selection beyond.
_WHOLE = 2**23
_HEADS_SELECTED = 4
_TILE_ROWS, _RANDOM_ROWS = 128, 64
# The rms check is of means; below this many keys there are too few roundings to average (and the bound is tight).
_RMS_KEYS = 256
_U = FORMATS["fp32"].u
_EPS_LG2 = 2.0**-22  # lg2.approx (PTX ISA)
_TF32 = FORMATS["tf32"].u


@dataclass(frozen=True)
class _Parts:
    """Rows of one head: out and its bound and variance [rows, head_dim], lse and its bound [rows]."""

    out: torch.Tensor
    out_bound: torch.Tensor
    variance: torch.Tensor
    lse: torch.Tensor
    lse_bound: torch.Tensor


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool, profile: PrecisionProfile
) -> Reference:
    """Attention of q [batch, heads, q_len, head_dim] over k, v [batch, kv_heads, kv_len, head_dim], with its bounds.

    Large problems are computed on a few batch-heads (the first and the last among them) and there on the rows of the
    first, a middle and the last query tile and on 64 random rows.
    """
    batch, heads, q_len, _ = q.shape
    kv_len, group = k.shape[2], heads // k.shape[1]
    whole = batch * heads * q_len * kv_len <= _WHOLE
    pairs = [(b, h) for b in range(batch) for h in range(heads)] if whole else _heads(batch, heads)
    rows = torch.arange(q_len) if whole else _rows(q_len)
    rows = rows.to(q.device)
    done = []
    for b, h in pairs:
        keys, values = k[b, h // group].double(), v[b, h // group].double()
        blocks = torch.split(rows, max(1, BLOCK_ELEMENTS // kv_len))
        parts = [_block(q[b, h][r].double(), keys, values, r, q_len, scale, causal, profile) for r in blocks]
        done.append(_join(parts, torch.cat))
    parts_of_all = _join(done, torch.stack)
    index: tuple[torch.Tensor, ...] | None = None
    if whole:
        parts_of_all = _Parts(*(t.unflatten(0, (batch, heads)) for t in vars(parts_of_all).values()))
    else:
        where = torch.tensor(pairs, device=q.device)
        index = (where[:, :1], where[:, 1:], rows[None, :])
    variance = parts_of_all.variance if kv_len >= _RMS_KEYS else None
    return Reference(
        {
            "out": OutputReference(parts_of_all.out, parts_of_all.out_bound, variance, index),
            "lse": OutputReference(parts_of_all.lse, parts_of_all.lse_bound, None, index),
        }
    )


def _join(parts: list[_Parts], how: object) -> _Parts:
    assert callable(how)
    columns = zip(*(vars(p).values() for p in parts), strict=True)
    return _Parts(*(how(list(column)) for column in columns))


def _heads(batch: int, heads: int) -> list[tuple[int, int]]:
    """At most four (batch, head) pairs: the first, the last, and two between them."""
    count = min(batch * heads, _HEADS_SELECTED)
    flat = sorted({i * (batch * heads - 1) // max(1, count - 1) for i in range(count)})
    return [divmod(i, heads) for i in flat]


def _rows(q_len: int) -> torch.Tensor:
    """Rows of the first, a middle and the last tile, and random ones (the same for every problem of this length)."""
    last = (q_len - 1) // _TILE_ROWS * _TILE_ROWS
    middle = q_len // 2 // _TILE_ROWS * _TILE_ROWS
    chosen: set[int] = set()
    for start in (0, middle, last, max(0, q_len - _TILE_ROWS)):
        chosen.update(range(start, min(start + _TILE_ROWS, q_len)))
    generator = torch.Generator("cpu").manual_seed(q_len)
    chosen.update(torch.randint(q_len, (_RANDOM_ROWS,), generator=generator).tolist())
    return torch.tensor(sorted(chosen))


def _dot_roundoff(profile: PrecisionProfile) -> float:
    """What the dot mode adds per product, relative: both operands to tf32, or what three tf32 products leave out."""
    return {"ieee": 0.0, "16bit": 0.0, "tf32": 2 * _TF32, "tf32x3": 3 * _TF32**2}[profile.dot]


def _block(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rows: torch.Tensor,
    q_len: int,
    scale: float,
    causal: bool,
    profile: PrecisionProfile,
) -> _Parts:
    """Rows ``rows`` of one head, float64. q [rows, head_dim] holds those rows alone; k, v [kv_len, head_dim]."""
    kv_len, head_dim = k.shape
    out_format, p_format = FORMATS[profile.output], FORMATS[profile.p]
    dot_u = _dot_roundoff(profile)
    p_u = p_format.u if profile.p in ("fp16", "bf16") else 0.0
    pv_u = max(dot_u, p_u)
    abs_v = v.abs()

    s = scale * (q @ k.T)
    magnitude = scale * (q.abs() @ k.abs().T)
    if causal:
        last = rows[:, None] + (kv_len - q_len)
        visible = torch.arange(kv_len, device=q.device)[None, :] <= last
        s = s.masked_fill(~visible, float("-inf"))
    else:
        visible = None
    m = s.amax(dim=1, keepdim=True)
    dead = torch.isneginf(m)
    m = m.masked_fill(dead, 0.0)
    weights = (s - m).exp()
    total = weights.sum(dim=1, keepdim=True).masked_fill(dead, 1.0)
    p = weights / total
    lse = m + total.log()

    size = s.abs() if visible is None else s.abs().masked_fill(~visible, 0.0)
    spread = (s - m).abs() if visible is None else (s - m).abs().masked_fill(~visible, 0.0)
    q_u = FORMATS[profile.input].u if profile.prescaled else 0.0
    e = (2 * sum_terms(head_dim) * _U + dot_u + q_u) * magnitude + 4 * _U * size + 3 * _U * spread + EPS_EX2
    pe = p * e
    e_bar = pe.sum(dim=1, keepdim=True)
    rescales = profile.tiles * (EPS_EX2 + 3 * _U)
    sum_error = sum_terms(kv_len) * _U + rescales
    l_u = p_u if profile.l_from_rounded_p else 0.0

    out = p @ v
    w = p @ abs_v
    error = pe @ abs_v + out.abs() * (e_bar + l_u) + w * (pv_u + 2 * sum_error) + out.abs() * (2 * sum_error + 4 * _U)
    if p_u:
        seen = abs_v.sum(dim=0, keepdim=True) if visible is None else visible.double() @ abs_v
        error = error + p_format.eta / total * seen
    out_bound = error + out_format.u * (out.abs() + error) + out_format.eta
    variance = pv_u**2 / 3 * (p**2 @ v**2) + pe**2 @ v**2
    variance = variance + (out_format.u * out) ** 2 / 3 + (3 * _U * w) ** 2 + out_format.eta**2
    lse_bound = e_bar + l_u + sum_error + 2 * _EPS_LG2 + 2 * _U * (m.abs() + total.log().abs()) + _U * lse.abs()
    lse_bound = lse_bound + FORMATS["fp32"].eta
    lse = lse.masked_fill(dead, float("-inf"))
    # A dead row has no rounding in it: nothing but the convention's own values will do.
    out_bound = out_bound.masked_fill(dead, 0.0)
    lse_bound = lse_bound.masked_fill(dead, 0.0)
    return _Parts(out, out_bound, variance, lse[:, 0], lse_bound[:, 0])
