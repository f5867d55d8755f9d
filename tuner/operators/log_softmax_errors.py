"""Classical wrong answers of log-softmax and log-sum-exp, in float64, on which the inputs must prove themselves.

They are those of the row softmax, and what can go wrong with a logarithm.
"""

from __future__ import annotations

import math

import torch

from tuner.operators import softmax_errors
from tuner.operators.softmax_errors import NEIGHBOURS_ROW, UNIFORM, ZEROS, maximum_and_sum

SUM_LEFT_OUT = "the logarithm of the sum left out"
LOG_IN_BASE_2 = "the logarithm of the sum in base 2"
LSE_IN_BASE_2 = "the log-sum-exp in base 2"
_OF_THE_LOGARITHM = (SUM_LEFT_OUT, LOG_IN_BASE_2)


def of_log_softmax(rows: int, cols: int, tile: int) -> tuple[str, ...]:
    """The errors that change a log-softmax of this shape, taken in tiles of ``tile`` columns, at all."""
    found = softmax_errors.errors(rows, cols, tile)
    # Of a single column the log-softmax is 0.
    return (*found, *_OF_THE_LOGARITHM) if cols > 1 else tuple(error for error in found if error != ZEROS)


def of_logsumexp(rows: int, cols: int, tile: int) -> tuple[str, ...]:
    """The errors that change a log-sum-exp of this shape, taken in tiles of ``tile`` columns, at all."""
    found = softmax_errors.errors(rows, cols, tile)
    return (*found, *(_OF_THE_LOGARITHM if cols > 1 else ()), LSE_IN_BASE_2)


def log_softmax(x: torch.Tensor, error: str, tile: int) -> torch.Tensor:
    """What a kernel with ``error`` would make of ``x`` [rows, cols]: float64. Unrounded."""
    if error == ZEROS:
        return torch.zeros_like(x, dtype=torch.float64)
    if error == UNIFORM:
        return torch.full_like(x, -math.log(x.shape[1]), dtype=torch.float64)
    if error == NEIGHBOURS_ROW:
        return torch.log_softmax(x.double(), dim=1).roll(1, dims=0)
    x, m, log_l = _logarithms(x, error, tile)
    return (x - m) - log_l


def logsumexp(x: torch.Tensor, error: str, tile: int) -> torch.Tensor:
    """What a kernel with ``error`` would make of ``x`` [rows, cols]: float64 [rows]. Unrounded."""
    if error == ZEROS:
        return torch.zeros_like(x[:, 0], dtype=torch.float64)
    if error == UNIFORM:
        return torch.full_like(x[:, 0], math.log(x.shape[1]), dtype=torch.float64)
    if error == NEIGHBOURS_ROW:
        return torch.logsumexp(x.double(), dim=1).roll(1, dims=0)
    _, m, log_l = _logarithms(x, error, tile)
    return (m + log_l)[:, 0] / (math.log(2.0) if error == LSE_IN_BASE_2 else 1.0)


def _logarithms(x: torch.Tensor, error: str, tile: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The logits as they are taken, their maxima, and the logarithms of their sums."""
    x, m, l = maximum_and_sum(x, error, tile)  # noqa: E741
    if error == SUM_LEFT_OUT:
        return x, m, torch.zeros_like(l)
    return x, m, l.log2() if error == LOG_IN_BASE_2 else l.log()
