"""Times the stored winners of attention_decode beside torch's SDPA. Prints a table and writes a JSON file.

python -m benchmarks.compare_attention_decode --db tuner.db --out compare_attention_decode.json

``--tune-seconds 40`` tunes each problem for so long first. Peers: SDPA's backends with ``enable_gqa=True``, each where
it runs, and flash with a group's heads as its queries, which reads the cache once; all over a contiguous cache, also
where ours is in pages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.peer_runs import arguments, chosen, one_by_one, running, stored_winner, tune
from benchmarks.problems import DECODE, decode_problem
from benchmarks.timed_calls import Call, copy_bandwidth, interleaved_ms
from tuner.operators import get
from tuner.problem import Problem

_GIB = 2**30
_PEERS = ("flash", "cudnn", "efficient", "math", "flash_packed")
# Beyond this size of the cache the math backend, which repeats it for every query head, is left out.
_MOST_FOR_MATH = 2**31


def peers(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, Call]:
    """What SDPA has for q [batch, heads, 1, head_dim] over k, v [batch, kv_heads, kv_len, head_dim]; some refuse."""
    kv_heads = k.shape[1]
    packed = q.view(q.shape[0], kv_heads, -1, q.shape[3])

    def sdpa(backend: SDPBackend, queries: torch.Tensor) -> Any:
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(queries, k, v, enable_gqa=queries.shape[1] != kv_heads)

    calls: dict[str, Call] = {
        "flash": lambda: sdpa(SDPBackend.FLASH_ATTENTION, q),
        "cudnn": lambda: sdpa(SDPBackend.CUDNN_ATTENTION, q),
        "efficient": lambda: sdpa(SDPBackend.EFFICIENT_ATTENTION, q),
        "flash_packed": lambda: sdpa(SDPBackend.FLASH_ATTENTION, packed),
    }
    if 2 * k.numel() * k.element_size() <= _MOST_FOR_MATH:
        calls["math"] = lambda: sdpa(SDPBackend.MATH, q)
    return calls


def measured(problem: Problem, db: str) -> dict[str, Any] | None:
    """The times of one problem in milliseconds by name; None where nothing is stored for it."""
    winner, s = stored_winner(problem, db), problem.sizes
    if winner is None:
        return None
    k, v = winner.inputs["k"], winner.inputs["v"]
    if s["page_size"]:
        shape = (s["batch"], s["kv_heads"], s["kv_len"], s["head_dim"])
        k, v = (torch.randn(shape, dtype=k.dtype, device="cuda") for _ in range(2))
    calls = {"tuner": winner.call} | running(peers(winner.inputs["q"], k, v), problem)
    return {"config": winner.label, "ms": interleaved_ms(calls)}


def row_of(shape: tuple[int, int, int], problem: Problem, found: Mapping[str, Any], copy: float) -> dict[str, Any]:
    """One row: the shape, TB/s of every byte moved once, its share of the copy's, and the times over ours.

    ``copy``: bytes per second, read plus written. ``found``: as ``measured`` gives it.
    """
    ms, s = found["ms"], problem.sizes
    moved = get(problem.operator).bytes_moved(problem)
    cache = 2 * s["batch"] * s["kv_heads"] * s["kv_len"] * s["head_dim"] * (4 if problem.dtype == "fp32" else 2)
    rate = moved / (ms["tuner"] * 1e-3)
    return {
        "shape": shape,
        "config": found["config"],
        "cache_gib": cache / _GIB,
        "us": 1e3 * ms["tuner"],
        "tb_per_s": rate / 1e12,
        "of_copy": rate / copy,
        "peers_us": {name: 1e3 * t for name, t in ms.items() if name != "tuner"},
        "speedup": {name: t / ms["tuner"] for name, t in ms.items() if name != "tuner"},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown; ``-`` where a peer did not run."""
    lines = [
        "| batch | kv_len | cache | GiB | us | TB/s | of copy | "
        + " | ".join(f"{p} us" for p in _PEERS)
        + " | best peer |",
        "|" + "---|" * (8 + len(_PEERS)),
    ]
    for row in rows:
        batch, kv_len, page = row["shape"]
        times = [f"{row['peers_us'][p]:.1f}" if p in row["peers_us"] else "-" for p in _PEERS]
        best = f"{min(row['speedup'].values()):.2f} x" if row["speedup"] else "-"
        kind = f"pages of {page}" if page else "contiguous"
        figures = f"{row['cache_gib']:.2f} | {row['us']:.1f} | {row['tb_per_s']:.2f} | {row['of_copy']:.2f}"
        lines.append(f"| {batch} | {kv_len} | {kind} | {figures} | {' | '.join(times)} | {best} |")
    return "\n".join(lines)


def main() -> None:
    """Tune where asked to, measure, print, write."""
    given = arguments(__doc__).parse_args()
    shapes = chosen(DECODE, given.only)
    tune(given.db, [decode_problem(*shape) for shape in shapes], given.tune_seconds)
    copy = copy_bandwidth()
    print(f"copy {copy / 1e12:.2f} TB/s", flush=True)
    rows = []
    for shape, found in one_by_one(shapes, lambda shape: measured(decode_problem(*shape), given.db)):
        problem = decode_problem(*shape)
        rows.append(row_of(shape, problem, found, copy))
        print(f"{problem.label}: {rows[-1]['us']:.1f} us, {rows[-1]['of_copy']:.2f} of copy", flush=True)
        print(f"    {found['config']}", flush=True)
        given.out.write_text(json.dumps({"copy": copy / 1e12, "attention_decode": rows}, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
