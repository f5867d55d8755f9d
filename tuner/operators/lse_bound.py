"""The log-sum-exp of rows in float64, and what a kernel's rounding can do to it and to the weights that it is made of.

What every operator over rows of logits has in common. Notation: u is the unit roundoff of fp32, u_a that of the
accumulators (fp32 where nothing else is declared), c(n) = min(n, 4 sqrt(n)) (``tuner.numerics.sum_terms``), T the
number of tiles, m the row's maximum, l = sum exp(x - m), y = exp(x - m) / l, lse = m + log l. To first order:

* weight, relative: E_j = 2 u |x_j| + 3 u |x_j - m| + eps. Base 2: x_j log2(e) is rounded (u |x_j|), the constant is
  rounded and so is the difference (2 u |x_j - m|). What rounding does to m cancels, every weight being relative to the
  same m, unless one pass over the row fuses the product with the difference and the other does not: then u |m| <= u
  |x_j| + u |x_j - m| stays. Base e: the difference, the constant and the product inside ``exp`` are rounded (3 u |x_j -
  m|). eps is the error of the declared exponential, ex2.approx. Where x is scaled and rounded to the input format
  beforehand (``prescaled``), u_in |x_j| is added.
* row sum, relative: Ebar = sum_k y_k E_k, since l is a sum of positive weights and inherits their average error, and S
  = c(N) u_a + R for adding N of them, within a tile and across tiles (Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
* rescaling: R = T (eps + 3 u_a), one exponential and its roundings for each of T rises of the running maximum
  (Blanchard, Higham and Higham, IMA J. Numer. Anal. 41, 2021, for the shifted sum; the factor of the online form is
  Milakov and Gimelshein, arXiv 1805.02867).
* lse, absolute: Ebar + S + 2 eps_lg2 + 2 u (|m| + |log l|) + u |lse| + eta. A relative error of l is an absolute one
  of its logarithm; eps_lg2 is the error of lg2.approx (PTX ISA); m and log l are rounded where they are brought from
  base 2 to base e; their sum is rounded once more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tuner.numerics import EPS_LG2, EXPONENTIALS, FORMATS, sum_terms
from tuner.precision import PrecisionProfile

_U = FORMATS["fp32"].u


@dataclass(frozen=True)
class RowTerms:
    """Of logits [rows, cols], float64: ``m``, ``log_l`` and ``mean_error`` (Ebar) [rows, 1]; ``y`` and ``weight_error``
    (E) [rows, cols]; ``sums`` (c(N) u_a) and ``rescales`` (R) are the same for all rows."""

    m: torch.Tensor
    log_l: torch.Tensor
    y: torch.Tensor
    weight_error: torch.Tensor
    mean_error: torch.Tensor
    sums: float
    rescales: float


def row_terms(x: torch.Tensor, profile: PrecisionProfile) -> RowTerms:
    """The terms of logits ``x`` [rows, cols], float64.

    A row of nothing but -inf, or with a NaN or +inf in it, is NaN in all of them but ``m`` and the finite elements'
    ``weight_error``.
    """
    u_a, eps = FORMATS[profile.accumulator].u, EXPONENTIALS[profile.exponential]
    m = x.amax(dim=1, keepdim=True)
    weights = (x - m).exp()  # a row of -inf: -inf - -inf is NaN, as in torch
    l = weights.sum(dim=1, keepdim=True)  # noqa: E741
    y = weights / l
    finite = torch.isfinite(x)
    size = torch.where(finite, x.abs(), 0.0)
    spread = torch.where(finite, (x - m).abs(), 0.0)
    input_u = FORMATS[profile.input].u if profile.prescaled else 0.0
    weight_error = (2 * _U + input_u) * size + 3 * _U * spread + eps
    mean_error = (y * weight_error).sum(dim=1, keepdim=True)
    return RowTerms(m, l.log(), y, weight_error, mean_error, sum_terms(x.shape[1]) * u_a, rescaling(profile))


def rescaling(profile: PrecisionProfile) -> float:
    """R: what bringing the running sum to each new maximum can do to it, relative."""
    return profile.tiles * (EXPONENTIALS[profile.exponential] + 3 * FORMATS[profile.accumulator].u)


def lse_error(
    m: torch.Tensor, log_l: torch.Tensor, mean_error: torch.Tensor, sum_error: float | torch.Tensor
) -> torch.Tensor:
    """How far a natural log-sum-exp in fp32 may be from ``m + log_l``. ``sum_error``: S, and what a profile adds to it.

    Tensors of one shape, float64.
    """
    return (
        mean_error
        + sum_error
        + 2 * EPS_LG2
        + 2 * _U * (m.abs() + log_l.abs())
        + _U * (m + log_l).abs()
        + FORMATS["fp32"].eta
    )


def log_sum_exp(terms: RowTerms, profile: PrecisionProfile) -> tuple[torch.Tensor, torch.Tensor]:
    """The natural log-sum-exp of the rows that ``terms`` are of, and how far one in fp32 may be from it: [rows, 1]."""
    rounded = FORMATS[profile.p].u if profile.l_from_rounded_p else 0.0
    error = lse_error(terms.m, terms.log_l, terms.mean_error, terms.sums + terms.rescales + rounded)
    return terms.m + terms.log_l, error
