"""Times the stored winners of attention_varlen beside torch's attention. Prints a table and writes a JSON file.

python -m benchmarks.compare_attention_varlen --db tuner.db --out compare_attention_varlen.json

``--tune-seconds 40`` tunes each problem for so long first. Peers over the same packed tensors: ``varlen_attn`` of
``torch.nn.attention.varlen``, where this torch has it, and the flash kernel under it, called directly. Peers over
tensors that were padded before, where every sequence has as many queries as keys and padding changes nothing (causal,
or all of one length): SDPA's flash and cuDNN. Rates count what is there, not the padding. The last column is how far
our output is from a peer's, the worst of them, over the largest of the peer's.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.peer_runs import Tensors, arguments, chosen, made, one_by_one, running, stored_winner, tune
from benchmarks.problems import VARLEN, varlen_problem
from benchmarks.timed_calls import Call, interleaved_ms
from tuner.operators import get
from tuner.problem import Problem

_PEERS = ("varlen_attn", "flash", "padded_flash", "padded_cudnn")
_BACKENDS = {"padded_flash": SDPBackend.FLASH_ATTENTION, "padded_cudnn": SDPBackend.CUDNN_ATTENTION}
Shape = tuple[int, int, int, str, bool]


def peers(inputs: Tensors, problem: Problem) -> dict[str, Callable[[], Call]]:
    """What makes a call of each peer of ``inputs``, by name. A call gives the output, packed or padded."""
    s, causal = problem.sizes, bool(problem.settings["causal"])
    longest = s["max_len"], s["max_kv_len"]
    found = {
        "varlen_attn": lambda: varlen_attn(inputs, *longest, causal),
        "flash": lambda: flash(inputs, *longest, causal),
    }
    if s["max_len"] == s["max_kv_len"] and (causal or problem.settings["lengths"] == "equal"):
        for name, backend in _BACKENDS.items():
            found[name] = lambda backend=backend: padded_sdpa(backend, inputs, s["max_len"], causal)
    return found


def varlen_attn(inputs: Tensors, max_q: int, max_kv: int, causal: bool) -> Call:
    """Torch's own function, called once. How it is told of a causal mask and of grouped heads differs by version."""
    from torch.nn.attention.varlen import varlen_attn as function

    known = inspect.signature(function).parameters
    given: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in known else {}
    if causal:
        given |= {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    tensors = [inputs[name] for name in ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv")]
    return tried(lambda: function(*tensors, max_q, max_kv, **given))


def flash(inputs: Tensors, max_q: int, max_kv: int, causal: bool) -> Call:
    """The flash kernel of this torch, called once."""
    tensors = [inputs[name] for name in ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv")]
    function = torch.ops.aten._flash_attention_forward
    return tried(lambda: function(*tensors, max_q, max_kv, 0.0, causal, False)[0])


def tried(call: Call) -> Call:
    """``call`` after it was called once: where it refuses, in whatever words, it is not made."""
    call()
    return call


def padded_sdpa(backend: SDPBackend, inputs: Tensors, length: int, causal: bool) -> Call:
    """SDPA of tensors [batch, heads, length, head_dim] with 0 after each sequence's end."""
    q, k, v = (padded(inputs[name], inputs["cu_seqlens_q"], length) for name in ("q", "k", "v"))

    def call() -> torch.Tensor:
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

    return call


def padded(packed: torch.Tensor, ends: torch.Tensor, length: int) -> torch.Tensor:
    """[batch, heads, length, head_dim] of ``packed`` [tokens, heads, head_dim], sequence after sequence."""
    full = packed.new_zeros(len(ends) - 1, packed.shape[1], length, packed.shape[2])
    for sequence, (first, end) in enumerate(pairwise(ends.tolist())):
        full[sequence, :, : end - first] = packed[first:end].transpose(0, 1)
    return full


def repacked(full: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """The inverse of ``padded``; what is packed stays as it is."""
    if full.dim() == 3:
        return full
    lengths = ends.diff().tolist()
    return torch.cat([full[sequence, :, :length].transpose(0, 1) for sequence, length in enumerate(lengths)])


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference over the largest magnitude of theirs."""
    return float((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max())


def measured(shape: Shape, db: str) -> dict[str, Any] | None:
    """The times of one problem in milliseconds by name; None where nothing is stored for it."""
    problem = varlen_problem(*shape)
    winner = stored_winner(problem, db)
    if winner is None:
        return None
    given = made(peers(winner.inputs, problem), problem)
    calls = {"tuner": winner.call} | running(given, problem)
    ms = interleaved_ms(calls)
    ends, out = winner.inputs["cu_seqlens_q"], winner.outputs["out"]
    differences = {name: difference(out, repacked(given[name](), ends)) for name in calls if name in given}
    return {"config": winner.label, "ms": ms, "difference": differences}


def row_of(shape: Shape, found: Mapping[str, Any]) -> dict[str, Any]:
    """One row: the shape and TFLOP/s by name. ``found``: as ``measured`` gives it."""
    problem = varlen_problem(*shape)
    flops = get(problem.operator).flops(problem)
    rates = {name: flops / (t * 1e-3) / 1e12 for name, t in found["ms"].items()}
    return {"shape": shape, "config": found["config"], "tflops": rates, "difference": found["difference"]}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown, TFLOP/s and ours over the best peer's; ``-`` where a peer did not run."""
    lines = [
        f"| batch | longest q, kv | lengths | | tuner | {' | '.join(_PEERS)} | of the best | difference | config |",
        "|" + "---|" * (8 + len(_PEERS)),
    ]
    for row in rows:
        (batch, max_len, max_kv_len, lengths, causal), rates = row["shape"], row["tflops"]
        them = [f"{rates[name]:.0f}" if name in rates else "-" for name in _PEERS]
        best = max((rates[name] for name in _PEERS if name in rates), default=0.0)
        over = f"{rates['tuner'] / best:.2f} x" if best else "-"
        off = f"{max(row['difference'].values()):.1e}" if row["difference"] else "-"
        kind = "causal" if causal else "full"
        cells = [str(batch), f"{max_len}, {max_kv_len}", lengths, kind, f"{rates['tuner']:.0f}"]
        lines.append(f"| {' | '.join([*cells, *them, over, off, row['config']])} |")
    return "\n".join(lines)


def main() -> None:
    """Tune where asked to, measure, print, write."""
    given = arguments(__doc__).parse_args()
    shapes = chosen(VARLEN, given.only)
    tune(given.db, [varlen_problem(*shape) for shape in shapes], given.tune_seconds)
    rows = []
    for shape, found in one_by_one(shapes, lambda shape: measured(shape, given.db)):
        rows.append(row_of(shape, found))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        given.out.write_text(json.dumps({"attention_varlen": rows}, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
