"""Sends configs of the shipped spaces through the check, which none of them should fail, and times it.

    python -m benchmarks.false_alarms --out false_alarms.json --seconds 20 [--dtypes bf16,fp16,fp32] [--small]

Each benchmark problem in each dtype gets ``--seconds``; its configs come in a random order that differs by ``--seed``,
all of them where the time suffices. ``--small`` takes small problems instead, for a machine without a GPU, where the
check runs in Triton's interpreter.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.problems import ATTENTION, SOFTMAX, attention_problem, softmax_problem
from tuner.machine import Machine
from tuner.problem import Problem
from tuner.session import make_funnel
from tuner.space import load_space
from tuner.tickets import TicketOffice
from tuner.trial import Outcome, TrialRecord
from tuner.workspace import Workspace

SMALL_SOFTMAX = [(300, 1000), (40, 20000)]
SMALL_ATTENTION = [(2, 4, 300, 64, False), (2, 4, 300, 64, True)]
# What ends a config before the check says anything of it.
NOT_CHECKED = (Outcome.COMPILE_ERROR, Outcome.OUT_OF_RESOURCES)


def problems(dtypes: list[str], small: bool) -> Iterator[Problem]:
    """The benchmark problems (or small ones) in each dtype."""
    for dtype in dtypes:
        yield from (softmax_problem(*shape, dtype) for shape in (SMALL_SOFTMAX if small else SOFTMAX))
        yield from (attention_problem(*shape, dtype) for shape in (SMALL_ATTENTION if small else ATTENTION))


def records(machine: Machine, problem: Problem, seconds: float, seed: int) -> tuple[int, list[TrialRecord]]:
    """How many configs the space has, and what became of those that there was time for."""
    bound = load_space(problem.operator).bind(problem, machine.device, gpu=machine.measures)
    office = TicketOffice(bound, machine.workspace, machine.stack.triton)
    configs = list(bound.configs())
    random.Random(seed).shuffle(configs)
    funnel = make_funnel(machine, problem, office.candidate(bound.plain()[0]), seed)
    done: list[TrialRecord] = []
    waiting = iter(configs)
    exhausted = False
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not (exhausted and not funnel.in_flight):
        while not exhausted and funnel.capacity() > 0:
            config = next(waiting, None)
            exhausted = config is None
            if config is not None:
                funnel.submit(office.ticket(config))
        done.extend(record for _, record in funnel.poll(0.1))
    funnel.abandon()
    return len(configs), done


def row(problem: Problem, size: int, done: list[TrialRecord]) -> dict[str, Any]:
    """One line of the table. ``alarms`` are configs that the check refused, with its reasons."""
    checked = [r for r in done if r.outcome not in NOT_CHECKED]
    ms = sorted(1e3 * r.seconds["check"] for r in checked if "check" in r.seconds)
    return {
        "problem": problem.label,
        "configs": size,
        "checked": len(checked),
        "alarms": [f"{r.config.label}: {r.reason}" for r in checked if r.outcome is Outcome.WRONG],
        "outcomes": dict(Counter(str(r.outcome) for r in done)),
        "check_ms_median": statistics.median(ms) if ms else None,
        "check_ms_p95": ms[math.ceil(0.95 * len(ms)) - 1] if ms else None,
        "worst_ratio": max((r.check_report.worst_ratio for r in checked if r.check_report), default=None),
    }


def main() -> None:
    """Check, print a line a problem, write the JSON file after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--dtypes", default="bf16,fp16,fp32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with Machine(Workspace(), gpu=False if arguments.small else None) as machine:
        for problem in problems(arguments.dtypes.split(","), arguments.small):
            size, done = records(machine, problem, arguments.seconds, arguments.seed)
            line = row(problem, size, done)
            rows.append(line)
            arguments.out.write_text(json.dumps(rows, indent=1))
            median, p95 = line["check_ms_median"], line["check_ms_p95"]
            cost = f"{median:.0f} ms (p95 {p95:.0f})" if median else "-"
            print(
                f"{line['problem']}: {line['checked']} of {size} configs checked, {len(line['alarms'])} false alarms, "
                f"check {cost}, worst error/bound {line['worst_ratio'] or 0.0:.2f}; {line['outcomes']}",
                flush=True,
            )
            for alarm in line["alarms"][:3]:
                print(f"    {alarm}")
    checked, alarms = sum(r["checked"] for r in rows), sum(len(r["alarms"]) for r in rows)
    print(f"{alarms} false alarms in {checked} checks")
    raise SystemExit(1 if alarms else 0)


if __name__ == "__main__":
    main()
