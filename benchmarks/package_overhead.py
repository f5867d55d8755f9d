"""What an exported package costs on the GPU: a call of it, of the tuned kernel itself, and of torch's own function.

    python -m benchmarks.package_overhead --db tuner.db --out package_overhead.json

The database holds winners of the benchmark problems (``benchmarks.tune_all``). Two times of each call: of the host,
from the call to its return with the GPU's queue never full, and of the GPU (``triton.testing.do_bench``; it clears the
L2). Prints also what the export says of shapes that were not tuned.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from triton.testing import do_bench

import tuner
from benchmarks.problems import ATTENTION, SOFTMAX, attention_problem, softmax_problem
from benchmarks.timed_calls import Call
from benchmarks.winners import caller, load_winner

PACKAGE = "tuned_benchmark"
# Few enough that the driver's queue (1024 launches) never makes a call wait.
CALLS, REPEATS = 100, 9


def host_us(call: Call) -> float:
    """Microseconds from a call to its return: the median over repeats of the mean over calls."""
    call()
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append(1e6 * (time.perf_counter() - start) / CALLS)
    torch.cuda.synchronize()
    return statistics.median(times)


def softmax_calls(package: Any, db: str) -> dict[str, Call]:
    """At the smallest shape, where the host's time shows most."""
    rows, cols = SOFTMAX[0]
    x = torch.randn(rows, cols, dtype=torch.bfloat16, device="cuda")
    out = torch.empty_like(x)
    module, _ = load_winner(softmax_problem(rows, cols), db)
    return {
        "package": lambda: package.softmax(x),
        "tuned kernel": caller(module, x=x, out=out),
        "torch.softmax": lambda: torch.softmax(x, -1),
    }


def attention_calls(package: Any, db: str) -> dict[str, Call]:
    """At the shape of the batch of short sequences."""
    batch, heads, length, head_dim, causal = ATTENTION[3]
    shape = (batch, heads, length, head_dim)
    q, k, v = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty(shape[:3], dtype=torch.float32, device="cuda")
    module, _ = load_winner(attention_problem(*shape, causal), db)

    def sdpa(backend: SDPBackend) -> Any:
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return {
        "package": lambda: package.attention_fwd(q, k, v, causal=causal),
        "tuned kernel": caller(module, q=q, k=k, v=v, out=out, lse=lse, scale=head_dim**-0.5),
        "SDPA flash": lambda: sdpa(SDPBackend.FLASH_ATTENTION),
        "SDPA cuDNN": lambda: sdpa(SDPBackend.CUDNN_ATTENTION),
    }


def main() -> None:
    """Export, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--db", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tuner-overhead-") as folder:
        exported = tuner.export("python", Path(folder) / PACKAGE, db=arguments.db)
        losses = [loss.text for loss in exported.losses]
        print(*losses, sep="\n")
        sys.path.insert(0, folder)
        package = importlib.import_module(PACKAGE)
        rows = [
            {"operator": operator, "call": name, "host_us": host_us(call), "gpu_us": 1e3 * do_bench(call)}
            for operator, calls in (("softmax", softmax_calls), ("attention_fwd", attention_calls))
            for name, call in calls(package, arguments.db).items()
        ]
    for row in rows:
        print(f"{row['operator']:<14} {row['call']:<14} host {row['host_us']:7.1f} us  GPU {row['gpu_us']:8.1f} us")
    arguments.out.write_text(json.dumps({"rows": rows, "losses": losses}, indent=1))


if __name__ == "__main__":
    main()
