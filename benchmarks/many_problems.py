"""What it is worth to tune many problems at once: the same problems one after the other, together, and on one budget.

    python -m benchmarks.many_problems --problems examples/problems.yaml --seconds 20 [--gpus 0,1] [--out many.json]

Each way begins with an empty cache and an empty database, and has as much time: ``--seconds`` a problem. It prints a
Markdown table: wall time, configs tried, the part of the wall time in which a GPU worked for a study (of several GPUs
the mean), and the winners' gain over the plain configs (geometric mean). ``--trials N --estimated``: the same without a
GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tuner
from tuner.cli.budget import read_gpus
from tuner.problems_file import load_problems
from tuner.results import TuneResult


@dataclass(frozen=True)
class Way:
    """What one way of tuning came to. ``gain``: geometric mean over the problems with a plain config's time."""

    name: str
    wall_s: float
    configs: int
    winners: int
    gpu_busy_share: float
    gain: float


def way(name: str, wall_s: float, gpus: int, outcomes: list[Any]) -> Way:
    """The figures of ``outcomes``, of which those that are no result count as nothing."""
    results = [outcome for outcome in outcomes if isinstance(outcome, TuneResult)]
    gains = [r.winner.record.speedup for r in results if r.winner is not None and r.winner.record.speedup]
    return Way(
        name=name,
        wall_s=wall_s,
        configs=sum(r.study.trials for r in results),
        winners=sum(r.winner is not None for r in results),
        gpu_busy_share=sum(r.study.gpu_busy_s for r in results) / (wall_s * gpus),
        gain=math.exp(sum(map(math.log, gains)) / len(gains)) if gains else 1.0,
    )


def table(ways: list[Way]) -> str:
    """The ways as a Markdown table."""
    head = "| way | wall s | configs | winners | GPU busy | gain over plain |\n|---|---|---|---|---|---|\n"
    return head + "\n".join(
        f"| {w.name} | {w.wall_s:.1f} | {w.configs} | {w.winners} | {w.gpu_busy_share:.0%} | {w.gain:.3f} |"
        for w in ways
    )


def main() -> None:
    """Tune in each way, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--problems", default="examples/problems.yaml")
    parser.add_argument("--seconds", type=float, help="a problem; needed unless --trials is given")
    parser.add_argument("--trials", type=int, help="most configs a problem")
    parser.add_argument("--gpus", help="such as 0,1; one way only: together")
    parser.add_argument("--estimated", action="store_true", help="without a GPU")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    problems = [request.problem for request in load_problems(arguments.problems)]
    gpus = read_gpus(arguments.gpus)
    seconds, trials = arguments.seconds, arguments.trials

    def one_by_one(session: tuner.Session) -> list[Any]:
        return [session.tune(problem, time_s=seconds, trials=trials) for problem in problems]

    def together(session: tuner.Session) -> list[Any]:
        return session.tune_many(problems, time_s=seconds, trials=trials)

    def on_one_budget(session: tuner.Session) -> list[Any]:
        return session.tune_many(problems, total_s=seconds * len(problems), trials=trials)

    runs: dict[str, Callable[[tuner.Session], list[Any]]] = {"together": together}
    if gpus is None:
        runs = {"one after the other": one_by_one, **runs}
        if seconds is not None:
            runs["on one budget"] = on_one_budget
    ways = []
    for name, run in runs.items():
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TUNER_CACHE"] = f"{folder}/cache"
            started = time.monotonic()
            with tuner.Session(db=f"{folder}/tuner.db", gpu=not arguments.estimated, gpus=gpus) as session:
                outcomes = run(session)
            ways.append(way(name, time.monotonic() - started, len(gpus or [0]), outcomes))
    print(table(ways))
    if arguments.out:
        arguments.out.write_text(json.dumps([asdict(each) for each in ways], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
