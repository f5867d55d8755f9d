"""``tuner.replay_search``: samplers on recorded spaces, without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tuner.errors import UsageError
from tuner.replay.reading import read_recording
from tuner.replay.replaying import replay_one
from tuner.replay.report import ReplayResult
from tuner.search import DEFAULT_SAMPLER, check_sampler

DEFAULT_BUDGET, DEFAULT_SEEDS = 100, 20


def replay_search(
    spaces: Iterable[str | Path],
    *,
    samplers: Sequence[str] = (DEFAULT_SAMPLER,),
    budget: int = DEFAULT_BUDGET,
    seeds: int = DEFAULT_SEEDS,
) -> list[ReplayResult]:
    """Run searches over recorded spaces (files; ``docs/search.md`` has the formats) and say how near each comes.

    Each of ``samplers`` searches each space ``seeds`` times (seeds 0, 1, ...) for ``budget`` evaluations. Nothing is
    compiled or timed: what a config would give, and what trying it would take, is recorded. Raises ``UsageError`` for a
    file that is no recording, an unknown sampler, or a budget or number of seeds below 1.
    """
    for name in samplers:
        check_sampler(name)
    for what, number in (("budget", budget), ("number of seeds", seeds)):
        if number < 1:
            raise UsageError(f"the {what} must be at least 1, but is {number}")
    recordings = [read_recording(path) for path in spaces]
    return [replay_one(r, sampler, budget, seeds) for r in recordings for sampler in samplers]
