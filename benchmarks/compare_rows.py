"""Times the stored winners of log_softmax, logsumexp and softmax_bwd beside torch's. Prints tables, writes a JSON file.

python -m benchmarks.compare_rows --db tuner.db --out compare_rows.json

``--tune-seconds 30`` tunes each problem for so long first; ``--operator`` and ``--only`` choose some of them. Every
call is captured in a CUDA graph where it can be, and all of a problem are timed interleaved. A peer that refuses is
said, and left out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.compare_cross_entropy import compare
from benchmarks.peer_runs import PeersOf, Tensors, arguments
from benchmarks.problems import SOFTMAX, row_problem
from benchmarks.timed_calls import Call, compiled

PEERS = ("torch", "inductor")


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


def peers_of(operator: str) -> PeersOf:
    """What makes the peers of ``operator`` from its inputs."""
    eager, to_compile = FUNCTIONS[operator]

    def peers(inputs: Tensors) -> dict[str, Callable[[], Call]]:
        given = tuple(inputs.values())
        return {"torch": lambda: lambda: eager(*given), "inductor": lambda: compiled(to_compile, *given)}

    return peers


def main() -> None:
    """Those operators that are asked for."""
    parser = arguments(__doc__, "shapes")
    parser.add_argument("--operator", choices=list(FUNCTIONS), action="append", help="default: all")
    given = parser.parse_args()
    compare(given, given.operator or list(FUNCTIONS), SOFTMAX, row_problem, peers_of, lambda name: PEERS)


if __name__ == "__main__":
    main()
