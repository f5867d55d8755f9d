"""What holds for every row of a large cross-entropy or gradient, of which the reference covers a selection only.

Tolerances come from the same terms as the bounds (``cross_entropy_bound``, ``cross_entropy_bwd_bound``), with the
largest exponent's error over all rows in the place of each row's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from tuner.numerics import EPS_LG2, EXPONENTIALS, FORMATS, sum_terms
from tuner.operators.cross_entropy_bound import counted
from tuner.operators.invariants import Invariant, largest_deviation
from tuner.operators.lse_bound import rescaling
from tuner.precision import PrecisionProfile

_U, _ETA = FORMATS["fp32"].u, FORMATS["fp32"].eta
_LEVELS = 251  # rows of different logits, in steps of 1/16 from -125/16: exact in every format


def constant_rows(
    logits: torch.Tensor, targets: torch.Tensor, label_smoothing: float, z_loss: float, profile: PrecisionProfile
) -> Invariant:
    """A row whose logits are all v has a log-sum-exp of v + log cols; ``logits`` [rows, cols] give shape and format."""
    rows, cols = logits.shape
    level = ((torch.arange(rows, device=logits.device) % _LEVELS) - _LEVELS // 2).double() / 16
    log_cols = math.log(cols)
    lse = level + log_cols
    # All terms of the loss but the log-sum-exp's cancel to log cols.
    loss = torch.where(counted(targets, cols), log_cols + z_loss * lse**2, 0.0)
    sums = sum_terms(cols) * FORMATS[profile.accumulator].u
    size = level.abs() + log_cols
    d_lse = 2 * _U * size + EXPONENTIALS[profile.exponential] + sums + rescaling(profile) + 2 * EPS_LG2 + 3 * _U * size
    d_loss = d_lse * (1.0 + 2.0 * z_loss * size) + sums * size + 6 * _U * (3 * size + z_loss * size**2)

    def excess(outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        of_lse = largest_deviation((outputs["lse"].double() - lse) / d_lse)
        return torch.maximum(of_lse, largest_deviation((outputs["loss"].double() - loss) / d_loss))

    constant = torch.empty_like(logits).copy_(level[:, None].expand(rows, cols))
    return Invariant("rows of equal logits v have the log-sum-exp v + log cols", {"logits": constant}, excess)


def gradients_sum(
    inputs: Mapping[str, torch.Tensor], label_smoothing: float, z_loss: float, profile: PrecisionProfile
) -> Invariant:
    """The gradient of a row of finite logits sums to 2 z lse times ``grad``, and to 0 exactly where it is ignored."""
    logits, targets, lse, grad = (inputs[name] for name in ("logits", "targets", "lse", "grad"))
    cols, out = logits.shape[1], FORMATS[profile.output]
    base, slope = lse.double(), grad.double()
    counts = counted(targets, cols)
    expected = torch.where(counts, slope * 2 * z_loss * base, 0.0)
    input_u = FORMATS[profile.input].u if profile.prescaled else 0.0
    # |x|, |lse| and |x - lse| are at most twice the largest of the first two. The log-sum-exp was rounded once.
    most = torch.maximum(logits.abs().amax().double(), base.abs())
    exponent = (4 + 6 + 1) * _U * most + input_u * most + EXPONENTIALS[profile.exponential]
    steepest = 1.0 + 2.0 * z_loss * base.abs()
    error = slope.abs() * (steepest * exponent + 8 * _U * (steepest + 2.0) + cols * steepest * _ETA)
    tolerance = error + out.u * (slope.abs() * (steepest + 1.0) + error) + cols * out.eta
    tolerance = torch.where(counts, tolerance, 1e-300)

    def excess(outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return largest_deviation((outputs["dlogits"].sum(dim=1, dtype=torch.float64) - expected) / tolerance)

    return Invariant("each row's gradient sums to 2 z_loss lse grad", dict(inputs), excess)
