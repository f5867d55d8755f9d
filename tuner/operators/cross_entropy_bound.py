"""Two-pass cross-entropy in float64, and the bound on what a kernel's rounding can do to each loss and log-sum-exp.

With t a row's target, e the label smoothing, z the factor of the z-loss (0 where they are not given), N the number of
columns, lse = log sum_j exp(x_j) and A = mean |x|:

    loss = lse - (1 - e) x_t - e mean(x) + z lse^2, and 0 where t is no column (the row is ignored).

u is the unit roundoff of fp32, u_a the accumulators', c(n) = min(n, 4 sqrt(n)). To first order:

* lse: D, as ``tuner.operators.lse_bound`` derives it, with Ebar, S and R there. Where log2(e) is folded into the
  weights, m log2(e) is rounded once for all of them (u |m|), in the place of m's way back from base 2.
* loss: D (1 + 2 z |lse|) + e c(N) u_a A + 6 u (|lse| + |x_t| + e A + z lse^2) + eta. The derivative of loss by lse; the
  sum of N logits (Higham and Mary, SIAM J. Sci. Comput. 41, 2019); and at most six roundings on the way of each of the
  four terms into the loss (of e and z as fp32 numbers, of 1 - e, two products or a product and the division by N, and
  three additions, whose partial sums are at most the sum of the terms' magnitudes; IEEE 754-2019).

Both outputs are fp32 whatever the logits are. An ignored row's loss is exact. A row of nothing but -inf, or with a NaN
or +inf in it, is NaN in both; a loss is +inf where the target's logit is -inf, or with smoothing any logit is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from tuner.numerics import FORMATS
from tuner.operators.lse_bound import lse_error, row_terms
from tuner.operators.reference import Reference
from tuner.operators.row_blocks import reference_of_rows
from tuner.operators.softmax_bound import nan_rows
from tuner.precision import PrecisionProfile

_U, _ETA = FORMATS["fp32"].u, FORMATS["fp32"].eta


def reference(
    logits: torch.Tensor, targets: torch.Tensor, label_smoothing: float, z_loss: float, profile: PrecisionProfile
) -> Reference:
    """``loss`` and ``lse`` of ``logits`` [rows, cols] and ``targets`` [rows]; of large ones for a few hundred rows."""
    block = partial(_block, label_smoothing=label_smoothing, z_loss=z_loss, profile=profile)
    both = reference_of_rows((logits, targets[:, None]), nan_rows(logits), block)
    return Reference(
        {
            name: replace(both, expected=both.expected[:, place], bound=both.bound[:, place], variance=None)
            for place, name in enumerate(("loss", "lse"))
        }
    )


def exact_loss(
    x: torch.Tensor,
    targets: torch.Tensor,
    m: torch.Tensor,
    log_l: torch.Tensor,
    label_smoothing: float,
    z_loss: float,
) -> torch.Tensor:
    """The loss [rows] of logits ``x`` [rows, cols] with the log-sum-exp ``m + log_l`` [rows], in float64.

    ``targets`` [rows] are int64. What is of the size of m cancels before anything smaller is added.
    """
    counts = counted(targets, x.shape[1])
    at_target = x.gather(1, targets.where(counts, 0)[:, None])[:, 0]
    loss = (1.0 - label_smoothing) * (m - at_target) + log_l + z_loss * (m + log_l) ** 2
    if label_smoothing:
        loss = loss + label_smoothing * (m - x.mean(dim=1))
    return loss.where(counts, 0.0)


def counted(targets: torch.Tensor, cols: int) -> torch.Tensor:
    """Which of ``targets`` are columns: bool. A row of any other is ignored."""
    return (targets >= 0) & (targets < cols)


def _block(
    x: torch.Tensor, targets: torch.Tensor, label_smoothing: float, z_loss: float, profile: PrecisionProfile
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Expected values and bound [rows, 2] of loss and log-sum-exp of some rows, float64; nothing of the variance."""
    target = targets[:, 0].long()
    cols = x.shape[1]
    counts = counted(target, cols)
    terms = row_terms(x, profile)
    m, log_l = terms.m[:, 0], terms.log_l[:, 0]
    lse = m + log_l
    d_lse = lse_error(m, log_l, terms.mean_error[:, 0], terms.sums + terms.rescales)
    loss = exact_loss(x, target, m, log_l, label_smoothing, z_loss)
    size = torch.where(torch.isfinite(x), x.abs(), 0.0)
    at_target = size.gather(1, target.where(counts, 0)[:, None])[:, 0]
    mean = label_smoothing * size.mean(dim=1)
    d_loss = d_lse * (1.0 + 2.0 * z_loss * lse.abs()) + terms.sums * mean + _ETA
    d_loss = d_loss + 6 * _U * (lse.abs() + at_target + mean + z_loss * lse**2)
    expected = torch.stack([loss, lse], dim=1)
    bound = torch.stack([d_loss.where(counts, 0.0), d_lse], dim=1)
    return expected, bound, torch.zeros_like(bound)
