"""How fast the search finds what is there: one attention problem, its whole space, 60 seconds, and plain autotuning.

    python -m benchmarks.search_speed --folder /tmp/speed --out search_speed.json [--db tuner.db]

Three runs on one card, each from an empty cache: every config of the space (the exhaustive best), a study with a budget
of 60 s of wall time, and Triton's own ``Autotuner`` over the same configs, stopped after the same 60 s.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.cold_study import cold_study
from benchmarks.problems import ATTENTION, attention_problem
from tuner.events import Progress
from tuner.problem import Problem

BUDGET_S = 60.0


def study(folder: Path, name: str, db: str, **budget: Any) -> dict[str, Any]:
    """One study from an empty cache; ``db`` holds nothing of its problem yet."""
    track: list[tuple[float, float]] = []
    stages: dict[str, float] = {}

    def listen(seconds: float, event: object) -> None:
        if isinstance(event, Progress) and event.best_us is not None:
            track.append((round(event.elapsed_s, 1), event.best_us))
        stages.setdefault(type(event).__name__, round(seconds, 1))

    figures, winner = cold_study(folder, name, attention_problem(*ATTENTION[0]), db, listen, **budget)
    return {
        **figures,
        "winner": winner.config.label,
        "speedup_over_plain": winner.record.speedup,
        "best_by_seconds": track,
        "first_event_seconds": stages,
    }


def plain_autotune(folder: Path, problem: Problem, seconds: float) -> dict[str, Any]:
    """Triton's Autotuner on ``problem`` for ``seconds`` seconds, in a process of its own (killed at the end)."""
    log = folder / f"autotune-{problem.key}.jsonl"
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / f"cache-autotune-{problem.key}")}
    started = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.plain_autotune", str(log), json.dumps(problem.as_json())]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(command, env=environment, timeout=seconds, check=False)
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    best = min(lines, key=lambda line: line["us"], default=None)
    return {"seconds": time.monotonic() - started, "configs": len(lines), "best": best}


def report(results: dict[str, Any]) -> None:
    """Print what there is as a short table."""
    for name in ("budget", "exhaustive"):
        if name in results:
            r = results[name]
            print(
                f"{name}: {r['trials']} of {r['space']} configs in {r['seconds']:.1f} s, {r['median_us']:.1f} us, "
                f"GPU busy {100 * r['gpu_busy_share']:.0f} %, {r['speedup_over_plain']:.2f} x the plain config; "
                f"first seconds {r.get('first_event_seconds')}"
            )
    if "budget" in results and "exhaustive" in results:
        share = results["exhaustive"]["median_us"] / results["budget"]["median_us"]
        print(f"the {BUDGET_S:.0f} s study reached {100 * share:.1f} % of the exhaustive best")
    if "autotune" in results:
        autotune = results["autotune"]
        reached = f"{autotune['best']['us']:.1f} us" if autotune["best"] else "nothing"
        print(f"triton.autotune: {autotune['configs']} configs in {autotune['seconds']:.1f} s, {reached}")


def main() -> None:
    """Run the parts that are asked for; the JSON file keeps those of earlier calls."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--db", help="where the study with the budget goes (default: a new file)")
    parser.add_argument("--parts", default="budget,exhaustive,autotune")
    arguments = parser.parse_args()
    folder, out = arguments.folder, arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    parts = {
        "budget": lambda: study(folder, "budget", arguments.db or str(folder / "budget.db"), time_s=BUDGET_S),
        "exhaustive": lambda: study(
            folder, "exhaustive", str(folder / "exhaustive.db"), trials=100_000, sampler="exhaustive"
        ),
        "autotune": lambda: plain_autotune(folder, attention_problem(*ATTENTION[0]), BUDGET_S),
    }
    for name in arguments.parts.split(","):
        results[name] = parts[name]()
        out.write_text(json.dumps(results, indent=1))
    report(results)


if __name__ == "__main__":
    main()
