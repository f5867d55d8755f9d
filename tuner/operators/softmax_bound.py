"""The two-pass softmax in float64, and the bound on what a kernel's rounding can do to each element.

With the terms of ``tuner.operators.lse_bound`` the relative error of y_j = exp(x_j - m) / l is to first order at most

    E_j + sum_k y_k E_k + 2 c(N) u_a + R + 4 u        and then one rounding to the output's format,

* E_j and sum_k y_k E_k: the error of one weight, and that of l which follows.
* 2 c(N) u_a + R: adding N weights, and rescaling their sum.
* 4 u: the division (div.full has 2 ulp) or the reciprocal and the product with it.

The bound is relative down to the output format's floor eta. A row with a NaN or +inf in it is NaN throughout.
"""

from __future__ import annotations

from functools import partial

import torch

from tuner.numerics import FORMATS
from tuner.operators.lse_bound import row_terms
from tuner.operators.reference import Reference
from tuner.operators.row_blocks import reference_of_rows
from tuner.precision import PrecisionProfile

_U = FORMATS["fp32"].u


def reference(x: torch.Tensor, profile: PrecisionProfile) -> Reference:
    """The softmax of ``x`` [rows, cols] over its columns, with its bound; of a few hundred rows where it is large."""
    return Reference({"out": reference_of_rows((x,), nan_rows(x), partial(probabilities, profile=profile))})


def nan_rows(x: torch.Tensor) -> bool:
    """Whether some row of logits is NaN: with nothing but -inf in it, or a NaN or +inf, it has no finite maximum."""
    return not bool(torch.isfinite(x.amax(dim=1)).all())


def probabilities(x: torch.Tensor, profile: PrecisionProfile) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Expected values, bound and variance of some rows: float64, as ``x`` [rows, cols] is."""
    out = FORMATS[profile.output]
    terms = row_terms(x, profile)
    y = terms.y
    relative = terms.weight_error + terms.mean_error + 2 * terms.sums + terms.rescales + 4 * _U
    if profile.l_from_rounded_p:
        relative = relative + FORMATS[profile.p].u
    error = y * relative
    bound = error + out.u * (y + error) + out.eta
    variance = (out.u * y) ** 2 / 3 + error**2 + out.eta**2
    return y, bound, variance
