"""What it costs to ask for a winner at run time: ``tuner.lookup`` and an exported package, once warm.

    python -m benchmarks.lookup

Needs no GPU: a database of made-up winners is asked. Prints nanoseconds a call, the loop's own cost taken off, and what
the calls did beside: files that were opened, and locks that were taken.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tuner
from tuner.device import Stack
from tuner.operators import get
from tuner.problem import Problem
from tuner.rendering import render
from tuner.space import load_space
from tuner.store.records import WINNER, StudySpec, WinnerRecord
from tuner.store.store import Store
from tuner.targets import target
from tuner.trial import CheckReport, FamilyReport, Outcome, TrialRecord

LIMIT_NS = 2000.0
CALLS = 200_000
REPEATS = 9
SHAPES = [(rows, cols) for rows in (64, 256, 1024, 4096, 16384) for cols in (512, 1024, 2048, 4096, 8192, 16384)]


def main() -> int:
    """Prints the table. Returns 1 where a look-up takes longer than ``LIMIT_NS``."""
    with tempfile.TemporaryDirectory(prefix="tuner-lookup-") as name:
        folder = Path(name)
        database = make_database(folder / "tuner.db")
        tuner.export("python", folder / "tuned_lookup", db=database)
        sys.path.insert(0, name)
        rows = measure(database)
    print(f"{len(SHAPES)} tuned shapes; Python {sys.version.split()[0]}; median of {REPEATS} runs of {CALLS} calls")
    print(f"{'look-up':<54} {'ns a call':>10} {'files':>6} {'locks':>6}")
    for label, ns, opened, locked in rows:
        print(f"{label:<54} {ns:>10.0f} {opened:>6} {locked:>6}")
    return int(any(ns > LIMIT_NS or opened or locked for _, ns, opened, locked in rows))


def measure(database: str) -> list[tuple[str, float, int, int]]:
    """Label, nanoseconds a call, files opened and locks taken during a thousand calls."""
    import torch
    import tuned_lookup

    table = tuner.lookup("softmax", db=database)
    problem = tuner.make_problem("softmax", {"rows": 1024, "cols": 4096}, "bf16")
    tuned_lookup.use_device(table.device)
    bf16, best = torch.bfloat16, tuned_lookup.best
    calls: list[tuple[str, Callable[[], object]]] = [
        ("tuner.lookup(...).best(dtype, shape)", lambda: table.best("bf16", (1024, 4096, 4096))),
        ("tuner.lookup(...).of(problem)", lambda: table.of(problem)),
        ("package.best(...), a tuned shape", lambda: best("softmax", bf16, (1024, 4096), (), -1)),
        ("package.best(...), a shape that was not tuned", lambda: best("softmax", bf16, (1000, 3000), (), -1)),
    ]
    assert all(call() is not None for _, call in calls)  # warm
    return [(label, nanoseconds(call), *beside(call)) for label, call in calls]


def nanoseconds(call: Callable[[], object]) -> float:
    """The median over runs, less what an empty call costs."""

    def run(function: Callable[[], object]) -> float:
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            function()
        return (time.perf_counter_ns() - start) / CALLS

    nothing = statistics.median(run(lambda: None) for _ in range(REPEATS))
    return statistics.median(run(call) for _ in range(REPEATS)) - nothing


def beside(call: Callable[[], object]) -> tuple[int, int]:
    """How often a thousand calls opened a file (by Python's audit events) and entered a lock (by a profiler)."""
    opened, locked = 0, 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal locked
        name = getattr(argument, "__qualname__", "")
        locked += event == "c_call" and "lock" in name.lower()

    with _audited() as events:
        sys.setprofile(profile)
        for _ in range(1000):
            call()
        sys.setprofile(None)
        opened = sum(event == "open" for event in events)
    return opened, locked


_events: list[str] | None = None
_hooked = False


@contextmanager
def _audited() -> Iterator[list[str]]:
    global _events, _hooked
    if not _hooked:  # a hook cannot be taken off again
        sys.addaudithook(lambda event, arguments: _events.append(event) if _events is not None else None)
        _hooked = True
    _events = found = []
    try:
        yield found
    finally:
        _events = None


def make_database(path: Path) -> str:
    """A database with a winner for each of ``SHAPES``, in bf16 on an H200. The times are made up."""
    device = target("h200")
    stack = Stack("measured", "3.9.0", "2.13.0", "ptxas 13.0", "580.159", "13.0")
    space = load_space("softmax")
    with Store.open(str(path)) as store:
        for rows, cols in SHAPES:
            problem = get("softmax").problem({"rows": rows, "cols": cols}, "bf16")
            bound = space.bind(problem, device)
            config = bound.plain()[0]
            study = store.start_study(
                StudySpec(
                    problem=problem, device=device, stack=stack, space_name="softmax", space_digest=bound.digest,
                    space_text=space.path.read_text(encoding="utf-8"), sampler="tpe", seed=0, protocol="graph-1",
                )
            )  # fmt: skip
            variant = render(bound.template(config), dict(config.switches), stack.triton)
            us = rows * cols / 1e6 + 2.0
            record = TrialRecord(config, variant.hash, Outcome.TIMED, value_us=us, check_report=_passed(problem))
            trial = store.record_trial(study.id, record, variant)
            store.record_winner(study.id, WinnerRecord(trial, WINNER, "made up", us, us, us, estimated=False))
            store.finish_study(study.id, "finished", 1.0, 0.0)
    return str(path)


def _passed(problem: Problem) -> CheckReport:
    families = get(problem.operator).families(problem)
    return CheckReport(tuple(FamilyReport(f, problem.label, True, 0.5, 1e-4, 2e-4) for f in families), 0, 0.1)


if __name__ == "__main__":
    sys.exit(main())
