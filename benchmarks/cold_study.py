"""One study from an empty cache, as the benchmarks of the search run it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tuner
from tuner.problem import Problem
from tuner.store.records import StoredWinner


def cold_study(
    folder: Path, name: str, problem: Problem, db: str, listen: Callable[[float, object], None], **budget: Any
) -> tuple[dict[str, Any], StoredWinner]:
    """Tune ``problem`` with a cache of its own; ``db`` holds nothing of it yet. The study's figures, and its winner.

    ``listen`` gets the seconds since the start, and each event.
    """
    os.environ["TUNER_CACHE"] = str(folder / f"cache-{name}")
    started = time.monotonic()
    result = tuner.tune(
        problem, db=db, gpu=True, on_event=lambda event: listen(time.monotonic() - started, event), **budget
    )
    assert result.winner is not None
    figures = {
        "seconds": time.monotonic() - started,
        "space": result.study.space_size,
        "trials": result.study.trials,
        "outcomes": dict(result.study.outcomes),
        "gpu_busy_share": result.study.gpu_busy_s / result.study.wall_s,
        "median_us": result.winner.record.median_us,
    }
    return figures, result.winner
