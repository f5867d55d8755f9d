"""What many searches over one recorded space found: medians and 10th percentiles. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from tuner.replay.simulating import Step

TIME_SHARES = (0.1, 0.25, 0.5, 1.0)
"""Parts of the tuning time at which a search is looked at."""


@dataclass(frozen=True)
class Found:
    """How near searches were at one point: best recorded time over best found, 1 being the best; 0 before the first
    config with a time. ``median`` and ``tenth`` (10th percentile) are over the seeds."""

    median: float
    tenth: float


@dataclass(frozen=True)
class AtEvaluations:
    """After so many evaluations of distinct configs."""

    evaluations: int
    found: Found


@dataclass(frozen=True)
class AtTime:
    """After so many recorded seconds of compiling, checking and timing."""

    seconds: float
    found: Found


@dataclass(frozen=True)
class ReplayResult:
    """One sampler on one recorded space. ``overhead_ms``: CPU milliseconds a suggestion, on average; ``slowest_ms``:
    the longest of all, over all seeds."""

    space: str
    sampler: str
    configs: int
    failed: int
    best_us: float
    budget: int
    seeds: int
    by_evaluations: tuple[AtEvaluations, ...]
    by_time: tuple[AtTime, ...]
    overhead_ms: float
    slowest_ms: float


def found_after(searches: Sequence[Sequence[Step]], best_us: float, evaluations: int) -> Found:
    """How near the searches are after ``evaluations``, or at their end where the space was used up before."""
    return _found([best_us / s[min(evaluations, len(s)) - 1].best_us for s in searches])


def found_within(searches: Sequence[Sequence[Step]], best_us: float, seconds: float) -> Found:
    """How near the searches are after ``seconds`` of recorded tuning."""
    return _found([best_us / next((s.best_us for s in reversed(x) if s.cost_s <= seconds), math.inf) for x in searches])


def typical_seconds(searches: Sequence[Sequence[Step]]) -> float:
    """The recorded seconds of tuning that the median search takes for its whole budget."""
    return median(search[-1].cost_s for search in searches)


def overheads_ms(searches: Sequence[Sequence[Step]]) -> tuple[float, float]:
    """CPU milliseconds a suggestion: the mean, and the longest."""
    all_ms = [1000.0 * step.suggesting_s for search in searches for step in search]
    return fmean(all_ms), max(all_ms)


def _found(scores: Sequence[float]) -> Found:
    """The 10th percentile is interpolated linearly between order statistics."""
    ordered = sorted(scores)
    place = 0.1 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return Found(median(ordered), ordered[low] + (place - low) * (ordered[high] - ordered[low]))
