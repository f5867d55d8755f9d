"""What ``tuner.regressions`` makes of simulated databases: how often nothing is called something, and 5 % is missed.

    python -m benchmarks.false_regressions [--databases 200]

Needs no GPU. Each database has ten winners that were measured on two stacks; a time is drawn from its sample's noise,
its process's and its session's (relative standard deviations), and a change is put on all of them or on none.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tuner
from tests.stored_history import NEW, OLD, Recorder, config, problem, simulated
from tuner.store.store import Store
from tuner.trial import Measurement

ROWS = 10


@dataclass(frozen=True)
class Case:
    """``change`` is a factor on the later times; ``repeats`` is how many measurements each side has."""

    change: float
    sample: float
    process: float
    session: float
    repeats: int = 1


CASES = (
    Case(1.0, 0.005, 0.001, 0.003),
    Case(1.0, 0.02, 0.005, 0.01),
    Case(1.0, 0.01, 0.003, 0.02),
    Case(1.0, 0.01, 0.003, 0.02, repeats=2),
    Case(1.05, 0.005, 0.001, 0.003),
    Case(1.05, 0.02, 0.005, 0.01),
    Case(1.05, 0.01, 0.003, 0.02),
)


def make_database(path: Path, case: Case, seed: int) -> None:
    """Ten winners of ten problems, and the plain config beside each, on both stacks."""

    def drawn(us: float, *place: object) -> Measurement:
        return simulated(
            us, (case, seed, *place), noise=case.sample, process_noise=case.process, session_noise=case.session
        )

    with Store.open(str(path)) as store:
        recorder = Recorder(store)
        for row in range(ROWS):
            us = 5 * 1.5**row
            for stack, factor in ((OLD, 1.0), (NEW, case.change)):
                times = [drawn(us * factor, row, stack.triton, n) for n in range(case.repeats)]
                plain = drawn(1.3 * us * factor, row, stack.triton, "plain")
                recorder.crowned(problem(512 * (row + 1)), stack, config(row + 2), *times, plain=plain)


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--databases", type=int, default=200, help="of each case")
    databases = parser.parse_args().databases
    print(f"{databases} databases of {ROWS} winners each; noise of a sample / a process / a session")
    for case in CASES:
        verdicts: Counter[str] = Counter()
        alarmed, limits = 0, []
        with tempfile.TemporaryDirectory(prefix="tuner-false-") as folder:
            for seed in range(databases):
                path = Path(folder) / f"{seed}.db"
                make_database(path, case, seed)
                report = tuner.regressions(db=str(path))
                path.unlink()
                found = Counter(str(row.verdict) for row in report.rows)
                verdicts += found
                alarmed += found["regression"] > 0
                limits.append(max(floor.threshold for floor in report.floors.values()))
        noise = " / ".join(f"{100 * part:g} %" for part in (case.sample, case.process, case.session))
        print(
            f"change {100 * (case.change - 1):3.0f} %  noise {noise:<18} measurements a side {case.repeats}  "
            f"databases with a regression {alarmed}  limit {100 * statistics.median(limits):.1f} %  {dict(verdicts)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
