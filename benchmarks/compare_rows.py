"""Times the stored winners of log_softmax, logsumexp and softmax_bwd beside torch's. Prints tables, writes a JSON file.

python -m benchmarks.compare_rows --db tuner.db --out compare_rows.json

``--tune-seconds 30`` tunes each problem for so long first; ``--operator`` and ``--only`` choose some of them. Every
call is captured in a CUDA graph where it can be, and all of a problem are timed interleaved. A peer that refuses is
said, and left out.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.compare import Call, copy_bandwidth
from benchmarks.compare_attention_decode import tune
from benchmarks.compare_cross_entropy import measured, rates, table
from benchmarks.problems import SOFTMAX, row_problem

PEERS = ("torch", "inductor")
Tensors = dict[str, torch.Tensor]


def _log_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x, -1)


def _logsumexp(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, -1)


def _logsumexp_in_fp32(x: torch.Tensor) -> torch.Tensor:
    # What the winner gives; one kernel, in which the conversion is fused.
    return torch.logsumexp(x.float(), -1)


def _softmax_bwd(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)
    return found


# As torch runs it, and as Inductor compiles it; of the inputs in the operator's order.
FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "log_softmax": (_log_softmax, _log_softmax),
    "logsumexp": (_logsumexp, _logsumexp_in_fp32),
    "softmax_bwd": (_softmax_bwd, _softmax_bwd),
}


def peers_of(operator: str) -> Callable[[Tensors], dict[str, Callable[[], Call]]]:
    """What makes the peers of ``operator`` from its inputs."""
    eager, to_compile = FUNCTIONS[operator]

    def peers(inputs: Tensors) -> dict[str, Callable[[], Call]]:
        given = tuple(inputs.values())
        return {"torch": lambda: lambda: eager(*given), "inductor": lambda: compiled(to_compile, given)}

    return peers


def compiled(function: Callable[..., torch.Tensor], given: tuple[torch.Tensor, ...]) -> Call:
    """``function`` of the tensors ``given`` as Inductor compiles it, called once."""
    torch._dynamo.reset()
    # The mode without CUDA graphs of its own, because it is captured here, without a copy of its inputs.
    fast = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
    fast(*given)
    return lambda: fast(*given)


def main() -> None:
    """Tune where asked to, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--db", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tune-seconds", type=float, default=0.0, help="tune each problem for so long first")
    parser.add_argument("--operator", choices=list(FUNCTIONS), action="append", help="default: all")
    parser.add_argument("--only", type=int, nargs="*", help="positions in the list of shapes; default: all")
    arguments = parser.parse_args()
    operators = arguments.operator or list(FUNCTIONS)
    shapes = [shape for at, shape in enumerate(SOFTMAX) if arguments.only is None or at in arguments.only]
    if arguments.tune_seconds:
        tune(
            arguments.db, [row_problem(name, *shape) for name in operators for shape in shapes], arguments.tune_seconds
        )
    copy = copy_bandwidth() / 1e12
    print(f"copy {copy:.2f} TB/s", flush=True)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in operators}
    for name in operators:
        for rows, cols in shapes:
            problem = row_problem(name, rows, cols)
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
    for name in operators:
        print(f"\n{table(name, found[name], copy, PEERS)}")


if __name__ == "__main__":
    main()
