"""What replayed searches found, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.cli.output import say
from tuner.cli.tables import print_table

if TYPE_CHECKING:
    from tuner.replay.report import Found, ReplayResult


def print_replays(results: Sequence[ReplayResult]) -> None:
    """Two tables, by configs tried and by time, and what the numbers mean."""
    rows = [
        (r.space, r.sampler, at.evaluations, *_percent(at.found), f"{r.overhead_ms:.1f} ms")
        for r in results
        for at in r.by_evaluations
    ]
    columns = ("space", "sampler", "tried", "median", "10th percentile", "a suggestion")
    print_table("by configs tried", columns, rows, right=columns[2:])
    timed = [(r.space, r.sampler, f"{at.seconds:.0f} s", *_percent(at.found)) for r in results for at in r.by_time]
    of_time = ("space", "sampler", "tuning", "median", "10th percentile")
    print_table("by recorded time of compiling, checking and timing", of_time, timed, right=of_time[2:])
    for result in {r.space: r for r in results}.values():
        say(
            f"{result.space}: {result.configs} valid configs, {result.failed} of them fail, best {result.best_us:.4g} "
            f"us; percent: best recorded over best found, {result.seeds} seeds"
        )


def _percent(found: Found) -> tuple[str, str]:
    return f"{100.0 * found.median:.1f} %", f"{100.0 * found.tenth:.1f} %"
