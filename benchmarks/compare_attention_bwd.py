"""Times the stored winners of attention_bwd beside torch's SDPA. Prints a table and writes a JSON file.

python -m benchmarks.compare_attention_bwd --db tuner.db --out compare_attention_bwd.json

``--tune-seconds 40`` tunes each problem for so long first. Peers: the backward pass of SDPA's flash and cuDNN backends,
each where it runs, by ``torch.autograd.grad`` of an output that was made before. The backward pass counts as 2.5 times
the forward pass. The last column is how far our gradients are from a peer's, over the largest of the peer's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.peer_runs import arguments, chosen, one_by_one, running, stored_winner, tune
from benchmarks.problems import ATTENTION, attention_bwd_problem
from benchmarks.timed_calls import Call, interleaved_ms

_BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
Shape = tuple[int, int, int, int, bool]


def peers(inputs: Mapping[str, torch.Tensor], causal: bool) -> dict[str, Call]:
    """What gives (dq, dk, dv) of ``inputs`` (q, k, v and dout, as many keys as queries) by each backend of SDPA."""
    return {name: gradients(backend, inputs, causal) for name, backend in _BACKENDS.items()}


def gradients(backend: SDPBackend, inputs: Mapping[str, torch.Tensor], causal: bool) -> Call:
    """The backward pass alone: the forward pass is made once for each stream, where its backward pass must run too."""
    leaves = [inputs[name].detach().requires_grad_() for name in ("q", "k", "v")]
    made: dict[int, torch.Tensor] = {}

    def call() -> tuple[torch.Tensor, ...]:
        stream = torch.cuda.current_stream().cuda_stream if torch.cuda.is_available() else 0
        if stream not in made:
            with torch.enable_grad(), sdpa_kernel([backend]):
                made[stream] = F.scaled_dot_product_attention(*leaves, is_causal=causal)
        return torch.autograd.grad(made[stream], leaves, inputs["dout"], retain_graph=True)

    return call


def difference(ours: Mapping[str, torch.Tensor], theirs: tuple[torch.Tensor, ...]) -> float:
    """The largest difference of a gradient over the largest magnitude of theirs; the worst of the three."""
    pairs = zip((ours["dq"], ours["dk"], ours["dv"]), theirs, strict=True)
    return max(float((a.float() - b.float()).abs().max() / b.float().abs().max()) for a, b in pairs)


def measured(shape: Shape, db: str) -> dict[str, Any] | None:
    """The times of one problem in milliseconds by name; None where nothing is stored for it."""
    problem = attention_bwd_problem(*shape)
    winner = stored_winner(problem, db)
    if winner is None:
        return None
    given = peers(winner.inputs, shape[4])
    calls = {"tuner": winner.call} | running(given, problem)
    ms = interleaved_ms(calls)
    differences = {name: difference(winner.outputs, given[name]()) for name in calls if name in given}
    return {"config": winner.label, "ms": ms, "difference": differences}


def row_of(shape: Shape, found: Mapping[str, Any]) -> dict[str, Any]:
    """One row: the shape and TFLOP/s by name. ``found``: as ``measured`` gives it."""
    batch, heads, length, head_dim, causal = shape
    flops = 2.5 * 4 * batch * heads * length**2 * head_dim * (0.5 if causal else 1.0)
    rates = {name: flops / (t * 1e-3) / 1e12 for name, t in found["ms"].items()}
    return {"shape": shape, "config": found["config"], "tflops": rates, "difference": found["difference"]}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown, TFLOP/s and ours over each peer's; ``-`` where a peer did not run."""
    lines = [
        "| B H N D | | tuner | SDPA flash | SDPA cuDNN | of flash | of cuDNN | difference | config |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        rates = row["tflops"]
        them = [f"{rates[name]:.0f}" if name in rates else "-" for name in _BACKENDS]
        over = [f"{rates['tuner'] / rates[name]:.2f} x" if name in rates else "-" for name in _BACKENDS]
        off = f"{max(row['difference'].values()):.1e}" if row["difference"] else "-"
        size, kind = " ".join(str(n) for n in row["shape"][:4]), "causal" if row["shape"][4] else "full"
        cells = [size, kind, f"{rates['tuner']:.0f}", *them, *over, off, row["config"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Tune where asked to, measure, print, write."""
    given = arguments(__doc__).parse_args()
    shapes = chosen(ATTENTION, given.only)
    tune(given.db, [attention_bwd_problem(*shape) for shape in shapes], given.tune_seconds)
    rows = []
    for shape, found in one_by_one(shapes, lambda shape: measured(shape, given.db)):
        rows.append(row_of(shape, found))
        given.out.write_text(json.dumps({"attention_bwd": rows}, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
