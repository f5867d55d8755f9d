"""Which sampler finds more with less: all samplers, and strategies of other autotuners, over recorded spaces.

    python -m benchmarks.samplers FOLDER --seeds 20 --budget 100 --chosen-on conv15 --out SAMPLERS.md

Every search is answered from the recordings in FOLDER (``docs/search.md`` has the formats); nothing is run.
``--chosen-on`` names the spaces on which the default sampler's settings were chosen: they are marked in the table.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.local_strategies import STRATEGIES, Rows
from tuner.replay.reading import read_recording
from tuner.replay.recording import Recording
from tuner.replay.report import Found, found_after, overheads_ms
from tuner.replay.simulating import Step, simulate
from tuner.search import SAMPLERS

LONGEST_STALL = 100_000
"""Proposals without a new config after which a strategy is stuck, and its search ends."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the recordings")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=100, help="distinct configs that a search may try")
    parser.add_argument("--only", help="samplers, with commas; default: all but exhaustive and gp")
    parser.add_argument("--chosen-on", default="", help="beginnings of spaces' names, with commas")
    parser.add_argument("--out", type=Path, help="write the tables there (Markdown)")
    given = parser.parse_args(arguments)
    paths = sorted(p for p in given.folder.iterdir() if p.name.endswith((".csv.gz", ".csv", ".json", ".json.gz")))
    known = [*(name for name in SAMPLERS if name not in ("exhaustive", "random")), *STRATEGIES]
    wanted = given.only.split(",") if given.only else [name for name in known if name != "gp"]
    if not paths or (unknown := [name for name in wanted if name not in known]):
        sys.exit(
            f"unknown: {', '.join(unknown)}; known are {', '.join(known)}" if paths else f"{given.folder}: no recording"
        )
    recordings = [read_recording(path) for path in paths]
    chosen_on = tuple(given.chosen_on.split(",")) if given.chosen_on else ()
    marks = [n for n in (25, 50, 100, 200) if n < given.budget] + [given.budget]
    found: dict[str, dict[str, list[Found]]] = {}
    overheads: dict[str, list[tuple[float, float]]] = {}
    for name in wanted:
        for recording in recordings:
            started = time.monotonic()
            searches = [search(recording, name, given.budget, seed) for seed in range(given.seeds)]
            found.setdefault(name, {})[recording.name] = [found_after(searches, recording.best_us, n) for n in marks]
            overheads.setdefault(name, []).append(overheads_ms(searches))
            print(f"{name} on {recording.name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    text = report(recordings, marks, found, overheads, chosen_on, given.seeds)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    print(text)


def search(recording: Recording, name: str, budget: int, seed: int) -> Sequence[Step]:
    """One search, with a sampler or a baseline."""
    if name not in STRATEGIES:
        return simulate(recording, name, budget, seed)
    rows, rng = Rows(recording), np.random.default_rng(seed)
    strategy = STRATEGIES[name](rows, rng)
    tried: dict[int, None] = {}
    steps: list[Step] = []
    best_us, cost_s, stalled = math.inf, 0.0, 0
    row = next(strategy)
    while True:
        if row in tried:
            stalled += 1
        else:
            stalled = 0
            tried[row] = None
            best_us, cost_s = min(best_us, rows.times[row]), cost_s + recording.rows[row].cost_s
            steps.append(Step(best_us, cost_s, 0.0))
        if len(steps) >= budget or stalled > LONGEST_STALL:
            return steps
        try:
            row = strategy.send(rows.times[row])
        except StopIteration:
            return steps


def report(
    recordings: Sequence[Recording],
    marks: Sequence[int],
    found: dict[str, dict[str, list[Found]]],
    overheads: dict[str, list[tuple[float, float]]],
    chosen_on: tuple[str, ...],
    seeds: int,
) -> str:
    """The tables as Markdown."""
    stack = ", ".join(f"{name} {version(name)}" for name in ("optuna", "numpy", "scipy"))
    lines = [
        "# Samplers on recorded spaces",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}; {stack}; seeds 0 to {seeds - 1}. Printed by `python -m benchmarks.samplers`.",
        "",
        "Best recorded time over best time found, in percent: median / 10th percentile over the seeds, after so many",
        "distinct configs (failures count). `tpe`, `qmc` and `gp` are Optuna's, moved to the nearest untried valid",
        "config; the others are in `benchmarks/local_strategies.py`. Overhead: CPU milliseconds a suggestion.",
        "",
        "| space | configs | fail | settings chosen on it |",
        "|---|---|---|---|",
    ]
    for r in recordings:
        lines.append(f"| {r.name} | {len(r.rows)} | {r.failed} | {'yes' if r.name.startswith(chosen_on) else 'no'} |")
    for at, mark in enumerate(marks):
        lines += [
            "",
            f"## After {mark}",
            "",
            f"| sampler | {' | '.join(r.name for r in recordings)} | mean of medians |",
        ]
        lines.append("|---" * (len(recordings) + 2) + "|")
        for name, spaces in found.items():
            cells = [
                f"{100 * spaces[r.name][at].median:.1f} / {100 * spaces[r.name][at].tenth:.1f}" for r in recordings
            ]
            mean = fmean(spaces[r.name][at].median for r in recordings)
            lines.append(f"| {name} | {' | '.join(cells)} | {100 * mean:.1f} |")
    lines += ["", "## Overhead", "", "| sampler | mean ms | longest ms |", "|---|---|---|"]
    for name, pairs in overheads.items():
        if name not in STRATEGIES:
            lines.append(f"| {name} | {fmean(mean for mean, _ in pairs):.1f} | {max(most for _, most in pairs):.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
