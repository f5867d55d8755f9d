"""Classical wrong answers of the cross-entropy and its gradient, in float64, on which inputs must prove themselves."""

from __future__ import annotations

import math

import torch

from tuner.operators.cross_entropy_bound import exact_loss
from tuner.operators.cross_entropy_bwd_bound import exact_gradient
from tuner.operators.cross_entropy_inputs import IGNORED, IGNORED_ROW
from tuner.operators.online_errors import WRONG_BASE
from tuner.operators.softmax_errors import NEIGHBOURS_ROW, UNIFORM, ZEROS, maximum_and_sum
from tuner.operators.softmax_errors import errors as row_errors

LSE_IN_BASE_2 = "the log-sum-exp in base 2"
WRONG_TARGET, IGNORED_COUNTED = "the column before the target", "an ignored row counted"
NO_SMOOTHING, NO_Z_LOSS = "no label smoothing", "no z-loss"
NO_ONE_HOT, NO_GRADIENT = "the target's 1 not taken away", "the gradient of the loss taken as 1"
# Below it a z-loss changes a 16-bit gradient by less than its rounding, so that no inputs would show that it is gone.
_SMALLEST_Z_LOSS = 2.0**-14


def loss_errors(rows: int, cols: int, tile: int, label_smoothing: float, z_loss: float) -> tuple[str, ...]:
    """The errors that change a loss or a log-sum-exp of this shape, in tiles of ``tile`` columns."""
    found = [error for error in row_errors(rows, cols, tile) if error != UNIFORM]
    found += [LSE_IN_BASE_2, *_of_targets(rows, cols)]
    if label_smoothing and cols > 1:
        found.append(NO_SMOOTHING)
    if z_loss:
        found.append(NO_Z_LOSS)
    return tuple(found)


def gradient_errors(rows: int, cols: int, label_smoothing: float, z_loss: float) -> tuple[str, ...]:
    """The errors that change a gradient of this shape."""
    found = [ZEROS, NO_ONE_HOT, NO_GRADIENT, *_of_targets(rows, cols)] if cols > 1 else [NO_ONE_HOT]
    if cols > 1:
        found.append(WRONG_BASE)
    if cols > 1 and rows > 1:
        found.append(NEIGHBOURS_ROW)
    if label_smoothing and cols > 1:
        found.append(NO_SMOOTHING)
    if z_loss >= _SMALLEST_Z_LOSS:
        found.append(NO_Z_LOSS)
    return tuple(found)


def wrong_loss(
    logits: torch.Tensor, targets: torch.Tensor, error: str, tile: int, label_smoothing: float, z_loss: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss and the log-sum-exp [rows] that a kernel with ``error`` would make of ``logits``: float64, unrounded."""
    x, m, l = maximum_and_sum(logits, error, tile)  # noqa: E741
    base = math.log(2.0) if error == LSE_IN_BASE_2 else 1.0
    m, log_l = m[:, 0] / base, l.log()[:, 0] / base
    lse = m + log_l
    targets = _targets(targets, error)
    smoothing, z_loss = _options(error, label_smoothing, z_loss)
    loss = exact_loss(x, targets, m, log_l, smoothing, z_loss)
    if error == ZEROS:
        return torch.zeros_like(loss), torch.zeros_like(lse)
    if error == NEIGHBOURS_ROW:
        return loss.roll(1), lse.roll(1)
    return loss, lse


def wrong_gradient(
    logits: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor,
    grad: torch.Tensor,
    error: str,
    label_smoothing: float,
    z_loss: float,
) -> torch.Tensor:
    """The gradient [rows, cols] that a kernel with ``error`` would give: float64, unrounded."""
    x, base, slope = logits.double(), lse.double()[:, None], grad.double()[:, None]
    if error == ZEROS:
        return torch.zeros_like(x)
    if error == NEIGHBOURS_ROW:
        base = base.roll(1, dims=0)
    if error == WRONG_BASE:  # of the weights alone; the z-loss keeps its log-sum-exp
        x = base + (x - base) * math.log(2.0)
    if error == NO_GRADIENT:
        slope = torch.ones_like(slope)
    smoothing, z_loss = _options(error, label_smoothing, z_loss)
    wanted = _targets(targets, error)[:, None]
    d = exact_gradient(x, wanted, base, slope, smoothing, z_loss)
    if error == NO_ONE_HOT:
        d = d.scatter_add(1, wanted.clamp(min=0), (slope * (1.0 - smoothing)).where(wanted >= 0, 0.0))
    return d


def _of_targets(rows: int, cols: int) -> list[str]:
    found = [WRONG_TARGET] if cols > 1 else []
    return [*found, IGNORED_COUNTED] if rows > IGNORED_ROW else found


def _targets(targets: torch.Tensor, error: str) -> torch.Tensor:
    if error == WRONG_TARGET:
        return torch.where(targets > 0, targets - 1, targets)
    if error == IGNORED_COUNTED:
        return torch.where(targets == IGNORED, 0, targets)
    return targets


def _options(error: str, label_smoothing: float, z_loss: float) -> tuple[float, float]:
    return 0.0 if error == NO_SMOOTHING else label_smoothing, 0.0 if error == NO_Z_LOSS else z_loss
