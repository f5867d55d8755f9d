"""Times the stored winners of cross_entropy and cross_entropy_bwd beside the peers. Prints tables, writes a JSON file.

python -m benchmarks.compare_cross_entropy --db tuner.db --out compare_cross_entropy.json

``--tune-seconds 30`` tunes each problem for so long first. Every call is captured in a CUDA graph where it can be, and
all of a problem are timed interleaved. A peer that is missing or refuses is said, and left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.peer_runs import PeersOf, Tensors, arguments, chosen, made, one_by_one, running, stored_winner, tune
from benchmarks.problems import CROSS_ENTROPY, cross_entropy_problem
from benchmarks.timed_calls import Call, compiled, copy_bandwidth, interleaved_ms
from tuner.operators import get
from tuner.problem import Problem

FORWARD_PEERS = ("torch", "inductor", "liger", "quack")
BACKWARD_PEERS = ("torch", "inductor", "liger_both", "quack")


def forward_peers(t: Tensors) -> dict[str, Callable[[], Call]]:
    """By name, what makes a call that computes every row's loss of ``logits`` and ``targets``."""
    x, targets = t["logits"], t["targets"]
    return {
        "torch": lambda: lambda: F.cross_entropy(x, targets, reduction="none"),
        "inductor": lambda: compiled(lambda a, b: F.cross_entropy(a, b, reduction="none"), x, targets),
        "liger": lambda: _liger(x.clone(), targets),
        "quack": lambda: _quack_forward(x, targets),
    }


def backward_peers(t: Tensors) -> dict[str, Callable[[], Call]]:
    """By name, what makes a call that computes the gradient by ``logits``.

    ``torch`` is what autograd runs, from the logarithms of the softmax; ``liger_both`` is its one pass that gives the
    loss and the gradient, in the place of the logits.
    """
    x, targets, lse, grad = (t[name] for name in ("logits", "targets", "lse", "grad"))

    def formula(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        onehot = torch.arange(a.shape[1], device=a.device)[None, :] == b[:, None]
        return (d[:, None] * (torch.exp(a.float() - c[:, None]) - onehot.float())).to(a.dtype)

    return {
        "torch": lambda: _torch_backward(x, targets, grad),
        "inductor": lambda: compiled(formula, x, targets, lse, grad),
        "liger_both": lambda: _liger(x.clone().requires_grad_(), targets),
        "quack": lambda: _quack_backward(x, targets, lse, grad),
    }


def _torch_backward(x: torch.Tensor, targets: torch.Tensor, grad: torch.Tensor) -> Call:
    aten = torch.ops.aten
    logarithms = torch.log_softmax(x, 1)
    _, weight = aten.nll_loss_forward(logarithms, targets, None, 0, -100)
    given = grad.to(x.dtype)

    def call() -> torch.Tensor:
        of_logarithms = aten.nll_loss_backward(given, logarithms, targets, None, 0, -100, weight)
        found: torch.Tensor = aten._log_softmax_backward_data(of_logarithms, logarithms, 1, x.dtype)
        return found

    return call


def _liger(x: torch.Tensor, targets: torch.Tensor) -> Call:
    from liger_kernel.transformers.functional import liger_cross_entropy

    return lambda: liger_cross_entropy(x, targets, reduction="none")


def _quack_forward(x: torch.Tensor, targets: torch.Tensor) -> Call:
    from quack.cross_entropy import cross_entropy_fwd

    return lambda: cross_entropy_fwd(x, targets, return_lse=True)


def _quack_backward(x: torch.Tensor, targets: torch.Tensor, lse: torch.Tensor, grad: torch.Tensor) -> Call:
    from quack.cross_entropy import cross_entropy_bwd

    return lambda: cross_entropy_bwd(x, targets, grad, lse)


def peers_of(operator: str) -> PeersOf:
    """What makes the peers of ``operator`` from its inputs."""
    return forward_peers if operator == "cross_entropy" else backward_peers


def measured(problem: Problem, db: str, peers: PeersOf) -> dict[str, Any] | None:
    """The winner's label and the times in milliseconds by name; None where nothing is stored for the problem.

    ``peers``: from the problem's inputs, what makes a call of each peer, by name.
    """
    winner = stored_winner(problem, db)
    if winner is None:
        return None
    calls = {"tuner": winner.call} | running(made(peers(winner.inputs), problem), problem)
    return {"config": winner.label, "ms": interleaved_ms(calls)}


def rates(problem: Problem, ms: dict[str, float]) -> dict[str, float]:
    """TB/s by name: every input read once, and every output written once."""
    moved = get(problem.operator).bytes_moved(problem)
    return {name: moved / time / 1e9 for name, time in ms.items()}


def table(operator: str, rows: list[dict[str, Any]], copy: float, peers: Sequence[str]) -> str:
    """TB/s of ``rows`` in Markdown; ``-`` where a peer did not run. ``copy``: of a large copy, in TB/s."""
    head = ["rows", "cols", "us", "TB/s", "of copy", *peers, "of the best peer"]
    lines = [f"{operator}, TB/s", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        rate, ours = row["tb_per_s"], row["tb_per_s"]["tuner"]
        others = [f"{rate[p]:.2f}" if p in rate else "-" for p in peers]
        best = max((rate[p] for p in peers if p in rate), default=0.0)
        ratio = f"{ours / best:.2f}" if best else "-"
        figures = [f"{row['us']:.1f}", f"{ours:.2f}", f"{ours / copy:.2f}", *others, ratio]
        lines.append(f"| {row['rows']} | {row['cols']} | {' | '.join(figures)} |")
    return "\n".join(lines)


def compare(
    given: argparse.Namespace,
    operators: Sequence[str],
    shapes: Sequence[tuple[int, int]],
    problem_of: Callable[[str, int, int], Problem],
    peers_of: Callable[[str], PeersOf],
    columns: Callable[[str], Sequence[str]],
) -> None:
    """Tune where asked to, measure every operator at every shape, print, write. ``columns``: an operator's peers."""
    shapes = chosen(shapes, given.only)
    tune(given.db, [problem_of(name, *shape) for name in operators for shape in shapes], given.tune_seconds)
    copy = copy_bandwidth() / 1e12
    print(f"copy {copy:.2f} TB/s", flush=True)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in operators}
    problems = [problem_of(name, *shape) for name in operators for shape in shapes]
    for problem, result in one_by_one(problems, lambda p: measured(p, given.db, peers_of(p.operator))):
        rate = rates(problem, result["ms"])
        sizes = {name: problem.sizes[name] for name in ("rows", "cols")}
        row = sizes | {"us": 1e3 * result["ms"]["tuner"], "tb_per_s": rate, "config": result["config"]}
        found[problem.operator].append(row)
        print(f"{problem.label}: {rate['tuner']:.2f} TB/s  {result['config']}", flush=True)
        given.out.write_text(json.dumps({"copy": copy, **found}, indent=1))
    for name in operators:
        print(f"\n{table(name, found[name], copy, columns(name))}")


def main() -> None:
    """Both operators."""
    peers = {"cross_entropy": FORWARD_PEERS, "cross_entropy_bwd": BACKWARD_PEERS}
    given = arguments(__doc__, "shapes").parse_args()
    compare(
        given,
        tuple(peers),
        CROSS_ENTROPY,
        lambda name, rows, cols: cross_entropy_problem(rows, cols, name),
        peers_of,
        peers.__getitem__,
    )


if __name__ == "__main__":
    main()
