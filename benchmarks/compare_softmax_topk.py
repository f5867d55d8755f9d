"""Times the stored winners of softmax_topk beside torch's ways to the same. Prints a table and writes a JSON file.

python -m benchmarks.compare_softmax_topk --db tuner.db --out compare_softmax_topk.json

``--tune-seconds 40`` tunes each problem for so long first. Peers: torch.softmax and torch.topk after it, both compiled
by Inductor, torch.topk of the logits and their log-sum-exp, and torch.topk of the logits alone, which is less work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.peer_runs import arguments, chosen, made, one_by_one, running, stored_winner, tune
from benchmarks.problems import TOPK, topk_problem
from benchmarks.timed_calls import Call, compiled, copy_bandwidth, interleaved_ms
from tuner.operators import get
from tuner.problem import Problem

_PEERS = ("softmax_topk", "inductor", "topk_lse", "topk")


def softmax_topk(x: torch.Tensor, k: int) -> Any:
    """The softmax, and the k largest of it."""
    return torch.topk(torch.softmax(x, -1), k)


def topk_lse(x: torch.Tensor, k: int) -> Any:
    """The k largest logits, and their probabilities from the log-sum-exp."""
    top = torch.topk(x, k)
    return torch.exp(top.values - torch.logsumexp(x, -1, keepdim=True)), top.indices


def peers(x: torch.Tensor, k: int) -> dict[str, Callable[[], Call]]:
    """By name, what makes a call of what torch has for ``x`` [rows, cols]."""
    return {
        "softmax_topk": lambda: lambda: softmax_topk(x, k),
        "inductor": lambda: compiled(softmax_topk, x, k),
        "topk_lse": lambda: lambda: topk_lse(x, k),
        "topk": lambda: lambda: torch.topk(x, k),
    }


def measured(problem: Problem, db: str) -> dict[str, Any] | None:
    """The times of one problem in milliseconds by name; None where nothing is stored for it."""
    winner = stored_winner(problem, db)
    if winner is None:
        return None
    given = made(peers(winner.inputs["x"], problem.sizes["k"]), problem)
    calls = {"tuner": winner.call} | running(given, problem)
    return {"config": winner.label, "ms": interleaved_ms(calls)}


def row_of(shape: tuple[int, int, int], problem: Problem, found: Mapping[str, Any], copy: float) -> dict[str, Any]:
    """One row: rows, cols and k, TB/s of one read of the matrix, its share of the copy's, and the times over ours.

    ``copy``: bytes per second, read plus written. ``found``: as ``measured`` gives it.
    """
    ms = found["ms"]
    rate = get(problem.operator).bytes_moved(problem) / (ms["tuner"] * 1e-3)
    return {
        "shape": shape,
        "config": found["config"],
        "us": 1e3 * ms["tuner"],
        "tb_per_s": rate / 1e12,
        "of_copy": rate / copy,
        "peers_us": {name: 1e3 * t for name, t in ms.items() if name != "tuner"},
        "speedup": {name: t / ms["tuner"] for name, t in ms.items() if name != "tuner"},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown; ``-`` where a peer did not run."""
    columns = ["rows", "cols", "k", "us", "TB/s", "of copy", *(f"{p} us" for p in _PEERS), "over softmax_topk"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row in rows:
        times = [f"{row['peers_us'][p]:.1f}" if p in row["peers_us"] else "-" for p in _PEERS]
        over = f"{row['speedup']['softmax_topk']:.2f} x" if "softmax_topk" in row["speedup"] else "-"
        figures = [f"{row['us']:.1f}", f"{row['tb_per_s']:.2f}", f"{row['of_copy']:.2f}"]
        lines.append(f"| {' | '.join([*map(str, row['shape']), *figures, *times, over])} |")
    return "\n".join(lines)


def main() -> None:
    """Tune where asked to, measure, print, write."""
    given = arguments(__doc__).parse_args()
    shapes = chosen(TOPK, given.only)
    tune(given.db, [topk_problem(*shape) for shape in shapes], given.tune_seconds)
    copy = copy_bandwidth()
    print(f"copy {copy / 1e12:.2f} TB/s", flush=True)
    rows = []
    for shape, found in one_by_one(shapes, lambda shape: measured(topk_problem(*shape), given.db)):
        problem = topk_problem(*shape)
        rows.append(row_of(shape, problem, found, copy))
        print(f"{problem.label}: {rows[-1]['us']:.1f} us, {rows[-1]['config']}", flush=True)
        given.out.write_text(json.dumps({"copy": copy / 1e12, "softmax_topk": rows}, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
