"""Sends configs of the shipped spaces through the check, which none of them should fail, and times it.

    python -m benchmarks.false_alarms --out false_alarms.json --seconds 20 [--only softmax attention_fwd] [--small]

Each benchmark problem in each of ``--dtypes`` gets ``--seconds``; its configs come in a random order that differs by
``--seed``, all of them where the time suffices. ``--only`` names operators; else all have their turn. ``--small`` takes
small problems instead, for a machine without a GPU, where the check runs in Triton's interpreter.

With ``--record FILE`` what passed, and what does not compile, is written down and left out by the next run, so that
every config can be checked in several sessions: run the same command until nothing is left. ``--shard 2/3`` takes the
second third of every problem's configs, whatever else is given; the records of all shards in one file are one record.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.alarm_problems import operators, problems
from benchmarks.alarm_record import Record, Subject, Totals
from tuner.canonical import digest
from tuner.config import Config
from tuner.machine import Machine
from tuner.problem import Problem
from tuner.space import load_space
from tuner.study_opening import make_funnel
from tuner.tickets import TicketOffice
from tuner.trial import Outcome, TrialRecord
from tuner.workspace import Workspace

# What ends a config before the check says anything of it.
NOT_CHECKED = (Outcome.COMPILE_ERROR, Outcome.OUT_OF_RESOURCES)


@dataclass(frozen=True)
class Shard:
    """The ``number``-th of ``count`` parts, from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """From ``2/3``. Raises ``ValueError``."""
        number, slash, count = text.partition("/")
        shard = cls(int(number), int(count)) if slash else cls(0, 0)
        if not 1 <= shard.number <= shard.count:
            raise ValueError(text)
        return shard

    def has(self, problem: Problem, config: Config) -> bool:
        """Whether this config is of this part. It stays so whatever is added to the search space."""
        return int(digest([problem.key, config.key])[:15], 16) % self.count == self.number - 1


class Run:
    """The configs of one problem on their way through the check."""

    def __init__(self, machine: Machine, problem: Problem, shard: Shard) -> None:
        self._machine, self._problem = machine, problem
        self._bound = load_space(problem.operator).bind(problem, machine.device, gpu=machine.measures)
        self._office = TicketOffice(self._bound, machine.workspace, machine.stack.triton)
        self.configs = [config for config in self._bound.configs() if shard.has(problem, config)]

    def subject(self, config: Config) -> Subject:
        """What a verdict on ``config`` is of."""
        source, stack = self._office.variant(config).hash, self._machine.stack
        device = self._machine.device.name if self._machine.measures else f"interpreter ({self._machine.device.name})"
        return Subject(self._problem.key, self._problem.dtype, config.label, source, stack.triton, device)

    def records(self, record: Record, seconds: float, seed: int) -> list[TrialRecord]:
        """What became of those that ``record`` has not seen and there was time for; each is added to it."""
        left = [config for config in self.configs if not record.is_done(self.subject(config))]
        if not left:
            return []
        random.Random(seed).shuffle(left)
        funnel = make_funnel(self._machine, self._problem, self._office.candidate(self._bound.plain()[0]), seed)
        done: list[TrialRecord] = []
        waiting = iter(left)
        exhausted = False
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (exhausted and not funnel.in_flight):
            while not exhausted and funnel.capacity() > 0:
                config = next(waiting, None)
                exhausted = config is None
                if config is not None:
                    funnel.submit(self._office.ticket(config))
            for _, found in funnel.poll(0.1):
                record.add(self.subject(found.config), found.outcome)
                done.append(found)
        funnel.abandon()
        return done


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


def said(line: dict[str, Any]) -> str:
    """A row of the table in words, with its first alarms."""
    median, p95 = line["check_ms_median"], line["check_ms_p95"]
    cost = f"{median:.0f} ms (p95 {p95:.0f})" if median else "-"
    words = (
        f"{line['problem']}: {line['checked']} of {line['configs']} configs checked, {len(line['alarms'])} false "
        f"alarms, check {cost}, worst error/bound {line['worst_ratio'] or 0.0:.2f}; {line['outcomes']}"
    )
    return "\n    ".join([words, *line["alarms"][:3]])


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line says; exits with 2 where it is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each problem")
    parser.add_argument("--dtypes", default="bf16,fp16,fp32")
    parser.add_argument("--only", nargs="+", choices=operators(), metavar="OPERATOR", help="default: all operators")
    parser.add_argument("--record", type=Path, help="JSON lines of what is done, which is left out")
    parser.add_argument("--shard", type=Shard.parse, default=Shard(1, 1), metavar="I/N", help="the I-th of N parts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true")
    return parser.parse_args(words)


def main() -> None:
    """Check, print a line a problem, write the JSON file after each; the totals last."""
    given = arguments()
    try:
        record = Record(given.record)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    rows: list[dict[str, Any]] = []
    totals = Totals()
    with Machine(Workspace(), gpu=False if given.small else None) as machine:
        for problem in problems(given.dtypes.split(","), given.small, given.only):
            run = Run(machine, problem, given.shard)
            rows.append(row(problem, len(run.configs), run.records(record, given.seconds, given.seed)))
            totals.add(problem, (record.end(run.subject(config)) for config in run.configs))
            given.out.write_text(json.dumps(rows, indent=1))
            print(said(rows[-1]), flush=True)
    print(totals.table())
    checked, alarms = sum(r["checked"] for r in rows), sum(len(r["alarms"]) for r in rows)
    print(f"{alarms} false alarms in {checked} checks")
    raise SystemExit(1 if alarms else 0)


if __name__ == "__main__":
    main()
