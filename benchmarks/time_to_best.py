"""How long a study takes, from an empty cache, to a config within 2 % of the best, for one problem of each operator.

    python -m benchmarks.time_to_best --folder /tmp/best --out time_to_best.json [--only softmax ...] [--seconds 60]

Three runs a problem, each from an empty cache: every config of the space, which says how fast each is; a study with a
budget of ``--seconds``; and Triton's own ``Autotuner`` over the same configs, stopped after as many seconds as the
study took. What the study and the Autotuner found is judged by the times of the first run, so that noise is nobody's
merit. A problem whose table row is in ``--out`` already is left out, and the databases stay in ``--folder``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cold_study import cold_study
from benchmarks.problems import (
    ATTENTION,
    CROSS_ENTROPY,
    DECODE,
    SOFTMAX,
    TOPK,
    VARLEN,
    attention_bwd_problem,
    attention_problem,
    cross_entropy_problem,
    decode_problem,
    row_problem,
    softmax_problem,
    topk_problem,
    varlen_problem,
)
from benchmarks.search_speed import plain_autotune
from tuner.events import TrialFinished
from tuner.problem import Problem

WITHIN = 0.98
_LEAST_AUTOTUNE_S = 10.0


def problems() -> dict[str, Problem]:
    """One problem of each operator, by the operator's name."""
    found = [
        softmax_problem(*SOFTMAX[0]),
        row_problem("log_softmax", *SOFTMAX[0]),
        row_problem("logsumexp", *SOFTMAX[1]),
        row_problem("softmax_bwd", *SOFTMAX[1]),
        topk_problem(*TOPK[2]),
        cross_entropy_problem(*CROSS_ENTROPY[2]),
        cross_entropy_problem(*CROSS_ENTROPY[1], operator="cross_entropy_bwd"),
        attention_problem(*ATTENTION[0]),
        attention_bwd_problem(*ATTENTION[0]),
        decode_problem(*DECODE[4]),
        varlen_problem(*VARLEN[2]),
    ]
    return {problem.operator: problem for problem in found}


def study(folder: Path, name: str, problem: Problem, **budget: Any) -> dict[str, Any]:
    """One study from an empty cache and database. ``track``: (seconds, config's key, us) of every trial with a time."""
    track: list[tuple[float, str, float]] = []

    def listen(seconds: float, event: object) -> None:
        if isinstance(event, TrialFinished) and event.value_us is not None:
            track.append((seconds, event.config.key, event.value_us))

    figures, winner = cold_study(folder, name, problem, str(folder / f"{name}.db"), listen, **budget)
    return {**figures, "winner": winner.config.key, "label": winner.config.label, "track": track}


def judged(
    times: Mapping[str, float], track: Sequence[tuple[float, str, float]], winner: str
) -> tuple[float | None, int | None, float]:
    """When the first config within ``WITHIN`` of the best of ``times`` (us by config key) was found: seconds and
    trials, both None where it was not. Last, the best time over the winner's, which counts as missed where it has none.
    """
    best = min(times.values())
    share = best / times[winner] if winner in times else 0.0
    for number, (seconds, key, _) in enumerate(track, 1):
        if times.get(key, float("inf")) <= best / WITHIN:
            return seconds, number, share
    return None, None, share


def row_of(every: Mapping[str, Any], cold: Mapping[str, Any], autotune: Mapping[str, Any] | None) -> dict[str, Any]:
    """One problem's figures, of what ``study`` and ``plain_autotune`` give."""
    times = {key: us for _, key, us in every["track"]}
    seconds, trials, share = judged(times, cold["track"], cold["winner"])
    row = {
        "space": every["space"],
        "exhaustive_seconds": every["seconds"],
        "exhaustive_outcomes": every["outcomes"],
        "best_us": min(times.values()),
        "seconds_to_98": seconds,
        "trials_to_98": trials,
        "seconds": cold["seconds"],
        "trials": cold["trials"],
        "share_of_best": share,
        "gpu_busy_share": cold["gpu_busy_share"],
        "trials_per_minute": 60 * cold["trials"] / cold["seconds"],
    }
    if autotune is not None:
        key = autotune["best"]["config"] if autotune["best"] else ""
        row |= {"autotune_configs": autotune["configs"], "autotune_seconds": autotune["seconds"]}
        row["autotune_share"] = row["best_us"] / times[key] if key in times else 0.0
    return row


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The rows by problem, in Markdown."""
    lines = [
        "| problem | configs | all of them s | 98 % after s | after configs | study s | configs | of the best | "
        "GPU busy | configs/min | triton.autotune: configs | of the best |",
        "|" + "---|" * 12,
    ]
    for label, r in rows.items():
        reached = ("-", "-") if r["seconds_to_98"] is None else (f"{r['seconds_to_98']:.1f}", str(r["trials_to_98"]))
        plain = ("-", "-")
        if "autotune_configs" in r:
            plain = str(r["autotune_configs"]), f"{r['autotune_share']:.0%}"
        cells = [
            label, str(r["space"]), f"{r['exhaustive_seconds']:.0f}", *reached, f"{r['seconds']:.1f}",
            str(r["trials"]), f"{r['share_of_best']:.1%}", f"{r['gpu_busy_share']:.0%}",
            f"{r['trials_per_minute']:.0f}", *plain,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run, and write the JSON file after each problem."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=tuple(problems()), metavar="OPERATOR", help="default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="the study's budget")
    parser.add_argument("--no-autotune", action="store_true")
    given = parser.parse_args()
    rows: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for operator, problem in problems().items():
        if (given.only and operator not in given.only) or problem.label in rows:
            continue
        folder = given.folder / operator
        folder.mkdir(parents=True, exist_ok=True)
        cold = study(folder, "cold", problem, time_s=given.seconds)
        every = study(folder, "every", problem, trials=100_000, sampler="exhaustive")
        limit_s = max(_LEAST_AUTOTUNE_S, cold["seconds"])
        autotune = None if given.no_autotune else plain_autotune(folder, problem, limit_s)
        rows[problem.label] = row_of(every, cold, autotune)
        given.out.write_text(json.dumps(rows, indent=1))
        print(table({problem.label: rows[problem.label]}).splitlines()[-1], flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
