"""Two-pass attention in float64, and the bound on what a kernel's rounding can do to each element.

Notation: u is the unit roundoff of fp32, u_a that of the accumulators (fp32 where nothing else is declared), c(n) =
min(n, 4 sqrt(n)) (``tuner.numerics.sum_terms``), T the number of tiles, s = scale q k^T on the visible pairs, A = scale
|q| |k|^T, m the row's maximum, l = sum exp(s - m), P = exp(s - m) / l, O = P V, W = P |V|. All to first order, each
element on its own:

* logit: ds = 2 c(D) u_a A (D products summed; the factor 2 allows tensor cores that truncate; of fp8 operands they keep
  14 bits, and n products that are not 0 can lose 2 n 2^-14 A, one alone nothing: ``tuner.numerics.product_sums``) + 4 u
  |s| (scale, log2(e), product, mask; 6 u where q and k have scales, two products more) + dot_u A (tf32 operands, which
  may be truncated) + u_in A (q scaled and rounded back: ``prescaled``).
  What a feature does to a logit and its error: ``attention_logits``.
* weight, relative: E = ds + 3 u |s - m| + eps (the subtraction; in base e the two roundings inside ``exp`` as well;
  eps is the error of the declared exponential, ex2.approx). Shifting by m is safe and what rounding does to m cancels
  (Blanchard, Higham and Higham, IMA J. Numer. Anal. 41, 2021).
* rescaling: R = T (eps + 3 u_a), one exponential and its roundings for each rise of the running maximum (Milakov and
  Gimelshein, arXiv 1805.02867).
* row sum, relative: Ebar = sum P E, plus S = c(N) u_a + R (Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
* out: (P E) |V| + |O| Ebar + W (pv_u + 2 S) + |O| (2 S + 4 u) + eta_p / l sum |V| over visible keys, then one rounding
  to the output's format: u_out (|O| + that) + eta_out. pv_u is the rounding of P to its format, or of both operands to
  tf32; eta_p is what rounding P can lose of a weight below its normal range, over ``p_scale`` where weights are
  multiplied by that first (static scaling of P in fp8, arXiv 2606.06521; with 2^8 and weights of at most 1, the running
  maximum's, nothing reaches e4m3's 448, where it would saturate). Of fp8 operands, n products (``pv_terms``) are summed
  with 14 bits before they join the accumulator in fp32: W 2 n 2^-14 more, since the W of all such parts add up to
  W. Where v has a scale, u |O| more (its product). The right scale is W, not |O|: where V
  cancels W is much larger, where V has one sign they are equal.
* lse: Ebar + S + 2 eps_lg2 + 2 u (|m| + |log l|) + u |lse| + eta, plus u_p where the row sum is of rounded weights;
  times log2(e) where it is stored in base 2.
* variance of out, if roundings are independent and uniform (u^2 / 3 each), for the root-mean-square check:
  pv_u^2/3 P^2 V^2 + (P E)^2 V^2 + u_out^2/3 O^2 + (3 u W)^2 + eta_out^2 (c(N) u_a for 3 u where the accumulators are
  not fp32, and the term of fp8 products where that is more: truncation has one sign).

* dropout, of weights that are multiplied by f, 0 or 1 / (1 - p), after the row's sum: P f for P in all terms of out but
  Ebar and S, f |V| for |V| in that of eta_p, and 2 u |O| more (1 / (1 - p) as a number of fp32, and its product). The
  log-sum-exp and its terms stay. Which are kept is exact: ``dropout``.

A query that sees no key is exact: 0 and -inf. So is what is not finite: a NaN or +inf among a query's logits makes its
whole row NaN, a logit of -inf takes its key away, and an infinite v makes its column infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from tuner.numerics import EXPONENTIALS, FORMATS, FP8, product_sums, sum_terms
from tuner.operators.attention_features import NONE, Features
from tuner.operators.attention_logits import Terms
from tuner.operators.dropout import kept
from tuner.operators.lse_bound import lse_error, rescaling
from tuner.operators.reference import BLOCK_ELEMENTS, OutputReference, Reference
from tuner.precision import PrecisionProfile

# All rows are compared up to this many query-key pairs, a selection beyond.
_WHOLE = 2**23
_HEADS_SELECTED = 4
_TILE_ROWS, _RANDOM_ROWS = 128, 64
_MOST_HEADS, _FEW_ROWS = 256, 8  # of the batch-heads that are not among those
# The rms check is of means; below this many keys there are too few roundings to average (and the bound is tight).
_RMS_KEYS = 256
_U = FORMATS["fp32"].u
_TF32 = FORMATS["tf32"].u
_LOG2E = math.log2(math.e)


@dataclass(frozen=True)
class _Parts:
    """Some rows: out and its bound and variance [..., rows, head_dim], lse and its bound [..., rows]."""

    out: torch.Tensor
    out_bound: torch.Tensor
    variance: torch.Tensor
    lse: torch.Tensor
    lse_bound: torch.Tensor


@dataclass(frozen=True)
class KeyValues:
    """What the queries of n (batch, head) pairs attend to, of ``kv_len`` keys at most.

    ``taken(batch, head)`` gives k, v float64 [n, kv_len, head_dim] for int64 [n] each; ``last(batch, rows)`` the last
    key that each of ``rows`` [n, rows] sees, in the same shape, or None where every one sees all; ``first`` is likewise
    the first. What ``taken`` gives beyond them must be finite. ``has_nan``: whether an output may be other than finite.
    ``terms(batch, head, rows)``: what is done to the scaled products before they are weights. ``value_dim``: elements
    of a value, where they may be more than a query's.
    """

    kv_len: int
    taken: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    last: Callable[[torch.Tensor, torch.Tensor], torch.Tensor | None]
    has_nan: bool
    first: Callable[[torch.Tensor, torch.Tensor], torch.Tensor | None] = lambda batch, rows: None
    terms: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Terms] = lambda batch, head, rows: Terms()
    value_dim: int = 0


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    causal: bool,
    profile: PrecisionProfile,
    *,
    whole: bool | None = None,
    features: Features = NONE,
    more: Mapping[str, torch.Tensor] | None = None,
) -> Reference:
    """Attention of q [batch, heads, q_len, head_dim] over k [batch, kv_heads, kv_len, head_dim] and v (likewise, of
    its own head_dim), with its bounds.

    ``whole``: whether every row is computed; None: as ``attend`` chooses. ``features``: what it does beside ``causal``,
    and ``more`` the tensors of ``features.tensors``.
    """
    q_len, kv_len, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    more = more or {}

    def taken(batch: torch.Tensor, head: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return k[batch, head // group].double(), v[batch, head // group].double()

    def last(batch: torch.Tensor, rows: torch.Tensor) -> torch.Tensor | None:
        right = 0 if causal else features.right
        return None if right is None else rows + (kv_len - q_len + right)

    def first(batch: torch.Tensor, rows: torch.Tensor) -> torch.Tensor | None:
        return None if features.left is None else rows + (kv_len - q_len - features.left)

    def terms(batch: torch.Tensor, head: torch.Tensor, rows: torch.Tensor) -> Terms:
        added = []
        if features.alibi:
            away = torch.arange(kv_len, device=q.device) - (rows + (kv_len - q_len))[..., None]
            added.append(-more["slopes"][head].double()[:, None, None] * away.abs())
        if "bias" in features.tensors:
            bias = more["bias"]
            of_batch, of_head = batch % bias.shape[0], head % bias.shape[1]  # of an axis of 1 the only one
            added.append(bias[of_batch[:, None], of_head[:, None], rows].double())
        stay = None
        if features.dropout is not None:
            stay = kept(more["dropout_seed"], batch, head, rows, kv_len, features.dropout) / (1.0 - features.dropout)
        sink = more["sinks"][head].double() if features.sinks else None
        return Terms(features.softcap, tuple(added), sink, None if stay is None else stay.double())

    has_nan = not all(bool(torch.isfinite(t).all()) for t in (q, k, v))
    keys = KeyValues(kv_len, taken, last, has_nan, first, terms, v.shape[3])
    return attend(q, keys, scale, profile, whole=whole)


def attend(
    q: torch.Tensor, keys: KeyValues, scale: float, profile: PrecisionProfile, *, whole: bool | None = None
) -> Reference:
    """Attention of q [batch, heads, q_len, head_dim] over ``keys``, with its bounds.

    Large problems (those that are not ``whole``, where that is said) are computed on a selection: a few batch-heads
    (the first and the last among them) on the rows of the first, a middle and the last query tile and on 64 random
    rows, and every other batch-head on a few random rows.
    """
    batch, heads, q_len, _ = q.shape
    kv_len = keys.kv_len
    whole = batch * heads * q_len * kv_len <= _WHOLE if whole is None else whole
    chosen = everything(batch, heads, q_len) if whole else selection(batch, heads, q_len)
    done, places = [], []
    for pairs, rows in batches(chosen, kv_len, max(q.shape[3], keys.value_dim)):
        b, h, on = pairs[:, 0].to(q.device), pairs[:, 1].to(q.device), rows.to(q.device)
        picked = q[b[:, None], h[:, None], on].double()
        part = _block(picked, *keys.taken(b, h), _visible(keys, b, on), keys.terms(b, h, on), scale, profile)
        done.append(_Parts(*(t.flatten(0, 1) for t in vars(part).values())))
        places.append(torch.stack([*pairs.T.unsqueeze(2).expand(2, *rows.shape), rows]).flatten(1))
    joined = _join(done)
    place = torch.cat(places, dim=1).to(q.device)
    index: tuple[torch.Tensor, ...] | None = (place[0], place[1], place[2])
    if whole:
        order = torch.argsort((place[0] * heads + place[1]) * q_len + place[2])
        joined = _Parts(*(t[order].unflatten(0, (batch, heads, q_len)) for t in vars(joined).values()))
        index = None
    variance = joined.variance if kv_len >= _RMS_KEYS else None
    return Reference(
        {
            "out": OutputReference(joined.out, joined.out_bound, variance, index, keys.has_nan),
            "lse": OutputReference(joined.lse, joined.lse_bound, None, index, keys.has_nan),
        }
    )


def _visible(keys: KeyValues, batch: torch.Tensor, rows: torch.Tensor) -> torch.Tensor | None:
    """Which keys each of ``rows`` [n, rows] sees: bool [n, rows, kv_len]; None where every one sees all."""
    key = torch.arange(keys.kv_len, device=rows.device)
    first, last = keys.first(batch, rows), keys.last(batch, rows)
    if first is None:
        return None if last is None else key <= last[..., None]
    visible = key >= first[..., None]
    return visible if last is None else visible & (key <= last[..., None])


def _join(parts: list[_Parts]) -> _Parts:
    columns = zip(*(vars(p).values() for p in parts), strict=True)
    return _Parts(*(torch.cat(list(column)) for column in columns))


def everything(batch: int, heads: int, q_len: int) -> dict[tuple[int, int], torch.Tensor]:
    rows = torch.arange(q_len)
    return {(b, h): rows for b in range(batch) for h in range(heads)}


def selection(batch: int, heads: int, q_len: int) -> dict[tuple[int, int], torch.Tensor]:
    """The rows that are computed, by (batch, head): the same for every problem of this shape."""
    chosen = {pair: _rows(q_len) for pair in _spread(batch, heads, _HEADS_SELECTED)}
    generator = torch.Generator("cpu").manual_seed(q_len)
    for pair in _spread(batch, heads, _MOST_HEADS):
        few = torch.randperm(q_len, generator=generator)[:_FEW_ROWS]
        chosen.setdefault(pair, few.sort().values)
    return chosen


def batches(
    chosen: Mapping[tuple[int, int], torch.Tensor], kv_len: int, head_dim: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What can be computed at once: (batch, head) pairs [n, 2] and as many rows of each [n, rows].

    A call per head would launch thousands of small kernels for one check. No float64 tensor of a batch has more than
    ``BLOCK_ELEMENTS`` elements, unless one row or one head's keys do.
    """
    by_count: dict[int, list[tuple[int, int]]] = {}
    for pair, rows in chosen.items():
        by_count.setdefault(len(rows), []).append(pair)
    for count, pairs in by_count.items():
        row_step = max(1, min(count, BLOCK_ELEMENTS // kv_len))
        pair_step = max(1, BLOCK_ELEMENTS // (kv_len * max(row_step, head_dim)))
        for first in range(0, len(pairs), pair_step):
            some = pairs[first : first + pair_step]
            for rows in torch.split(torch.stack([chosen[pair] for pair in some]), row_step, dim=1):
                yield torch.tensor(some), rows


def _spread(batch: int, heads: int, most: int) -> list[tuple[int, int]]:
    """At most ``most`` (batch, head) pairs: the first, the last, and others evenly between them."""
    count = min(batch * heads, most)
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


def dot_roundoff(mode: str) -> float:
    """What a dot mode adds per product, relative: both operands to tf32, or what three tf32 products leave out."""
    return {"ieee": 0.0, "16bit": 0.0, "8bit": 0.0, "tf32": 2 * _TF32, "tf32x3": 3 * _TF32**2}[mode]


def _sums(q: torch.Tensor, k: torch.Tensor, profile: PrecisionProfile, u_a: float) -> float | torch.Tensor:
    """What summing the products of q [n, rows, head_dim] and k [n, kv_len, head_dim] can lose, relative to A.

    Products that are 0 lose nothing, and one alone is exact, which matters where few bits are kept.
    """
    if profile.dot != "8bit":
        return product_sums(profile.dot, k.shape[2], u_a)
    products = (q != 0.0).double() @ (k != 0.0).double().mT
    most = product_sums("8bit", k.shape[2], u_a)
    return (products * (most / k.shape[2])).masked_fill(products <= 1.0, product_sums("ieee", 1, u_a))


def _block(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor | None,
    terms: Terms,
    scale: float,
    profile: PrecisionProfile,
) -> _Parts:
    """Some rows of n heads, float64: q [n, rows, head_dim] over k, v [n, kv_len, head_dim].

    ``visible``: which keys each row sees, bool [n, rows, kv_len]; None where every one sees all.
    """
    kv_len = k.shape[1]
    out_format, p_format = FORMATS[profile.output], FORMATS[profile.p]
    dot_u = dot_roundoff(profile.dot)
    u_a, eps = FORMATS[profile.accumulator].u, EXPONENTIALS[profile.exponential]
    p_u = p_format.u if profile.p in ("fp16", "bf16", FP8) else 0.0
    pv_dot = profile.pv_dot or profile.dot
    pv_u = max(dot_roundoff(pv_dot), p_u)
    parts_u = product_sums(pv_dot, profile.pv_terms, u_a) if pv_dot == "8bit" else 0.0
    scales_u = 2 * _U if profile.input == FP8 else 0.0
    abs_v = v.abs()

    s = scale * (q @ k.mT)
    magnitude = scale * (q.abs() @ k.abs().mT)
    q_u = FORMATS[profile.input].u if profile.prescaled else 0.0
    logits = terms.applied(
        s, (_sums(q, k, profile, u_a) + dot_u + q_u) * magnitude + (4 * _U + scales_u) * s.abs(), eps
    )
    s = logits.s
    if visible is not None:
        s = s.masked_fill(~visible, float("-inf"))
    m = s.amax(dim=-1, keepdim=True)
    sink = None if terms.sink is None else terms.sink[:, None, None]
    m = m if sink is None else torch.maximum(m, sink)
    dead = torch.isneginf(m)
    m = m.masked_fill(dead, 0.0)
    weights = (s - m).exp()
    total = weights.sum(dim=-1, keepdim=True)
    of_sink = torch.zeros_like(m) if sink is None else (sink - m).exp()
    total = (total + of_sink).masked_fill(dead, 1.0)
    p = weights / total
    lse = m + total.log()

    gone = torch.isneginf(s)  # masked, or a logit of -inf: no weight and so no error
    e = logits.error + 3 * _U * (s - m).abs() + eps
    pe = (p * e).masked_fill(gone, 0.0)
    e_bar = pe.sum(dim=-1, keepdim=True)
    if sink is not None:
        sink_error = 4 * _U * sink.abs() + 3 * _U * (sink - m).abs() + eps
        e_bar = e_bar + (of_sink / total * sink_error).masked_fill(sink.isneginf(), 0.0)
    sum_error = sum_terms(kv_len + (sink is not None)) * u_a + rescaling(profile)
    l_u = p_u if profile.l_from_rounded_p else 0.0

    if terms.kept is not None:
        p, pe = p * terms.kept, pe * terms.kept
    out = p @ v
    w = p @ abs_v
    error = pe @ abs_v + out.abs() * (e_bar + l_u) + w * (pv_u + parts_u + 2 * sum_error)
    error = error + out.abs() * (2 * sum_error + 4 * _U + scales_u / 2)
    if p_u:
        counted = visible if terms.kept is None else terms.kept if visible is None else terms.kept * visible
        seen = abs_v.sum(dim=-2, keepdim=True) if counted is None else counted.double() @ abs_v
        error = error + p_format.eta / profile.p_scale / total * seen
    if terms.kept is not None:
        error = error + 2 * _U * out.abs()
    out_bound = error + out_format.u * (out.abs() + error) + out_format.eta
    sums_u = max(parts_u, 3 * _U if profile.accumulator == "fp32" else sum_terms(kv_len) * u_a)
    variance = pv_u**2 / 3 * (p**2 @ v**2) + pe**2 @ v**2
    variance = variance + (out_format.u * out) ** 2 / 3 + (sums_u * w) ** 2 + out_format.eta**2
    lse_bound = lse_error(m, total.log(), e_bar, sum_error + l_u)
    if profile.lse_base == "base2":
        lse, lse_bound = lse * _LOG2E, lse_bound * _LOG2E
    lse = lse.masked_fill(dead, float("-inf"))
    # A dead row has no rounding in it: nothing but the convention's own values will do.
    out_bound = out_bound.masked_fill(dead, 0.0)
    lse_bound = lse_bound.masked_fill(dead, 0.0)
    return _Parts(out, out_bound, variance, lse[..., 0], lse_bound[..., 0])
