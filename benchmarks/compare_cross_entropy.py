"""Times the stored winners of cross_entropy and cross_entropy_bwd beside the peers. Prints tables, writes a JSON file.

python -m benchmarks.compare_cross_entropy --db tuner.db --out compare_cross_entropy.json

``--tune-seconds 30`` tunes each problem for so long first. Every call is captured in a CUDA graph where it can be, and
all of a problem are timed interleaved. A peer that is missing or refuses is said, and left out.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import tuner
from benchmarks.compare import Call, copy_bandwidth, interleaved_ms
from benchmarks.compare import captured as as_graph
from benchmarks.compare_attention_decode import running, tune
from benchmarks.problems import CROSS_ENTROPY, cross_entropy_problem
from benchmarks.winners import caller, load_winner
from tuner.operators import get
from tuner.operators.tensors import empty
from tuner.problem import Problem

FORWARD_PEERS = ("torch", "inductor", "liger", "quack")
BACKWARD_PEERS = ("torch", "inductor", "liger_both", "quack")
Tensors = dict[str, torch.Tensor]


def forward_peers(t: Tensors) -> dict[str, Callable[[], Call]]:
    """By name, what makes a call that computes every row's loss of ``logits`` and ``targets``."""
    x, targets = t["logits"], t["targets"]
    return {
        "torch": lambda: lambda: F.cross_entropy(x, targets, reduction="none"),
        "inductor": lambda: _compiled(lambda a, b: F.cross_entropy(a, b, reduction="none"), x, targets),
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
        "inductor": lambda: _compiled(formula, x, targets, lse, grad),
        "liger_both": lambda: _liger(x.clone().requires_grad_(), targets),
        "quack": lambda: _quack_backward(x, targets, lse, grad),
    }


def _compiled(function: Callable[..., torch.Tensor], *given: torch.Tensor) -> Call:
    torch._dynamo.reset()
    # The mode without CUDA graphs of its own, because it is captured here, without a copy of its input.
    compiled = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
    compiled(*given)
    return lambda: compiled(*given)


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


def made(makers: dict[str, Callable[[], Call]], problem: Problem) -> dict[str, Call]:
    """The peers that can be made; of each other it is said why not."""
    calls: dict[str, Call] = {}
    for name, make in makers.items():
        try:
            calls[name] = make()
        except Exception as why:  # whatever a library of others raises where it is missing or refuses
            print(f"{name} at {problem.label}: {type(why).__name__}: {(str(why).splitlines() or [''])[0]}", flush=True)
    return calls


def peers_of(operator: str) -> Callable[[Tensors], dict[str, Callable[[], Call]]]:
    """What makes the peers of ``operator`` from its inputs."""
    return forward_peers if operator == "cross_entropy" else backward_peers


def measured(
    problem: Problem, db: str, peers: Callable[[Tensors], dict[str, Callable[[], Call]]]
) -> dict[str, Any] | None:
    """The winner's label and the times in milliseconds by name; None where nothing is stored for the problem.

    ``peers``: from the problem's inputs, what makes a call of each peer, by name.
    """
    if tuner.best(problem, db=db) is None:
        print(f"nothing is stored for {problem.label}; tune it, or give --tune-seconds", flush=True)
        return None
    operator = get(problem.operator)
    module, label = load_winner(problem, db)
    inputs = operator.timing_inputs(problem, 0, "cuda")
    specs = operator.output_specs(problem)
    outputs = {name: empty(spec.shape, spec.dtype, "cuda", spec.strides) for name, spec in specs.items()}
    ours = caller(module, **inputs, **outputs, **operator.scalars(problem))
    calls = {"tuner": as_graph(ours)} | running(made(peers(inputs), problem), problem)
    return {"config": label, "ms": interleaved_ms(calls)}


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


def main() -> None:
    """Tune where asked to, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--db", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tune-seconds", type=float, default=0.0, help="tune each problem for so long first")
    parser.add_argument("--only", type=int, nargs="*", help="positions in the list of shapes; default: all")
    arguments = parser.parse_args()
    shapes = [shape for at, shape in enumerate(CROSS_ENTROPY) if arguments.only is None or at in arguments.only]
    operators = ("cross_entropy", "cross_entropy_bwd")
    if arguments.tune_seconds:
        problems = [cross_entropy_problem(*shape, name) for name in operators for shape in shapes]
        tune(arguments.db, problems, arguments.tune_seconds)
    copy = copy_bandwidth() / 1e12
    print(f"copy {copy:.2f} TB/s", flush=True)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in operators}
    for name in operators:
        for rows, cols in shapes:
            problem = cross_entropy_problem(rows, cols, name)
            result = measured(problem, arguments.db, peers_of(name))
            # What a problem takes must be free before the next.
            gc.collect()
            torch.cuda.empty_cache()
            if result is None:
                continue
            rate = rates(problem, result["ms"])
            row = {"rows": rows, "cols": cols, "us": 1e3 * result["ms"]["tuner"], "tb_per_s": rate}
            found[name].append(row | {"config": result["config"]})
            print(f"{problem.label}: {rate['tuner']:.2f} TB/s  {result['config']}", flush=True)
            arguments.out.write_text(json.dumps({"copy": copy, **found}, indent=1))
    for name, peers in zip(operators, (FORWARD_PEERS, BACKWARD_PEERS), strict=True):
        print(f"\n{table(name, found[name], copy, peers)}")


if __name__ == "__main__":
    main()
