"""Runs the attention templates as they are on views of larger tensors; run as a script, with template names on stdin.

q, k, v and out are views of [batch, length, heads, head_dim] tensors with heads and rows to spare, whose spare elements
are NaN (or, for out, a mark). One JSON line for each template: whether out and lse are those of contiguous tensors, bit
for bit, and the spare elements are what they were.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import torch

from tuner.interpreter import repair_interpreter
from tuner.loading import load_source
from tuner.shipped import variants_dir

BATCH, HEADS, KV_HEADS, Q_LEN, KV_LEN, HEAD_DIM = 2, 4, 2, 37, 53, 32
MARK = 77.0
COMMON = {"IS_CAUSAL": True, "USE_EXP2": True, "TILE_ORDER": "descending", "DOT_PRECISION": "ieee", "num_warps": 4}
FEATURES = dict.fromkeys(("WINDOW", "SOFTCAP", "SINKS", "ALIBI", "BIAS", "OWN_V_DIM", "SPLIT_DIM", "FP8"), False)
TILES = {"BLOCK_M": 16, "BLOCK_N": 16}
OWN: dict[str, dict[str, Any]] = {
    "pointer": {"num_stages": 2, "DROPOUT": False},
    "descriptor": {"PERSISTENT": True, "OVERLAP_QK": True, "KV_STAGES": 2, "NUM_PROGRAMS": 3},
}


def spacious(tensor: torch.Tensor, fill: float) -> tuple[torch.Tensor, torch.Tensor]:
    """A view with the values of ``tensor`` [batch, heads, length, head_dim], and the larger tensor around it."""
    batch, heads, length, head_dim = tensor.shape
    room = torch.full((batch, length + 5, heads + 1, head_dim), fill, dtype=tensor.dtype)
    view = room[:, :length, :heads].transpose(1, 2)
    view.copy_(tensor)
    return view, room


def run(template: str) -> bool:
    launch = load_source(variants_dir() / "attention_fwd" / f"{template}.py").launch
    launch = partial(launch, scale=HEAD_DIM**-0.5, **COMMON, **FEATURES, **TILES, **OWN[template])
    generator = torch.Generator().manual_seed(0)

    def normal(heads: int, length: int) -> torch.Tensor:
        return torch.randn(BATCH, heads, length, HEAD_DIM, generator=generator).to(torch.bfloat16)

    q, k, v = normal(HEADS, Q_LEN), normal(KV_HEADS, KV_LEN), normal(KV_HEADS, KV_LEN)
    out, lse = torch.full_like(q, float("nan")), torch.full((BATCH, HEADS, Q_LEN), float("nan"))
    launch(q, k, v, out, lse)
    views = [spacious(t, float("nan"))[0] for t in (q, k, v)]
    strided_out, room = spacious(torch.full_like(q, float("nan")), MARK)
    strided_lse = torch.full((BATCH, Q_LEN, HEADS), float("nan")).transpose(1, 2)
    launch(*views, strided_out, strided_lse)
    spare = room.clone()
    spare[:, :Q_LEN, :HEADS] = MARK
    finite = bool(out.isfinite().all()) and bool(lse.isfinite().all())
    same = torch.equal(out, strided_out) and torch.equal(lse, strided_lse) and bool((spare == MARK).all())
    return finite and same


def main() -> None:
    repair_interpreter()
    for (template,) in json.load(sys.stdin):
        sys.stdout.write(json.dumps({"same": run(template)}) + "\n")


if __name__ == "__main__":
    main()
