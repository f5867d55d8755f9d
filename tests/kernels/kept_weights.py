"""Compares which weights the template `pointer` keeps with what the reference says, bit by bit; run as a script.

In Triton's interpreter. The template's own function is called, in tiles of several sizes, far out in every direction
and with seeds of both signs. Prints one JSON line: how many weights were compared, and how many differ.
"""

from __future__ import annotations

import json
import sys

import torch
import triton
import triton.language as tl

from tuner.loading import load_source
from tuner.operators.dropout import kept, threshold
from tuner.shipped import variants_dir

_kept = load_source(variants_dir() / "attention_fwd" / "pointer.py")._kept
BLOCK_M = 16
CASES = [  # seed, chance, batch, head, first query, first key, keys of a tile
    (0, 0.17, 0, 0, 0, 0, 16),
    (-(2**62) + 12345, 0.5, 3, 7, 160, 64, 64),
    (2**63 - 1, 1.0 - 2.0**-8, 2**20, 2**16 - 1, 2**31 - 32, 2**31 - 64, 32),
    (987654321987654321, 2.0**-20, 1, 31, 48, 4096, 128),
]


@triton.jit
def write_kept(
    out_ptr, seed_ptr, cutoff_ptr, batch, head, first_query, first_key, BLOCK_M: tl.constexpr, N: tl.constexpr
):
    query = first_query + tl.arange(0, BLOCK_M)
    cutoff = tl.load(cutoff_ptr).to(tl.uint32)
    stay = _kept(tl.load(seed_ptr), cutoff, tl.load(batch), tl.load(head), query, first_key, BLOCK_N=N)
    tl.store(out_ptr + tl.arange(0, BLOCK_M)[:, None] * N + tl.arange(0, N)[None, :], stay.to(tl.int32))


def main() -> None:
    compared = different = 0
    for number, p, batch, head, query, key, keys in CASES:
        out, seed = torch.full((BLOCK_M, keys), -1, dtype=torch.int32), torch.tensor([number])
        places = [torch.tensor([place], dtype=torch.int32) for place in (batch, head)]
        cutoff = torch.tensor([threshold(p)], dtype=torch.int32)
        write_kept[(1,)](out, seed, cutoff, *places, query, key, BLOCK_M=BLOCK_M, N=keys)
        rows = query + torch.arange(BLOCK_M)[None]
        of_batch, of_head = (place.long() for place in places)
        expected = kept(seed, of_batch, of_head, rows, keys, p, first=key)[0]
        compared += out.numel()
        different += int((out != expected.int()).sum())
    sys.stdout.write(json.dumps({"compared": compared, "different": different}) + "\n")


if __name__ == "__main__":
    main()
