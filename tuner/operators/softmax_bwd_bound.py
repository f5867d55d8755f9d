"""The gradient of the row softmax in float64, and what a kernel's rounding can do to each element.

dx_j = y_j (dy_j - D), D = sum_k y_k dy_k, of the saved output y and its gradient dy as they are given. u is the unit
roundoff of fp32, u_a that of the accumulators, c(n) = min(n, 4 sqrt(n)) (``tuner.numerics.sum_terms``). To first order:

* sum, absolute: dD = (c(N) u_a + u) sum_k |y_k dy_k| + N eta: each product is rounded once (those of 16-bit numbers are
  exact), N of them are added within a tile and across tiles (Higham and Mary, SIAM J. Sci. Comput. 41, 2019), and what
  is below the normal numbers of fp32 may be flushed.
* element, absolute: e_j = |y_j| (dD + 2 u (|dy_j| + |D|)): the difference and the product are rounded; multiplied out,
  y_j dy_j - y_j D, both products and their difference, of which none is larger.
* then one rounding to the output's format: u_out (|dx_j| + e_j) + eta_out.
* variance, for the root-mean-square check: u_out^2/3 dx_j^2 of the last rounding, if it is independent and uniform, and
  e_j^2 + eta_out^2.

A row with a NaN in y or dy is NaN throughout; an infinite dy makes D infinite, and follows the formula from there.
"""

from __future__ import annotations

from functools import partial

import torch

from tuner.numerics import FORMATS, sum_terms
from tuner.operators.reference import Reference
from tuner.operators.row_blocks import reference_of_rows
from tuner.precision import PrecisionProfile

_FP32 = FORMATS["fp32"]


def reference(y: torch.Tensor, dy: torch.Tensor, profile: PrecisionProfile) -> Reference:
    """dx of ``y`` and ``dy``, both [rows, cols], with its bound; of a few hundred rows where they are large."""
    has_nan = not all(bool(torch.isfinite(tensor).all()) for tensor in (y, dy))
    return Reference({"dx": reference_of_rows((y, dy), has_nan, partial(_block, profile=profile))})


def _block(
    y: torch.Tensor, dy: torch.Tensor, profile: PrecisionProfile
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Expected values, bound and variance of some rows, float64."""
    out, cols = FORMATS[profile.output], y.shape[1]
    products = y * dy
    total = products.sum(dim=1, keepdim=True)
    dx = y * (dy - total)
    total_error = sum_error(cols, profile) * products.abs().sum(dim=1, keepdim=True) + cols * _FP32.eta
    error = y.abs() * (total_error + 2 * _FP32.u * (dy.abs() + total.abs()))
    bound = error + out.u * (dx.abs() + error) + out.eta
    variance = (out.u * dx) ** 2 / 3 + error**2 + out.eta**2
    return dx, bound, variance


def sum_error(cols: int, profile: PrecisionProfile) -> float:
    """How far the sum of ``cols`` products may be off, relative to the sum of their magnitudes."""
    return sum_terms(cols) * FORMATS[profile.accumulator].u + _FP32.u
