"""How many configs a study tries until it is within 2 % of the best: cold, and begun with a similar problem's winner.

    python -m benchmarks.transfer a.db b.db ... --seeds 20 [--budget 200] [--out transfer.json]

Each database holds a study that has tried every config of a problem (``tuner record ... --db a.db``, or what
``benchmarks.time_to_best`` leaves). Of every two problems of one operator each is searched with the other's winner, its
values moved to the nearest valid config where that is not valid, as ``tuner tune`` does; every config is answered from
its study, so that a search can be had with many seeds. A search that does not get there counts as ``--budget``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from statistics import median

import tuner
from tuner.config import Config
from tuner.replay.recording import Recording
from tuner.replay.simulating import simulate
from tuner.space import BoundSpace, load_space
from tuner.study_recording import chosen_only, recording_of

WITHIN = 0.98


@dataclass(frozen=True)
class Swept:
    """A problem of which every config was tried, and the fastest of them."""

    label: str
    operator: str
    bound: BoundSpace
    recording: Recording
    winner: Config


@dataclass(frozen=True)
class Row:
    """Configs until ``WITHIN`` of the best, in the middle of the seeds."""

    source: str
    target: str
    configs: int
    cold: float
    begun: float


def swept(db: str) -> list[Swept]:
    """The problems of ``db`` whose study is of every config."""
    found = []
    for summary in tuner.studies(db=db):
        if summary.trials < summary.space_size:
            continue
        detail = tuner.show(summary.name, db=db)
        bound = load_space(summary.problem.operator).bind(summary.problem, detail.device, gpu=True)
        recording = recording_of(summary.name, detail, bound.plain())
        timed = [(e.trial.value_us, e.trial.config) for e in detail.trials if e.trial.value_us is not None]
        winner = min(timed, key=lambda pair: pair[0])[1]
        found.append(Swept(summary.problem.label, summary.problem.operator, bound, recording, winner))
    return found


def trials_to(recording: Recording, seed: int, budget: int, similar: Sequence[Config]) -> int:
    """How many configs one search tries until it is there; ``budget`` where it is not."""
    steps = simulate(recording, "auto", budget, seed, similar)
    return next((n for n, step in enumerate(steps, 1) if step.best_us <= recording.best_us / WITHIN), budget)


def compared(source: Swept, target: Swept, seeds: int, budget: int) -> Row:
    """``target`` searched cold, and begun with the winner of ``source``."""
    nearest = target.bound.nearest(source.winner)
    similar = [] if nearest is None else [chosen_only(nearest)]
    cold, begun = (
        median(trials_to(target.recording, seed, budget, given) for seed in range(seeds)) for given in ([], similar)
    )
    return Row(source.label, target.label, target.recording.size(), cold, begun)


def table(rows: Sequence[Row]) -> str:
    """In Markdown; the last column is the part of the cold study's configs that was needed."""
    lines = ["| winner of | searched | configs | cold | begun with it | part |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {r.source} | {r.target} | {r.configs} | {r.cold:g} | {r.begun:g} | {r.begun / r.cold:.2f} |" for r in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Compare every two, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("databases", nargs="+")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    known = [each for db in given.databases for each in swept(db)]
    rows = []
    for source, target in permutations(known, 2):
        if source.operator == target.operator and source.label != target.label:
            rows.append(compared(source, target, given.seeds, given.budget))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    print(table(rows))
    if given.out:
        given.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
