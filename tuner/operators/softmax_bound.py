"""The two-pass softmax in float64, and the bound on what a kernel's rounding can do to each element.

Notation: u is the unit roundoff of fp32, u_a that of the accumulators (fp32 where nothing else is declared), c(n) =
min(n, 4 sqrt(n)) (``tuner.numerics.sum_terms``), T the number of tiles, m the row's maximum, l = sum exp(x - m), y =
exp(x - m) / l. To first order the relative error of y_j is at most

    E_j + sum_k y_k E_k + 2 c(N) u_a + R + 4 u        and then one rounding to the output's format,

* E_j = 2 u |x_j| + 3 u |x_j - m| + eps: the error of one weight. Base 2: x_j log2(e) is rounded (u |x_j|), the
  constant is rounded and so is the difference (2 u |x_j - m|). What rounding does to m cancels, every weight being
  relative to the same m, unless one pass over the row fuses the product with the difference and the other does not:
  then u |m| <= u |x_j| + u |x_j - m| stays. Base e: the difference, the constant and the product inside ``exp`` are
  rounded (3 u |x_j - m|). eps is the error of the declared exponential, ex2.approx. Where x is scaled and rounded to
  the input format beforehand (``prescaled``), u_in |x_j| is added.
* sum_k y_k E_k: the error of l that follows (l is a sum of positive weights, so it inherits their average).
* 2 c(N) u_a: summing N weights, within a tile and across tiles (Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
* R = T (eps + 3 u_a): each of T rises of the running maximum multiplies l by one exponential (Blanchard, Higham and
  Higham, IMA J. Numer. Anal. 41, 2021, for the shifted sum; the factor of the online form is Milakov and Gimelshein,
  arXiv 1805.02867).
* 4 u: the division (div.full has 2 ulp) or the reciprocal and the product with it.

The bound is relative down to the output format's floor eta. A row with a NaN or +inf in it is NaN throughout.
"""

from __future__ import annotations

import torch

from tuner.numerics import EXPONENTIALS, FORMATS, sum_terms
from tuner.operators.reference import BLOCK_ELEMENTS, OutputReference, Reference
from tuner.precision import PrecisionProfile

# All rows are compared up to this many elements, a selection beyond.
_WHOLE = 2**22
_SELECTED = 2**23
_FEWEST_ROWS, _MOST_ROWS = 16, 512
# The rms check is of means; below this many columns there are too few roundings to average.
_RMS_COLUMNS = 256
_U = FORMATS["fp32"].u


def reference(x: torch.Tensor, profile: PrecisionProfile) -> Reference:
    """The softmax of ``x`` [rows, cols] over its columns, with its bound; of a few hundred rows where it is large."""
    rows, cols = x.shape
    # A row without a finite maximum (nothing but -inf, or a NaN or inf in it) gives NaN, and no other row does.
    has_nan = not bool(torch.isfinite(x.amax(dim=1)).all())
    index = None
    if rows * cols > _WHOLE:
        chosen = _rows(rows, cols)
        index = (torch.tensor(chosen, device=x.device),)
        x = x[index]
    parts = [_block(block, profile) for block in torch.split(x, max(1, BLOCK_ELEMENTS // cols))]
    expected, bound, variance = (torch.cat(column) for column in zip(*parts, strict=True))
    generic = variance if cols >= _RMS_COLUMNS else None
    return Reference({"out": OutputReference(expected, bound, generic, index, has_nan)})


def _rows(rows: int, cols: int) -> list[int]:
    """The first, the last, and rows spread evenly between them."""
    count = min(rows, max(_FEWEST_ROWS, min(_MOST_ROWS, _SELECTED // cols)))
    if count == 1:
        return [0]
    return sorted({i * (rows - 1) // (count - 1) for i in range(count)})


def _block(x: torch.Tensor, profile: PrecisionProfile) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Expected values, bound and variance of some rows, float64."""
    x = x.double()
    out = FORMATS[profile.output]
    u_a, eps = FORMATS[profile.accumulator].u, EXPONENTIALS[profile.exponential]
    m = x.amax(dim=1, keepdim=True)
    weights = (x - m).exp()
    y = weights / weights.sum(dim=1, keepdim=True)  # a row of -inf: -inf - -inf is NaN, as in torch
    finite = torch.isfinite(x)
    size = torch.where(finite, x.abs(), 0.0)
    spread = torch.where(finite, (x - m).abs(), 0.0)
    input_u = FORMATS[profile.input].u if profile.prescaled else 0.0
    weight_error = (2 * _U + input_u) * size + 3 * _U * spread + eps
    mean_error = (y * weight_error).sum(dim=1, keepdim=True)
    rescales = profile.tiles * (eps + 3 * u_a)
    relative = weight_error + mean_error + 2 * sum_terms(x.shape[1]) * u_a + rescales + 4 * _U
    if profile.l_from_rounded_p:
        relative = relative + FORMATS[profile.p].u
    error = y * relative
    bound = error + out.u * (y + error) + out.eta
    variance = (out.u * y) ** 2 / 3 + error**2 + out.eta**2
    return y, bound, variance
