"""How fast several processes write to one database, each trial claimed and stored as a study does.

    python -m benchmarks.many_writers --processes 8 --trials 200
    python -m benchmarks.many_writers --processes 8 --trials 200 --share
    python -m benchmarks.many_writers --db postgresql+psycopg://tuner@db.example.org/scratch --out many_writers.json

Every process claims a config and stores a made-up trial with its variant, report and samples, as fast as it can;
``--share`` has all of them run one study. No kernel is run. The database must be empty (default: a new SQLite file in
--folder).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import statistics
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import tuner
from benchmarks.store_size import config, measurement, problem
from tuner.device import Stack
from tuner.store.records import ClaimState, StudySpec
from tuner.store.store import Store
from tuner.targets import target
from tuner.trial import CheckReport, CompileReport, FamilyReport, KernelResources, Outcome, TrialRecord
from tuner.variant import Variant

STACK = Stack("measured", "3.6.0", "2.11.0", "ptxas 13.0", "580.159", "13.0")
WRITTEN = ("tuner_trial", "tuner_measurement", "tuner_study_trial")
"""Tables that each trial adds a row to. Claims, which come and go, are not counted."""


def write(url: str, number: int, trials: int, shared: bool, ready: Barrier, results: Any) -> None:
    """One process: claims and stores, then puts the seconds of each claim and of each store into ``results``."""
    own = 0 if shared else number
    variant = Variant("softmax", "online", "a" * 64, (), f"def launch(x, out): ...  # {own}\n", "tl.exp2")
    noise = random.Random(number)
    check = CheckReport((FamilyReport("randn", "softmax", True, 0.4, 1e-3, 2e-3, "out", (3, 98)),) * 8, 0, 0.2)
    kernel = KernelResources("softmax_online", 64, 0, 4096, 128)
    spec = StudySpec(
        problem(own),
        target("h200"),
        STACK,
        "softmax",
        "space",
        "operator: softmax\n",
        "tpe",
        0,
        "p",
    )
    claiming, storing = [], []
    with Store.open(url, create=False) as store:
        study = store.start_study(spec)
        ready.wait()
        for block in range(trials * (ready.parties - 1 if shared else 1)):
            begun = time.perf_counter()
            claim = store.claim(study.id, config(block), variant.hash, "")
            claimed = time.perf_counter()
            claiming.append(claimed - begun)
            if claim.state is not ClaimState.CLAIMED:
                continue
            measured = measurement(20.0 + block, "screen", 3, 1, noise)
            record = TrialRecord(
                config(block), variant.hash, Outcome.TIMED, value_us=measured.median_us,
                compile_report=CompileReport(f"{block:064x}", (kernel,), 1.5), check_report=check,
                measurements=(measured,),
            )  # fmt: skip
            store.record_trial(study.id, record, variant)
            storing.append(time.perf_counter() - claimed)
        store.finish_study(study.id, "finished", 1.0, 0.0)
    results.put((claiming, storing))


def measure(url: str, processes: int, trials: int, shared: bool) -> dict[str, Any]:
    """Runs the processes, and says how fast they were and whether everything is there."""
    Store.open(url).close()
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(processes + 1), context.Queue()
    workers = [context.Process(target=write, args=(url, n, trials, shared, ready, results)) for n in range(processes)]
    for worker in workers:
        worker.start()
    ready.wait()
    begun = time.perf_counter()
    answers = [results.get() for _ in workers]
    took = time.perf_counter() - begun
    for worker in workers:
        worker.join()
    found = tuner.database_stats(db=url).tables
    rows = sum(found[name] for name in WRITTEN)
    claims, stores = ([s for answer in answers for s in answer[i]] for i in (0, 1))
    if found["tuner_trial"] != processes * trials or len(stores) != processes * trials or found["tuner_claim"]:
        raise SystemExit(f"not every trial was stored once: {found}, {len(stores)} stored")
    return {
        "processes": processes,
        "shared": shared,
        "trials": found["tuner_trial"],
        "seconds": round(took, 2),
        "trials_per_s": round(found["tuner_trial"] / took, 1),
        "rows_per_s": round(rows / took, 1),
        "claim_ms": _spread(claims),
        "store_ms": _spread(stores),
        "sound": tuner.check_database(db=url).sound,
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(1e3 * s for s in seconds)
    last = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]
    return {"median": round(statistics.median(ordered), 2), "p99": round(last, 2), "most": round(ordered[-1], 2)}


def main() -> None:
    """Measures, prints."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--processes", type=int, default=8)
    arguments.add_argument("--trials", type=int, default=200, help="by each process")
    arguments.add_argument("--share", action="store_true", help="all run one study")
    arguments.add_argument("--db", help="an empty database (default: a new SQLite file)")
    arguments.add_argument("--folder", type=Path, help="where that file is made (default: a temporary folder)")
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="tuner-writers-", dir=given.folder) as name:
        url = given.db or f"sqlite:///{name}/tuner.db"
        found = measure(url, given.processes, given.trials, given.share)
    text = json.dumps(found, indent=2)
    print(text)
    if given.out:
        given.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
