"""Times the stored winners of attention_fwd with values of their own head_dim, or dropout, beside torch's SDPA.

python -m benchmarks.compare_attention_features --db tuner.db --out compare_attention_features.json

``--tune-seconds 40`` tunes each problem for so long first. Prints a table and writes a JSON file. Peers: SDPA's flash,
cuDNN and memory-efficient backends, each where it runs. With dropout torch keeps other weights than we do, so that
outputs are not compared; else the last column but one is how far ours is from a peer's, the worst of them, over the
largest of the peer's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.peer_runs import Tensors, arguments, chosen, one_by_one, running, stored_winner, tune
from benchmarks.problems import ATTENTION_FEATURES, attention_features_problem
from benchmarks.timed_calls import Call, interleaved_ms
from tuner.operators import get
from tuner.problem import Problem

_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
Shape = tuple[int, int, int, int, int, bool, float]


def peers(inputs: Tensors, problem: Problem) -> dict[str, Call]:
    """What gives the output of ``inputs`` (q, k and v, as many keys as queries) by each backend of SDPA."""
    causal, dropout = bool(problem.settings["causal"]), float(problem.settings.get("dropout") or 0.0)
    return {name: sdpa(backend, inputs, causal, dropout) for name, backend in _BACKENDS.items()}


def sdpa(backend: SDPBackend, inputs: Tensors, causal: bool, dropout: float) -> Call:
    """SDPA of ``inputs`` by one backend."""
    tensors = [inputs[name] for name in ("q", "k", "v")]

    def call() -> torch.Tensor:
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(*tensors, is_causal=causal, dropout_p=dropout)

    return call


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference over the largest magnitude of theirs."""
    return float((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max())


def measured(shape: Shape, db: str) -> dict[str, Any] | None:
    """The times of one problem in milliseconds by name; None where nothing is stored for it."""
    problem = attention_features_problem(*shape)
    winner = stored_winner(problem, db)
    if winner is None:
        return None
    given = peers(winner.inputs, problem)
    calls = {"tuner": winner.call} | running(given, problem)
    ms = interleaved_ms(calls)
    same = "dropout" not in problem.settings
    differences = {n: difference(winner.outputs["out"], given[n]()) for n in calls if n in given and same}
    return {"config": winner.label, "ms": ms, "difference": differences}


def row_of(shape: Shape, found: Mapping[str, Any]) -> dict[str, Any]:
    """One row: the shape and TFLOP/s by name. ``found``: as ``measured`` gives it."""
    flops = get("attention_fwd").flops(attention_features_problem(*shape))
    rates = {name: flops / (t * 1e-3) / 1e12 for name, t in found["ms"].items()}
    return {"shape": shape, "config": found["config"], "tflops": rates, "difference": found["difference"]}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown, TFLOP/s and ours over the best peer's; ``-`` where a peer did not run."""
    lines = [
        f"| B H N D, Dv | | dropout | tuner | {' | '.join(_BACKENDS)} | of the best | difference | config |",
        "|" + "---|" * (7 + len(_BACKENDS)),
    ]
    for row in rows:
        (batch, heads, length, head_dim, v_head_dim, causal, dropout), rates = row["shape"], row["tflops"]
        them = [f"{rates[name]:.0f}" if name in rates else "-" for name in _BACKENDS]
        best = max((rates[name] for name in _BACKENDS if name in rates), default=0.0)
        over = f"{rates['tuner'] / best:.2f} x" if best else "-"
        off = f"{max(row['difference'].values()):.1e}" if row["difference"] else "-"
        cells = [f"{batch} {heads} {length} {head_dim}, {v_head_dim}", "causal" if causal else "full", str(dropout)]
        cells += [f"{rates['tuner']:.0f}", *them, over, off, row["config"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Tune where asked to, measure, print, write."""
    given = arguments(__doc__).parse_args()
    shapes = chosen(ATTENTION_FEATURES, given.only)
    tune(given.db, [attention_features_problem(*shape) for shape in shapes], given.tune_seconds)
    rows = []
    for shape, found in one_by_one(shapes, lambda shape: measured(shape, given.db)):
        rows.append(row_of(shape, found))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        given.out.write_text(json.dumps({"attention_features": rows}, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
