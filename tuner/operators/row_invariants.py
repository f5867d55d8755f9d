"""What holds for every element of a large output of log_softmax or softmax_bwd, of which some rows are compared.

Tolerances come from the same terms as the bounds (``log_softmax_bound``, ``softmax_bwd_bound``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from tuner.numerics import EPS_LG2, EXPONENTIALS, FORMATS, sum_terms
from tuner.operators.invariants import Invariant
from tuner.operators.lse_bound import rescaling
from tuner.operators.reference import BLOCK_ELEMENTS
from tuner.operators.softmax_bwd_bound import sum_error
from tuner.precision import PrecisionProfile

_U = FORMATS["fp32"].u


def exponentials_sum_to_one(x: torch.Tensor, profile: PrecisionProfile) -> Invariant:
    """Of the log-softmax of finite ``x`` [rows, cols]: the exponentials of each row sum to 1.

    An error of y_j moves the sum by its weight times that: the last rounding by at most u_out times the entropy of the
    row, which is at most log(cols). |x|, |m| and |lse| are at most the largest |x| and log(cols) together.
    """
    out, cols = FORMATS[profile.output], x.shape[1]
    largest = x.abs().amax().double() + math.log(cols)
    input_u = FORMATS[profile.input].u if profile.prescaled else 0.0
    weights = (14 * _U + input_u) * largest + EXPONENTIALS[profile.exponential]
    sums = sum_terms(cols) * FORMATS[profile.accumulator].u + rescaling(profile) + 2 * EPS_LG2
    tolerance = weights + sums + out.u * math.log(cols) + out.eta + _U
    # To second order each error has the factor exp(error), the largest being of the smallest weight.
    tolerance = tolerance * (2 * out.u * largest + tolerance).exp()

    def excess(outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        blocks = torch.split(outputs["out"], max(1, BLOCK_ELEMENTS // cols))
        sums = torch.cat([block.double().exp().sum(dim=1) for block in blocks])
        return _largest((sums - 1.0).abs() / tolerance)

    return Invariant("the exponentials of every row sum to 1", {"x": x}, excess)


def halves_of_the_gradient(y: torch.Tensor, profile: PrecisionProfile) -> Invariant:
    """Of the softmax's gradient for a dy of 1 in the first half of the columns and 0 in the others.

    With D the sum of y over the first half and E over the others, dx sums to D (1 - D) over the first and to -D E over
    the others. ``y`` [rows, cols] is not negative.
    """
    out, cols = FORMATS[profile.output], y.shape[1]
    half = (cols + 1) // 2
    dy = torch.zeros_like(y)
    dy[:, :half] = 1.0
    first = y[:, :half].sum(dim=1, dtype=torch.float64)
    others = y[:, half:].sum(dim=1, dtype=torch.float64)
    expected = torch.stack([first * (1.0 - first), -first * others])
    element = sum_error(cols, profile) * first + 2 * _U * (1.0 + first)
    tolerance = torch.stack([first, others]) * element
    tolerance = tolerance + out.u * (expected.abs() + tolerance) + cols * out.eta

    def excess(outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        dx = outputs["dx"]
        got = torch.stack([part.sum(dim=1, dtype=torch.float64) for part in (dx[:, :half], dx[:, half:])])
        return _largest((got - expected).abs() / tolerance)

    return Invariant(
        "a dy of 1 and 0 in the halves of a row gives sums of D (1 - D) and -D E", {"y": y, "dy": dy}, excess
    )


def _largest(ratio: torch.Tensor) -> torch.Tensor:
    """The largest, infinite where there is a NaN: a scalar."""
    largest = ratio.amax()
    return torch.where(largest.isnan(), math.inf, largest)
