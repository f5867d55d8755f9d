"""Many searches with one sampler over one recorded space."""

from __future__ import annotations

from tuner.replay.recording import Recording
from tuner.replay.report import (
    TIME_SHARES,
    AtEvaluations,
    AtTime,
    ReplayResult,
    found_after,
    found_within,
    overheads_ms,
    typical_seconds,
)
from tuner.replay.simulating import simulate

MARKS = (10, 20, 25, 50, 100, 200, 500, 1000)
"""Evaluations at which searches are looked at, beside the end."""


def replay_one(recording: Recording, sampler: str, budget: int, seeds: int) -> ReplayResult:
    """One sampler on one recorded space, ``seeds`` times (seeds 0, 1, ...) for ``budget`` evaluations."""
    searches = [simulate(recording, sampler, budget, seed) for seed in range(seeds)]
    best_us = recording.best_us
    marks = [n for n in MARKS if n < budget] + [budget]
    whole_s = typical_seconds(searches)
    mean_ms, most_ms = overheads_ms(searches)
    return ReplayResult(
        space=recording.name,
        sampler=sampler,
        configs=len(recording.rows),
        failed=recording.failed,
        best_us=best_us,
        budget=budget,
        seeds=seeds,
        by_evaluations=tuple(AtEvaluations(n, found_after(searches, best_us, n)) for n in marks),
        by_time=tuple(
            AtTime(p * whole_s, found_within(searches, best_us, p * whole_s)) for p in TIME_SHARES if whole_s
        ),
        overhead_ms=mean_ms,
        slowest_ms=most_ms,
    )
