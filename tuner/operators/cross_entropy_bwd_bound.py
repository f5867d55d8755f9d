"""The gradient of the cross-entropy in float64, and the bound on what a kernel's rounding can do to each element.

With t a row's target, e the label smoothing, z the factor of the z-loss (0 where they are not given), N the number of
columns, lse the log-sum-exp and g the gradient that are given:

    dx_j = g (y_j s - (1 - e) [j = t] - e / N) with y_j = exp(x_j - lse) and s = 1 + 2 z lse,

and 0 throughout where t is no column (the row is ignored). It is the derivative of g times the loss in
``tuner.operators.cross_entropy_bound`` by x_j: the log-sum-exp's own is y_j. u is the unit roundoff of fp32, S = 1 +
2 z |lse|. To first order, and absolute:

    |g| (y_j S E_j + 8 u (y_j S + [j = t] + e / N) + S eta) and then one rounding to the output's format,

* E_j = 2 u (|x_j| + |lse|) + 3 u |x_j - lse| + eps: the exponent. In base 2 x_j log2(e) and lse log2(e) are each
  rounded, the constant too, or they are fused; in base e the difference, the constant and the product inside ``exp``
  are rounded. The log-sum-exp is an exact input. eps is the error of ex2.approx (PTX ISA). Where x is scaled and
  rounded to the input format beforehand (``prescaled``), u_in |x_j| is added.
* 8 u: of each term at most eight roundings (of e, z and N as fp32 numbers, of 1 - e, a product or two, the sum that
  makes s, the product with y, two subtractions and the product with g; IEEE 754-2019). The one-hot term is taken as
  1, since the rounding of e is not relative to 1 - e.
* S eta: a weight below the smallest normal number of fp32 may be flushed.

An ignored row is exact, whatever is in it. A row whose log-sum-exp is NaN is NaN throughout. There is no
root-mean-square check: the one element at the target outweighs all others of its row, and one rounding is no mean.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from tuner.numerics import EXPONENTIALS, FORMATS
from tuner.operators.cross_entropy_bound import counted
from tuner.operators.reference import Reference
from tuner.operators.row_blocks import reference_of_rows
from tuner.precision import PrecisionProfile

_U, _ETA = FORMATS["fp32"].u, FORMATS["fp32"].eta


def reference(
    logits: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor,
    grad: torch.Tensor,
    label_smoothing: float,
    z_loss: float,
    profile: PrecisionProfile,
) -> Reference:
    """``dlogits`` for ``logits`` [rows, cols] and, each [rows], ``targets``, ``lse`` and ``grad``.

    Of large ones for a few hundred rows.
    """
    block = partial(_block, label_smoothing=label_smoothing, z_loss=z_loss, profile=profile)
    matrices = (logits, targets[:, None], lse[:, None], grad[:, None])
    found = reference_of_rows(matrices, bool(lse.isnan().any()), block)
    return Reference({"dlogits": replace(found, variance=None)})


def exact_gradient(
    x: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor,
    grad: torch.Tensor,
    label_smoothing: float,
    z_loss: float,
) -> torch.Tensor:
    """The gradient [rows, cols] in float64. ``x`` [rows, cols] and, each [rows, 1], ``lse`` and ``grad`` are float64;
    ``targets`` [rows, 1] int64."""
    cols = x.shape[1]
    slope = 1.0 + 2.0 * z_loss * lse
    inner = (x - lse).exp() * slope - (1.0 - label_smoothing) * _one_hot(targets, cols) - label_smoothing / cols
    return (grad * inner).where(counted(targets, cols), 0.0)


def _one_hot(targets: torch.Tensor, cols: int) -> torch.Tensor:
    """Float64 [rows, cols]: 1 at each row's target, and 0 throughout where it is no column."""
    return (torch.arange(cols, device=targets.device)[None, :] == targets).double()


def _block(
    x: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor,
    grad: torch.Tensor,
    label_smoothing: float,
    z_loss: float,
    profile: PrecisionProfile,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Expected values and bound of some rows, float64; nothing of the variance."""
    out, cols = FORMATS[profile.output], x.shape[1]
    target = targets.long()
    d = exact_gradient(x, target, lse, grad, label_smoothing, z_loss)
    finite = torch.isfinite(x)
    input_u = FORMATS[profile.input].u if profile.prescaled else 0.0
    exponent = (2 * _U + input_u) * x.abs() + 2 * _U * lse.abs() + 3 * _U * (x - lse).abs()
    exponent = torch.where(finite, exponent, 0.0) + EXPONENTIALS[profile.exponential]
    steepest = 1.0 + 2.0 * z_loss * lse.abs()
    weight = (x - lse).exp() * steepest
    terms = weight + _one_hot(target, cols) + label_smoothing / cols
    error = grad.abs() * (weight * exponent + 8 * _U * terms + steepest * _ETA)
    bound = error + out.u * (d.abs() + error) + out.eta
    return d, bound.where(counted(target, cols), 0.0), torch.zeros_like(bound)
