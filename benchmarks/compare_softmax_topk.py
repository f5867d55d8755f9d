"""Times the stored winners of softmax_topk beside torch's ways to the same. Prints a table and writes a JSON file.

python -m benchmarks.compare_softmax_topk --db tuner.db --out compare_softmax_topk.json

``--tune-seconds 40`` tunes each problem for so long first. Peers: torch.softmax and torch.topk after it, both compiled
by Inductor, torch.topk of the logits and their log-sum-exp, and torch.topk of the logits alone, which is less work.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import tuner
from benchmarks.compare import Call, captured, copy_bandwidth, interleaved_ms
from benchmarks.compare_attention_decode import running, tune
from benchmarks.problems import TOPK, topk_problem
from benchmarks.winners import caller, load_winner
from tuner.operators import get
from tuner.operators.tensors import empty
from tuner.problem import Problem

_PEERS = ("softmax_topk", "inductor", "topk_lse", "topk")


def softmax_topk(x: torch.Tensor, k: int) -> Any:
    """The softmax, and the k largest of it."""
    return torch.topk(torch.softmax(x, -1), k)


def topk_lse(x: torch.Tensor, k: int) -> Any:
    """The k largest logits, and their probabilities from the log-sum-exp."""
    top = torch.topk(x, k)
    return torch.exp(top.values - torch.logsumexp(x, -1, keepdim=True)), top.indices


def peers(x: torch.Tensor, k: int) -> dict[str, Call]:
    """What torch has for ``x`` [rows, cols]; some may refuse."""
    torch._dynamo.reset()
    # The mode without CUDA graphs of its own, because it is captured here, without a copy of its input.
    compiled = torch.compile(softmax_topk, mode="max-autotune-no-cudagraphs", dynamic=False)
    return {
        "softmax_topk": lambda: softmax_topk(x, k),
        "inductor": lambda: compiled(x, k),
        "topk_lse": lambda: topk_lse(x, k),
        "topk": lambda: torch.topk(x, k),
    }


def measured(problem: Problem, db: str) -> dict[str, Any] | None:
    """The times of one problem in milliseconds by name; None where nothing is stored for it."""
    if tuner.best(problem, db=db) is None:
        print(f"nothing is stored for {problem.label}; tune it, or give --tune-seconds", flush=True)
        return None
    operator = get(problem.operator)
    module, label = load_winner(problem, db)
    x = operator.timing_inputs(problem, 0, "cuda")["x"]
    specs = operator.output_specs(problem)
    outputs = {name: empty(spec.shape, spec.dtype, "cuda", spec.strides) for name, spec in specs.items()}
    calls = {"tuner": captured(caller(module, x=x, **outputs))} | running(peers(x, problem.sizes["k"]), problem)
    return {"config": label, "ms": interleaved_ms(calls)}


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--db", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tune-seconds", type=float, default=0.0, help="tune each problem for so long first")
    parser.add_argument("--only", type=int, nargs="*", help="positions in the list of problems; default: all")
    arguments = parser.parse_args()
    shapes = [shape for at, shape in enumerate(TOPK) if arguments.only is None or at in arguments.only]
    if arguments.tune_seconds:
        tune(arguments.db, [topk_problem(*shape) for shape in shapes], arguments.tune_seconds)
    copy = copy_bandwidth()
    print(f"copy {copy / 1e12:.2f} TB/s", flush=True)
    rows = []
    for shape in shapes:
        problem = topk_problem(*shape)
        found = measured(problem, arguments.db)
        gc.collect()
        torch.cuda.empty_cache()
        if found is not None:
            rows.append(row_of(shape, problem, found, copy))
            print(f"{problem.label}: {rows[-1]['us']:.1f} us, {rows[-1]['config']}", flush=True)
            arguments.out.write_text(json.dumps({"copy": copy / 1e12, "softmax_topk": rows}, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
