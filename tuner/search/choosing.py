"""Which row of a finite space to try next, learnt from the rows that were tried. Knows neither configs nor Optuna."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from tuner.search.features import Matrix
from tuner.search.surrogate import Surrogate, Vector

Rows = npt.NDArray[np.int64]

START = 6
"""Rows that are spread over the space before the model is asked."""

LEAST_START = 2
"""So many of them even where others, such as plain configs, were tried before."""

LEVEL = 0.7
"""Times above this quantile of those seen count as equal: how bad a bad config is, is not worth learning."""

MOST_ROWS = 20_000
"""Untried rows that are looked at in the beginning."""

FEW_ROWS, FEW_RANDOM, FEW_FROM = 3_000, 1_000, 60
"""From ``FEW_FROM`` observations on: this many rows that looked best last, and this many at random."""

LEAST_HOPE = 0.05
"""The chance that a config works is never taken to be less: what failed around it may have had reasons of its own."""

BETTER = 0.01
"""By how much a config must be faster to count as better."""

_CLUSTERED, _CLUSTER_STEPS = 3_000, 8
_FIT_STEPS = 25
_SAMPLED_ROWS, _SAMPLES = 300, 256


@dataclass(frozen=True)
class Seen:
    """What is known: rows that were tried with the logarithms of their times (NaN: failed), and those in flight."""

    rows: Sequence[int]
    logs: Sequence[float]
    pending: Sequence[int] = ()


class Chooser:
    """Chooses among the rows of ``features``. ``rng`` decides everything that is left to chance."""

    def __init__(self, features: Matrix, rng: np.random.Generator) -> None:
        self._features = features
        self._rng = rng
        self._model, self._failures = Surrogate(features), Surrogate(features)
        # The matrices are small, and compilers keep the other cores busy: a second thread would only wait.
        self._threads = ThreadpoolController()
        self._start: list[int] | None = None
        self._looked_at: Rows = np.zeros(0, dtype=np.int64)
        self._gains: Vector = np.zeros(0)
        self._fitted_at = self._failures_fitted_at = 0
        self._expected_gain: float | None = None

    @property
    def expected_gain(self) -> float | None:
        """What the row chosen last was expected to gain over the best: a share of its time, 0.01 is 1 %.

        None where no model chose it. The improvement of a logarithm is that of the time to first order.
        """
        return self._expected_gain

    def choose(self, seen: Seen, free: npt.NDArray[np.bool_]) -> int:
        """The row to try next, of those that are ``free`` (at least one must be).

        First rows that stand for the parts of the space, then the row of the largest expected improvement, weighed by
        the chance that it works at all. Rows in flight count as what the model expects of them, so that several at once
        spread out.
        """
        with self._threads.limit(limits=1, user_api="blas"):
            return self._choose(seen, free)

    def _choose(self, seen: Seen, free: npt.NDArray[np.bool_]) -> int:
        if self._start is None:
            tried = len(seen.rows) + len(seen.pending)
            self._start = self._spread(max(START - tried, LEAST_START), free)
        while self._start:
            row = self._start.pop(0)
            if free[row]:
                return row
        known = _levelled(seen)
        if known is None:
            return int(self._rng.choice(np.flatnonzero(free)))
        rows, values = np.asarray(seen.rows, dtype=np.int64), known
        self._fit(rows, values)
        best = float(values.min())
        works = self._works(rows, np.isnan(np.asarray(seen.logs, dtype=np.float64)))
        if seen.pending:
            pending = np.asarray(seen.pending, dtype=np.int64)
            expected = self._model.mean(rows, values, pending)
            rows, values = np.concatenate([rows, pending]), np.concatenate([values, expected])
        at = self._rows_to_look_at(len(seen.rows), free)
        mean, variance = self._model.posterior(rows, values, at)
        self._looked_at, self._gains = at, works(at) * _expected_improvement(mean, variance, best)
        _, spread = _scale(np.asarray(seen.logs, dtype=np.float64))
        self._expected_gain = float(self._gains.max()) * spread
        return int(at[int(np.argmax(self._gains))])

    def chance_of_better(self, seen: Seen, free: npt.NDArray[np.bool_]) -> float:
        """How likely it is, says the model, that a free row is faster than the best by ``BETTER`` or more: 0 to 1.

        The share of joint samples of the posterior, at the rows that promise most, whose smallest value is so small. 1
        where the model has nothing to go by.
        """
        if not free.any():
            return 0.0
        known = _levelled(seen)
        if known is None:
            return 1.0
        with self._threads.limit(limits=1, user_api="blas"):
            return self._chance(seen, known, free)

    def _chance(self, seen: Seen, known: Vector, free: npt.NDArray[np.bool_]) -> float:
        logs = np.asarray(seen.logs, dtype=np.float64)
        rows = np.asarray(seen.rows, dtype=np.int64)
        self._fit(rows, known)
        _, spread = _scale(logs)
        wanted = float(known.min()) + math.log1p(-BETTER) / spread
        at = self._rows_to_look_at(0, free)
        mean, variance = self._model.posterior(rows, known, at)
        likely = _below(wanted, mean, variance)
        chosen = at[np.argsort(-likely, kind="stable")[:_SAMPLED_ROWS]]
        draws = self._rng.standard_normal((_SAMPLES, len(chosen)))
        lowest = self._model.samples(rows, known, chosen, draws).min(axis=1)
        return float((lowest < wanted).mean())

    def _fit(self, rows: Rows, values: Vector) -> None:
        # Each time while there is little to go by, then as often as the data grow by an eighth.
        if len(rows) < 24 or len(rows) >= self._fitted_at * 1.125:
            self._model.fit(rows, values, _FIT_STEPS)
            self._fitted_at = len(rows)

    def _works(self, rows: Rows, failed: npt.NDArray[np.bool_]) -> Callable[[Rows], Vector]:
        """A function from rows to the chance that they work. Why a config fails and what makes one slow are two things,
        so failures have a model of their own: with them as 1 and the rest as 0, its mean is the chance of a failure."""
        if not failed.any():
            return lambda at: np.ones(len(at))
        values = failed.astype(np.float64)
        if len(rows) >= self._failures_fitted_at * 1.125:
            self._failures.fit(rows, (values - values.mean()) / (values.std() + 1e-9), _FIT_STEPS)
            self._failures_fitted_at = len(rows)
        return lambda at: np.clip(1.0 - self._failures.mean(rows, values, at), LEAST_HOPE, 1.0)

    def _rows_to_look_at(self, observed: int, free: npt.NDArray[np.bool_]) -> Rows:
        left = np.flatnonzero(free)
        if observed < FEW_FROM or len(left) <= FEW_ROWS + FEW_RANDOM:
            return left if len(left) <= MOST_ROWS else np.sort(self._rng.choice(left, MOST_ROWS, replace=False))
        order = np.argsort(-self._gains, kind="stable")
        last = self._looked_at[order]
        last = last[free[last]][:FEW_ROWS]
        return np.union1d(last, self._rng.choice(left, FEW_RANDOM, replace=False))

    def _spread(self, count: int, free: npt.NDArray[np.bool_]) -> list[int]:
        """Rows near the centres of ``count`` clusters (Lloyd's algorithm) of the free rows, in a random order."""
        left = np.flatnonzero(free)
        rows = self._rng.choice(left, min(len(left), _CLUSTERED), replace=False)
        points = self._features[rows]
        centres = points[self._rng.choice(len(points), min(count, len(points)), replace=False)]
        for _ in range(_CLUSTER_STEPS):
            nearest = _squared_distances(points, centres).argmin(axis=1)
            own = [points[nearest == k] for k in range(len(centres))]
            centres = np.array([p.mean(axis=0) if len(p) else c for p, c in zip(own, centres, strict=True)])
        chosen = dict.fromkeys(int(rows[at]) for at in _squared_distances(points, centres).argmin(axis=0))
        return [int(row) for row in self._rng.permutation(np.array(list(chosen)))]


def _squared_distances(points: Matrix, centres: Matrix) -> Matrix:
    squared = np.square(points).sum(axis=1)[:, None] + np.square(centres).sum(axis=1) - 2.0 * points @ centres.T
    return np.asarray(squared, dtype=np.float32)


def _levelled(seen: Seen) -> Vector | None:
    """Standardised values of what was tried; None where nothing has a time yet, or all times are the same.

    A failure counts as the slowest time seen, and what is above the level as the level.
    """
    logs = np.asarray(seen.logs, dtype=np.float64)
    if not np.isfinite(logs).any():
        return None
    middle, spread = _scale(logs)
    return (_clipped(logs) - middle) / spread


def _clipped(logs: Vector) -> Vector:
    timed = logs[np.isfinite(logs)]
    return np.minimum(np.where(np.isfinite(logs), logs, timed.max()), np.quantile(timed, LEVEL))


def _scale(logs: Vector) -> tuple[float, float]:
    clipped = _clipped(logs)
    return float(clipped.mean()), float(clipped.std()) + 1e-9


def _expected_improvement(mean: Vector, variance: Vector, best: float) -> Vector:
    """Jones, Schonlau and Welch (1998), equation 15."""
    from scipy.special import ndtr

    deviation = np.sqrt(variance)
    by = (best - mean) / deviation
    return np.asarray(deviation * (by * ndtr(by) + np.exp(-0.5 * by * by) / math.sqrt(2.0 * math.pi)))


def _below(limit: float, mean: Vector, variance: Vector) -> Vector:
    from scipy.special import ndtr

    return np.asarray(ndtr((limit - mean) / np.sqrt(variance)))
