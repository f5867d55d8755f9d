"""Times the stored winners beside the peers, in one process, interleaved. Prints tables and writes a JSON file.

python -m benchmarks.compare --db tuner.db --out compare.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.peer_runs import made
from benchmarks.problems import ATTENTION, SOFTMAX, attention_problem, softmax_problem
from benchmarks.timed_calls import Call, captured, compiled, copy_bandwidth, interleaved_ms
from benchmarks.winners import caller, load_winner


def liger_softmax(x: torch.Tensor) -> Call:
    """Liger's softmax of ``x``, called once."""
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    LigerSoftmaxFunction.apply(x)
    return lambda: LigerSoftmaxFunction.apply(x)


def quack_softmax(x: torch.Tensor) -> Call:
    """Quack's softmax of ``x``, called once."""
    from quack.softmax import softmax_fwd

    softmax_fwd(x)
    return lambda: softmax_fwd(x)


LIBRARIES = {"liger": liger_softmax, "quack": quack_softmax}


def softmax_table(db: str) -> list[dict[str, Any]]:
    """TB/s of one read and one write, per shape."""
    table = []
    for rows, cols in SOFTMAX:
        x = torch.randn(rows, cols, dtype=torch.bfloat16, device="cuda")
        out = torch.empty_like(x)
        problem = softmax_problem(rows, cols)
        module, label = load_winner(problem, db)
        calls: dict[str, Call] = {
            "tuner": caller(module, x=x, out=out),
            "torch": lambda x=x: torch.softmax(x, -1),
            "copy": lambda x=x, out=out: out.copy_(x),
        }
        calls["inductor"] = compiled(lambda t: torch.softmax(t, -1), x)
        calls |= made({name: partial(make, x) for name, make in LIBRARIES.items()}, problem)
        ms = interleaved_ms({name: captured(call) for name, call in calls.items()})
        table.append(
            {"rows": rows, "cols": cols, "config": label}
            | {name: 4 * rows * cols / value / 1e9 for name, value in ms.items()}
        )
    return table


def attention_table(db: str) -> list[dict[str, Any]]:
    """TFLOP/s counting 4 B H N^2 D, half of it for causal, per shape."""
    table = []
    for batch, heads, length, head_dim, causal in ATTENTION:
        shape = (batch, heads, length, head_dim)
        q, k, v = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(3))
        out, lse = torch.empty_like(q), torch.empty(shape[:3], dtype=torch.float32, device="cuda")
        module, label = load_winner(attention_problem(*shape, causal), db)

        def sdpa(backend: SDPBackend, q=q, k=k, v=v, causal=causal) -> Any:  # type: ignore[no-untyped-def]
            with sdpa_kernel([backend]):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        calls: dict[str, Call] = {
            "tuner": caller(module, q=q, k=k, v=v, out=out, lse=lse, scale=head_dim**-0.5),
            "sdpa_flash": lambda sdpa=sdpa: sdpa(SDPBackend.FLASH_ATTENTION),
            "sdpa_cudnn": lambda sdpa=sdpa: sdpa(SDPBackend.CUDNN_ATTENTION),
        }
        ms = interleaved_ms({name: captured(call) for name, call in calls.items()})
        flops = 4 * batch * heads * length**2 * head_dim * (0.5 if causal else 1.0)
        table.append(
            {"shape": shape, "causal": causal, "config": label} | {name: flops / t / 1e9 for name, t in ms.items()}
        )
    return table


def print_softmax(table: list[dict[str, Any]], copy: float) -> None:
    """A line a shape. ``copy`` in TB/s."""
    for row in table:
        share = row["tuner"] / copy
        peers = "  ".join(f"{name} {row[name]:.2f}" for name in row if name not in ("rows", "cols", "config", "tuner"))
        print(f"softmax {row['rows']}x{row['cols']}: {row['tuner']:.2f} TB/s ({share:.2f} of copy)  {peers}")


def print_attention(table: list[dict[str, Any]]) -> None:
    """A line a shape, and the mean of the ratios to cuDNN."""
    for row in table:
        ratio = row["tuner"] / row["sdpa_cudnn"]
        print(
            f"attention {row['shape']} {'causal' if row['causal'] else 'full'}: {row['tuner']:.0f} TFLOP/s  "
            f"flash {row['sdpa_flash']:.0f}  cudnn {row['sdpa_cudnn']:.0f}  ({ratio:.2f} of cudnn)"
        )
    mean = statistics.mean(row["tuner"] / row["sdpa_cudnn"] for row in table)
    print(f"attention: {mean:.3f} of cudnn on average")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--db", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=("softmax", "attention_fwd"), help="one operator; default: both")
    arguments = parser.parse_args()
    copy = copy_bandwidth() / 1e12
    print(f"copy {copy:.2f} TB/s")
    tables: dict[str, Any] = {"copy": copy}
    if arguments.only != "attention_fwd":
        tables["softmax"] = softmax_table(arguments.db)
        print_softmax(tables["softmax"], copy)
    if arguments.only != "softmax":
        tables["attention"] = attention_table(arguments.db)
        print_attention(tables["attention"])
    arguments.out.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    main()
