"""A Gaussian process over the rows of a feature matrix: what the untried configs' logarithms of time may be.

Rasmussen and Williams, Gaussian Processes for Machine Learning (2006): the posterior is their algorithm 2.1, the
gradient of the evidence their equation 5.9, the covariance a Matérn one of order 5/2 (their equation 4.17) with a
length for each column. The lengths have log-normal priors whose median grows with the square root of the number of
columns, as distances do (Hvarfner et al., Vanilla Bayesian optimization performs great in high dimensions, 2024).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.search.features import Matrix

Vector = npt.NDArray[np.float64]

_ROOT5 = math.sqrt(5.0)
# Prior of the logarithms: of a length (added to half the logarithm of the number of columns), of the signal's variance
# and of the noise's, each as mean and standard deviation. Values are standardised.
LENGTH_MEAN, LENGTH_SPREAD = -0.9, 1.0
_SIGNAL, _NOISE = (0.0, 1.0), (math.log(1e-3), 1.5)
_LENGTH_LIMITS, _SIGNAL_LIMITS, _NOISE_LIMITS = (-3.0, 3.4), (-3.0, 3.0), (-11.5, -1.6)
_JITTER = 1e-6
_MOST_TO_FIT = 120
"""Observations that the lengths are fitted to: the best and the newest of them where there are more."""


class Surrogate:
    """A Gaussian process with the lengths, signal and noise that were fitted last."""

    def __init__(self, features: Matrix) -> None:
        self._features = features
        columns = features.shape[1]
        self._mean = np.array([0.5 * math.log(columns) + LENGTH_MEAN] * columns + [_SIGNAL[0], _NOISE[0]])
        self._spread = np.array([LENGTH_SPREAD] * columns + [_SIGNAL[1], _NOISE[1]])
        self._bounds = [_LENGTH_LIMITS] * columns + [_SIGNAL_LIMITS, _NOISE_LIMITS]
        self._theta: Vector = self._mean.copy()

    def fit(self, rows: npt.NDArray[np.int64], values: Vector, steps: int) -> None:
        """Moves lengths, signal and noise towards what makes standardised ``values`` at ``rows`` most likely."""
        from scipy.optimize import minimize

        if len(rows) > _MOST_TO_FIT:
            half = _MOST_TO_FIT // 2
            kept = np.union1d(np.argsort(values, kind="stable")[:half], np.arange(len(rows) - half, len(rows)))
            rows, values = rows[kept], values[kept]
        seen = self._features[rows].astype(np.float64)
        apart = np.ascontiguousarray(np.square(seen[:, None, :] - seen[None, :, :]).transpose(2, 0, 1))
        found = minimize(
            self._loss, self._theta, (apart, values), "L-BFGS-B", True, bounds=self._bounds, options={"maxfun": steps}
        )
        self._theta = found.x

    def mean(self, rows: npt.NDArray[np.int64], values: Vector, at: npt.NDArray[np.int64]) -> Vector:
        """The mean that ``posterior`` gives, at less cost."""
        from scipy.linalg import cho_solve

        weighed = cho_solve((self._factor(rows), True), values, check_finite=False).astype(np.float32)
        return np.asarray(weighed @ self._covariance(rows, at), dtype=np.float64)

    def posterior(
        self, rows: npt.NDArray[np.int64], values: Vector, at: npt.NDArray[np.int64]
    ) -> tuple[Vector, Vector]:
        """Mean and variance of the values at the rows ``at``, given ``values`` at ``rows``; 0 if nothing is known."""
        from scipy.linalg import solve_triangular

        lower, across = self._factored(rows, at)
        known = solve_triangular(lower, values, lower=True, check_finite=False).astype(np.float32)
        variance = math.exp(self._theta[-2]) - np.square(across).sum(axis=0)
        return (known @ across).astype(np.float64), np.maximum(variance, 1e-10).astype(np.float64)

    def samples(
        self, rows: npt.NDArray[np.int64], values: Vector, at: npt.NDArray[np.int64], draws: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Joint samples of the values at ``at``, one a row of the standard normal ``draws`` (samples, rows)."""
        from scipy.linalg import cholesky, solve_triangular

        lower, across = self._factored(rows, at)
        known = solve_triangular(lower, values, lower=True, check_finite=False)
        wide = across.astype(np.float64)
        joint = self._covariance(at, at, np.float64) - wide.T @ wide
        joint[np.diag_indices(len(at))] += 1e-4
        spread = cholesky(joint, lower=True, check_finite=False)
        return np.asarray(known @ wide + draws @ spread.T, dtype=np.float64)

    def _factor(self, rows: npt.NDArray[np.int64]) -> Vector:
        """The Cholesky factor L of the covariance of what was seen."""
        from scipy.linalg import cholesky

        among = self._covariance(rows, rows, np.float64)
        among[np.diag_indices(len(rows))] += math.exp(self._theta[-1]) + _JITTER
        return np.asarray(cholesky(among, lower=True, check_finite=False))

    def _factored(self, rows: npt.NDArray[np.int64], at: npt.NDArray[np.int64]) -> tuple[Vector, Matrix]:
        """L, and L⁻¹ times the covariance of what was seen with ``at``."""
        from scipy.linalg import solve_triangular

        lower, across = self._factor(rows), self._covariance(rows, at)
        return lower, solve_triangular(lower.astype(np.float32), across, lower=True, check_finite=False)

    def _covariance(
        self, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64], kind: type = np.float32
    ) -> npt.NDArray[Any]:
        # Single precision is enough between what was seen and what was not, where most of the work is; what is
        # factored needs double.
        weights = np.exp(-self._theta[:-2])
        a: npt.NDArray[Any] = (self._features[first] * weights).astype(kind)
        b: npt.NDArray[Any] = (self._features[second] * weights).astype(kind)
        squared: npt.NDArray[Any] = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2.0 * (a @ b.T)
        np.maximum(squared, 0.0, out=squared)
        scaled = np.sqrt(squared)
        scaled *= -_ROOT5
        squared *= 5.0 / 3.0
        squared -= scaled
        squared += 1.0
        np.exp(scaled, out=scaled)
        squared *= scaled
        squared *= math.exp(self._theta[-2])
        return squared

    def _loss(self, theta: Vector, apart: Vector, values: Vector) -> tuple[float, Vector]:
        """Minus the logarithm of evidence times prior (without constants), and its gradient."""
        from scipy.linalg import LinAlgError, cho_solve, cholesky

        weights, signal, noise = np.exp(-2.0 * theta[:-2]), math.exp(theta[-2]), math.exp(theta[-1])
        squared = np.tensordot(weights, apart, 1)
        distance = _ROOT5 * np.sqrt(squared)
        decay = np.exp(-distance)
        shape = (1.0 + distance + 5.0 / 3.0 * squared) * decay
        among = signal * shape
        among[np.diag_indices(len(values))] += noise + _JITTER
        off = (theta - self._mean) / self._spread
        try:
            lower = cholesky(among, lower=True, check_finite=False)
        except LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = cho_solve((lower, True), np.eye(len(values)), check_finite=False)
        weighed = inverse @ values
        loss = 0.5 * values @ weighed + np.log(np.diag(lower)).sum() + 0.5 * np.square(off).sum()
        slope = 0.5 * (inverse - np.outer(weighed, weighed))
        by_squared = slope * (-5.0 / 6.0 * signal) * (1.0 + distance) * decay
        gradient = np.empty_like(theta)
        gradient[:-2] = np.tensordot(apart, by_squared, 2) * (-2.0 * weights)
        gradient[-2] = (slope * shape).sum() * signal
        gradient[-1] = np.trace(slope) * noise
        return float(loss), gradient + off / self._spread
