"""The two-pass log-softmax and log-sum-exp in float64, and what a kernel's rounding can do to each element.

With the terms of ``tuner.operators.lse_bound``, d being what a log-sum-exp in fp32 may be off by:

* logsumexp: d, in fp32; times log2(e), as the value is, where it is stored in base 2.
* log_softmax, y = x - lse, absolute: d + u (|x| + |lse|) + u |y|, and then one rounding to the output's format, u_out
  (|y| + that) + eta_out. The difference is rounded once (u |y|); where it is taken as (x - m) - log l, its first half
  is rounded as well, which u (|x| + |lse|) covers, |m| being at most |lse| + |log l|, of which d has 2 u.
* variance of log_softmax, for the root-mean-square check: u_out^2/3 y^2 of the last rounding, if it is independent and
  uniform, and the square of all that comes before it.

As with torch, a row of nothing but -inf, or with a NaN or +inf in it, has a log-softmax of NaN throughout; its
log-sum-exp is -inf, NaN or +inf. What is infinite is exact.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from tuner.numerics import FORMATS
from tuner.operators.lse_bound import log_sum_exp, row_terms
from tuner.operators.reference import BLOCK_ELEMENTS, OutputReference, Reference
from tuner.operators.row_blocks import reference_of_rows
from tuner.operators.softmax_bound import nan_rows
from tuner.precision import PrecisionProfile

_U = FORMATS["fp32"].u
_LOG2E = math.log2(math.e)


def log_softmax_reference(x: torch.Tensor, profile: PrecisionProfile) -> Reference:
    """Of ``x`` [rows, cols] over its columns, with its bound; of a few hundred rows where it is large."""
    return Reference({"out": reference_of_rows((x,), nan_rows(x), partial(_log_softmax, profile=profile))})


def logsumexp_reference(x: torch.Tensor, profile: PrecisionProfile) -> Reference:
    """Of ``x`` [rows, cols] over its columns, with its bound: every row, since one number a row is soon compared."""
    blocks = torch.split(x, max(1, BLOCK_ELEMENTS // x.shape[1]))
    expected, bound = (torch.cat(c) for c in zip(*(_logsumexp(b.double(), profile) for b in blocks), strict=True))
    return Reference({"out": OutputReference(expected, bound, None, None, bool(expected.isnan().any()))})


def _log_softmax(x: torch.Tensor, profile: PrecisionProfile) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Expected values, bound and variance of some rows, float64."""
    out = FORMATS[profile.output]
    terms = row_terms(x, profile)
    lse, lse_error = log_sum_exp(terms, profile)
    y = (x - terms.m) - terms.log_l  # x - lse, but the sum of m and log l is m where m is huge
    size = y.abs()
    error = lse_error + _U * (x.abs() + lse.abs()) + _U * size
    bound = error + out.u * (size + error) + out.eta
    variance = (out.u * y) ** 2 / 3 + error**2 + out.eta**2
    return y, bound.masked_fill(y.isinf(), 0.0), variance


def _logsumexp(x: torch.Tensor, profile: PrecisionProfile) -> tuple[torch.Tensor, torch.Tensor]:
    """Expected values and bound of some rows, float64 [rows]."""
    lse, bound = (column[:, 0] for column in log_sum_exp(row_terms(x, profile), profile))
    largest = x.amax(dim=1)
    lse = torch.where(largest.isinf(), largest, lse)  # where the shifted sum is inf - inf; amax is NaN where one is
    base = _LOG2E if profile.lse_base == "base2" else 1.0
    return lse * base, (bound * base).masked_fill(lse.isinf(), 0.0)
