"""How the database answers when it is large: a million trials with samples, a thousand winners on two stacks.

    python -m benchmarks.store_size --trials 1000000 --folder /tmp/size --out store_size.json

Builds a database of made-up results (kept: the next run with the same folder and size uses it) and times what people
wait for. No kernel is run, and the times in the made-up rows mean nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tuner
from tuner.config import Config
from tuner.device import Device, Stack
from tuner.problem import Problem
from tuner.store.models import MeasurementRow, StudyTrialRow, TrialRow, WinnerRow
from tuner.store.records import StudySpec
from tuner.store.rows import measurement_values, trial_values
from tuner.store.store import Store
from tuner.targets import target
from tuner.trial import (
    CheckReport,
    CompileReport,
    DeviceState,
    FamilyReport,
    KernelResources,
    Measurement,
    Outcome,
    TrialRecord,
)
from tuner.variant import Variant

STACKS = tuple(Stack("measured", v, "2.11.0", "ptxas 13.0", "580.159", "13.0") for v in ("3.6.0", "3.7.0"))
FINALISTS = 6
"""So many configs of each problem and stack have final measurements; the last of them is the plain config."""
START = datetime(2026, 1, 1, tzinfo=UTC)


def problem(number: int) -> Problem:
    """The problems differ in their columns."""
    cols = 256 + 8 * number
    return Problem("softmax", (("rows", 4096), ("cols", cols), ("row_stride", cols)), "bf16")


def config(number: int) -> Config:
    """Configs differ in one launch parameter."""
    return Config("online", (), (("BLOCK_COLS", number), ("num_warps", 4)), ("BLOCK_COLS", "num_warps"))


def measurement(us: float, stage: str, rounds: int, processes: int, noise: random.Random) -> Measurement:
    """Samples about ``us`` with half a per cent of noise."""
    at = [(process, number) for process in range(processes) for number in range(rounds)]
    samples = tuple(us * math.exp(noise.gauss(0.0, 0.005)) for _ in at)
    states = tuple(DeviceState(1980, 3201, 55, 512.5, ("sw_power_cap",)) for _ in (at if processes > 1 else at[:1]))
    middle = statistics.median(samples)
    numbers, ids = tuple(n for _, n in at), tuple(1000 + p for p, _ in at)
    return Measurement(stage, "cold-graph-1", samples, middle, min(samples), max(samples), numbers, ids, states)


def build(path: Path, trials: int) -> None:
    """Writes the database: winners on two stacks, ``trials`` trials over both, each with samples."""
    winners = max(10, trials // 1000)
    each = max(FINALISTS, trials // (2 * winners))
    device, noise = target("h200"), random.Random(0)
    variant = Variant("softmax", "online", "a" * 64, (), "def launch(x, out): ...\n", "tl.exp2")
    with Store.open(str(path)) as store:
        first = next(_trials(problem(0), device, STACKS[0], 1, variant))
        for stack in STACKS:
            study = store.start_study(_spec(problem(0), device, stack))
            store.record_trial(study.id, first, variant)  # device, stacks and variant are there now
        studies = {
            (n, s): store.start_study(_spec(problem(n), device, stack)).id
            for n in range(winners)
            for s, stack in enumerate(STACKS)
        }
    with sqlite3.connect(path, isolation_level=None) as database:
        database.execute("PRAGMA synchronous = OFF")
        for table in ("tuner_study_trial", "tuner_measurement", "tuner_trial"):
            database.execute(f"DELETE FROM {table}")
        for (number, s), study in studies.items():
            database.execute("BEGIN")
            _write(database, problem(number), device, s, study, each, number, variant, noise)
            database.execute("COMMIT")
    database.close()


def _write(
    database: sqlite3.Connection, problem: Problem, device: Device, s: int, study: int, each: int, number: int,
    variant: Variant, noise: random.Random,
) -> None:  # fmt: skip
    stack, base = STACKS[s], 20.0 + number % 80
    place = {"problem_key": problem.key, "device_key": device.key, "stack_key": stack.key}
    moment = START + timedelta(days=60 * s, seconds=number)
    last = database.execute("SELECT coalesce(max(id), 0) FROM tuner_trial").fetchone()[0]
    rows = [
        {"id": last + 1 + n, **place, **trial_values(record), "created_at": moment, "updated_at": moment}
        for n, record in enumerate(_trials(problem, device, stack, each, variant, base))
    ]
    _insert(database, TrialRow, rows)
    links = [
        {"study_id": study, "trial_id": row["id"], "ordinal": n, "reused": False, "created_at": moment}
        for n, row in enumerate(rows)
    ]
    _insert(database, StudyTrialRow, links)
    taken = []
    for n, row in enumerate(rows):
        us = row["value_us"]
        taken.append((row, measurement(us, "screen", 3, 1, noise)))
        if n < FINALISTS:
            moved = 1.06 if s and n == 0 and number % 10 == 0 else 1.0  # every tenth winner got slower
            taken.append((row, measurement(us * moved, "final", 15, 2, noise)))
            if n == 0:
                taken.append((row, measurement(us * moved, "remeasure", 15, 2, noise)))
    _insert(
        database,
        MeasurementRow,
        [{"trial_id": row["id"], **measurement_values(m), "created_at": moment} for row, m in taken],
    )
    best, plain = rows[0], rows[FINALISTS - 1]
    us = {"median_us": best["value_us"], "low_us": best["value_us"], "high_us": best["value_us"]}
    finalists = [{"key": row["config_key"], "label": row["label"]} for row in rows[:FINALISTS]]
    winner = {
        **place, **us, "uid": f"{study:032d}", "study_id": study, "trial_id": best["id"], "kind": "winner",
        "verdict": "made up", "estimated": False, "margin": 0.02, "margin_low": 0.01, "margin_high": 0.03,
        "plain_key": plain["config_key"], "plain_us": plain["value_us"], "speedup": 1.05, "tie_set": [],
        "finalists": finalists, "created_at": moment,
    }  # fmt: skip
    _insert(database, WinnerRow, [winner])


def _trials(
    problem: Problem, device: Device, stack: Stack, count: int, variant: Variant, base: float = 20.0
) -> Iterator[TrialRecord]:
    """``count`` trials, the fastest first; reports as large as real ones."""
    families = tuple(
        FamilyReport(name, problem.label, True, 0.41, 1.2e-3, 2.9e-3, "out", (3, 98))
        for name in ("randn", "masked", "rising", "spikes", "one_hot", "equal", "tiny", "large")
    )
    check = CheckReport(families, 0, 0.2, "gpu", "p" * 16)
    kernel = KernelResources("softmax_online", 64, 0, 4096, 128)
    for n in range(count):
        binary = f"{n:064x}"
        yield TrialRecord(
            config(n), variant.hash, Outcome.TIMED, value_us=base * (1.0 + 0.01 * n),
            compile_report=CompileReport(binary, (kernel,), 1.5, (("ex2", 12), ("fma", 40)), (132, 1, 1)),
            check_report=check, seconds={"compile": 1.5, "check": 0.2, "time": 0.01},
        )  # fmt: skip


def _spec(problem: Problem, device: Device, stack: Stack) -> StudySpec:
    return StudySpec(problem, device, stack, "softmax", "space-1", "operator: softmax\n", "tpe", 0, "cold-graph-1")


def _insert(database: sqlite3.Connection, model: Any, rows: list[dict[str, Any]]) -> None:
    """Many rows at once, as the store would write them."""
    names = list(rows[0])
    marks = ", ".join("?" * len(names))
    statement = f"INSERT INTO {model.__tablename__} ({', '.join(names)}) VALUES ({marks})"
    database.executemany(statement, [tuple(_cell(row[name]) for name in names) for row in rows])


def _cell(value: object) -> object:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, separators=(",", ":"))
    return value.strftime("%Y-%m-%d %H:%M:%S.%f") if isinstance(value, datetime) else value


def timed(work: Callable[[int], object], times: int) -> dict[str, float]:
    """Milliseconds of ``work(n)``: the first call, and median and largest of the others."""
    taken = []
    for n in range(times + 1):
        started = time.perf_counter()
        work(n)
        taken.append(1e3 * (time.perf_counter() - started))
    rest = taken[1:]
    return {
        "first_ms": round(taken[0], 2),
        "median_ms": round(statistics.median(rest), 2),
        "most_ms": round(max(rest), 2),
    }


def measure(path: Path) -> dict[str, Any]:
    """The timings."""
    db = str(path)
    with sqlite3.connect(path) as counting:
        counts = {
            name: counting.execute(f"SELECT count(*) FROM tuner_{name}").fetchone()[0]
            for name in ("trial", "measurement", "winner")
        }
    counting.close()
    winners = counts["winner"] // len(STACKS)
    with Store.open(db, create=False, write=False) as store:
        # Another problem each time, so that none is answered from what the last one read.
        best = timed(lambda n: store.best(problem(n * 37 % winners), None), 100)
    whole_best = timed(lambda n: tuner.best(problem(n * 41 % winners), db=db), 20)
    report = tuner.regressions(db=db)
    with Store.open(db) as store:

        def start(n: int) -> None:
            """As a study that goes on does: it is begun, and what is known of its problem is read."""
            spec = _spec(problem(n), target("h200"), STACKS[0])
            study = store.start_study(spec)
            store.known_trials(spec.problem.key, spec.device.key, spec.stack.key)
            store.finish_study(study.id, "finished", 1.0, 0.0)

        starts = timed(start, 5)
    return {
        **{f"{name}s": count for name, count in counts.items()},
        "bytes": path.stat().st_size,
        "best": best,
        "best_with_opening": whole_best,
        "study_start": starts,
        "regressions": timed(lambda n: tuner.regressions(db=db), 3),
        "regressions_found": report.counts,
    }


def main() -> None:
    """Builds, measures, prints."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--trials", type=int, default=100_000)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / f"store-{given.trials}.db"
    if not path.exists():
        started = time.monotonic()
        partial = path.with_name(f"partial-{path.name}")
        partial.unlink(missing_ok=True)
        build(partial, given.trials)
        partial.rename(path)
        print(f"built in {time.monotonic() - started:.0f} s")
    found = measure(path)
    print(json.dumps(found, indent=2))
    if given.out:
        given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
