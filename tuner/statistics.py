"""Summaries of timing samples: medians, intervals, noise, Student's t. Pure functions; samples are positive numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

MAD_TO_SIGMA = 1.4826
"""Standard deviation over median absolute deviation, for normal data (1 / Phi^-1(3/4))."""

SMALLEST_FOR_INTERVAL = 6
"""Fewest samples for which smallest and largest enclose the median with 95 % confidence (1 - 2 / 2^6 = 0.97)."""


@dataclass(frozen=True)
class Summary:
    """Median of samples, its 95 % interval (in the samples' unit), and the relative noise of one sample."""

    median: float
    low: float
    high: float
    noise: float
    count: int

    @property
    def relative_half_width(self) -> float:
        """Half the interval over the median; infinite with fewer than ``SMALLEST_FOR_INTERVAL`` samples."""
        if self.count < SMALLEST_FOR_INTERVAL:
            return math.inf
        return (self.high - self.low) / 2.0 / self.median


def summarise(samples: Sequence[float], confidence: float = 0.95) -> Summary:
    """The summary of ``samples``. Raises ``ValueError`` where there are none."""
    low, high = median_interval(samples, confidence)
    return Summary(median(samples), low, high, robust_noise(samples), len(samples))


def median(samples: Sequence[float]) -> float:
    """The median. Raises ``ValueError`` where there are no samples."""
    _require(samples)
    return float(np.median(np.asarray(samples, dtype=np.float64)))


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """A distribution-free interval for the median: order statistics k and n+1-k, from Binomial(n, 1/2).

    With too few samples for ``confidence`` it is the smallest and the largest, which then cover less. Source: Conover,
    Practical Nonparametric Statistics, section 3.2. Needs no seed, and holds for any distribution of the noise.
    """
    _require(samples)
    ordered = sorted(samples)
    n = len(ordered)
    tail, k = 0.0, 0
    while k < n // 2:
        tail += math.comb(n, k) / 2**n  # of integers: as a float, 2**n overflows from 1024 samples on
        if tail > (1.0 - confidence) / 2.0:
            break
        k += 1
    k = max(1, k)
    return float(ordered[k - 1]), float(ordered[n - k])


def robust_noise(samples: Sequence[float]) -> float:
    """The relative standard deviation of one sample, from the median absolute deviation: outliers do not move it."""
    middle = median(samples)
    deviations = np.abs(np.asarray(samples, dtype=np.float64) - middle)
    return float(MAD_TO_SIGMA * np.median(deviations) / middle)


def stop_sampling(
    samples: Sequence[float], rel_half_width: float, minimum: int = SMALLEST_FOR_INTERVAL, confidence: float = 0.95
) -> bool:
    """Whether the median is known to within ``rel_half_width`` (0.01: one per cent), from at least ``minimum``."""
    if len(samples) < max(minimum, SMALLEST_FOR_INTERVAL):
        return False
    return summarise(samples, confidence).relative_half_width <= rel_half_width


def student_t_upper_tail(t: float, freedom: int) -> float:
    """P(T > t) for Student's t, as half the regularised incomplete beta function (DLMF 8.17)."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    tail = 0.5 * _incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
    return tail if t >= 0 else 1.0 - tail


@cache
def student_t_quantile(probability: float, freedom: int) -> float:
    """The t with P(T <= t) = ``probability``, by bisection. ``probability`` in (0, 1), ``freedom`` at least 1."""
    if not 0.0 < probability < 1.0 or freedom < 1:
        raise ValueError(f"`0 < probability < 1 <= freedom` must hold, but got {probability} and {freedom}")
    if probability < 0.5:
        return -student_t_quantile(1.0 - probability, freedom)
    low, high = 0.0, 2.0
    while student_t_upper_tail(high, freedom) > 1.0 - probability:
        high *= 2.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2.0
        if student_t_upper_tail(middle, freedom) > 1.0 - probability:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), by the continued fraction DLMF 8.17.22 (Lentz's method), on the side where it converges fast."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    tiny = 1e-300
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0), tiny)
    fraction = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for coefficient in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + coefficient * d, tiny)
            c = _away_from_zero(1.0 + coefficient / c, tiny)
            step = d * c
            fraction *= step
        if abs(step - 1.0) < 1e-15:
            break
    return math.exp(log_front) * fraction / a


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


def _require(samples: Sequence[float]) -> None:
    if not len(samples):
        raise ValueError("a summary needs at least one sample")
