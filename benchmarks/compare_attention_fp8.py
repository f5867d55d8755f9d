"""Times stored winners of attention_fwd in fp8 and bf16 beside torch's attention. Prints a table, writes a JSON file.

python -m benchmarks.compare_attention_fp8 --db tuner.db --out compare_attention_fp8.json

``--tune-seconds 40`` tunes each problem for so long first, in fp8 and in bf16. Peers: SDPA's cuDNN and flash in bf16,
of the same numbers as fp8's, and FlashAttention-3 in fp8 through torch, where the package ``flash_attn_interface`` is
installed: torch itself has no attention in fp8 that runs on sm_90. The last figure is how far our output in fp8 is from
cuDNN's in bf16, over the largest of those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.peer_runs import Tensors, arguments, chosen, made, one_by_one, running, stored_winner, tune
from benchmarks.problems import ATTENTION, attention_problem
from benchmarks.timed_calls import Call, interleaved_ms
from tuner.operators import get
from tuner.operators.quantisation import exact

_PEERS = ("cudnn_bf16", "flash_bf16", "fa3_fp8")
_OURS, _OURS_BF16 = "tuner_fp8", "tuner_bf16"
Shape = tuple[int, int, int, int, bool]


def peers(inputs: Tensors, causal: bool) -> dict[str, Callable[[], Call]]:
    """What makes a call of each peer of fp8 ``inputs``, by name. A call gives the output."""
    return {
        "cudnn_bf16": lambda: sdpa(SDPBackend.CUDNN_ATTENTION, inputs, causal),
        "flash_bf16": lambda: sdpa(SDPBackend.FLASH_ATTENTION, inputs, causal),
        "fa3_fp8": lambda: fa3(inputs, causal),
    }


def sdpa(backend: SDPBackend, inputs: Tensors, causal: bool) -> Call:
    """SDPA of the numbers that ``inputs`` stand for, in bf16."""
    head_dim = inputs["q"].shape[3]
    q, k, v, scale = exact(inputs, head_dim**-0.5)
    wide = v.bfloat16()

    def call() -> torch.Tensor:
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(q, k, wide, is_causal=causal, scale=scale)

    return call


def fa3(inputs: Tensors, causal: bool) -> Call:
    """FlashAttention-3 in fp8, called once. It takes a scale for each sequence and key/value head."""
    from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl

    q, k, v = (inputs[name] for name in ("q", "k", "v"))
    scales = [inputs[f"{name}_scale"].expand(k.shape[0], k.shape[1]).contiguous() for name in ("q", "k", "v")]
    function = torch.ops.aten._scaled_dot_product_flash_attention.quantized

    def call() -> torch.Tensor:
        activate_flash_attention_impl("FA3")
        try:
            out: torch.Tensor = function(q, k, v, *scales, 0.0, causal, False)[0]
        finally:
            restore_flash_attention_impl()
        return out

    call()
    return call


def measured(shape: Shape, db: str) -> dict[str, Any] | None:
    """The times of one shape in milliseconds by name; None where nothing is stored for it in fp8."""
    problem = attention_problem(*shape, dtype="fp8")
    winner, plain = stored_winner(problem, db), stored_winner(attention_problem(*shape), db)
    if winner is None:
        return None
    given = running(made(peers(winner.inputs, shape[4]), problem), problem)
    calls = {_OURS: winner.call, **({_OURS_BF16: plain.call} if plain else {}), **given}
    ms = interleaved_ms(calls)
    labels = {_OURS: winner.label, **({_OURS_BF16: plain.label} if plain else {})}
    expected = sdpa(SDPBackend.CUDNN_ATTENTION, winner.inputs, shape[4])() if "cudnn_bf16" in given else None
    winner.call()
    off = None if expected is None else difference(winner.outputs["out"], expected)
    return {"configs": labels, "ms": ms, "difference": off}


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference over the largest magnitude of theirs."""
    return float((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max())


def row_of(shape: Shape, found: Mapping[str, Any]) -> dict[str, Any]:
    """One row: the shape and TFLOP/s by name. ``found``: as ``measured`` gives it."""
    problem = attention_problem(*shape, dtype="fp8")
    flops = get(problem.operator).flops(problem)
    rates = {name: flops / (t * 1e-3) / 1e12 for name, t in found["ms"].items()}
    return {"shape": shape, "configs": found["configs"], "tflops": rates, "difference": found["difference"]}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown: TFLOP/s, and ours in fp8 over ours in bf16 and over cuDNN's; ``-`` for what did not run."""
    names = (_OURS, _OURS_BF16, *_PEERS)
    lines = [
        f"| batch, heads, length, head_dim | | {' | '.join(names)} | of bf16 | of cuDNN | difference | config |",
        "|" + "---|" * (6 + len(names)),
    ]
    for row in rows:
        *sizes, causal = row["shape"]
        rates = row["tflops"]
        cells = [f"{rates[name]:.0f}" if name in rates else "-" for name in names]
        over = [f"{rates[_OURS] / rates[n]:.2f} x" if n in rates else "-" for n in (_OURS_BF16, "cudnn_bf16")]
        off = "-" if row["difference"] is None else f"{row['difference']:.1e}"
        kind = "causal" if causal else "full"
        shown = [", ".join(map(str, sizes)), kind, *cells, *over, off, row["configs"][_OURS]]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    """Tune where asked to, measure, print, write."""
    given = arguments(__doc__).parse_args()
    shapes = chosen(ATTENTION, given.only)
    problems = [attention_problem(*shape, dtype=dtype) for shape in shapes for dtype in ("fp8", "bf16")]
    tune(given.db, problems, given.tune_seconds)
    rows = []
    for shape, found in one_by_one(shapes, lambda shape: measured(shape, given.db)):
        rows.append(row_of(shape, found))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        given.out.write_text(json.dumps({"attention_fp8": rows}, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
