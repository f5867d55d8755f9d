"""A script with three kernels under ``@tuner.autotune``: in place, accumulating, and a matrix product.

It prints one line of JSON. With the argument ``again`` no sample may be taken: the database must have every answer.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import torch
import triton
import triton.language as tl

import tuner
from tuner.autotuning.card import CudaCard
from tuner.compiling import counting_compilations

N = 1 << 20
SIZE = 1024
STEP = tl.constexpr(1.0)


def blocks(*sizes: int) -> list[triton.Config]:
    return [triton.Config({"BLOCK": size}, num_warps=warps) for size in sizes for warps in (4, 8)]


@tuner.autotune(blocks(256, 1024), key=["n"])
@triton.jit
def grow(x_ptr, n, BLOCK: tl.constexpr):
    """x = 2 x + 1, in place; nothing says that x is to be restored."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, 2.0 * x + STEP, mask=at < n)


@tuner.autotune(blocks(512, 2048), key=["n"])
@triton.jit
def accumulate(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    """total += sum(x)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0))


def product(a_ptr, b_ptr):
    return {"c_ptr": a_ptr @ b_ptr}


@tuner.autotune(
    [
        triton.Config({"M": m, "N": n, "K": k, "BROKEN": broken}, num_warps=4, num_stages=stages)
        for m, n, k, stages, broken in (
            (64, 64, 32, 3, False),
            (128, 64, 32, 3, False),
            (128, 128, 64, 3, False),
            (128, 128, 64, 3, True),
            (128, 128, 128, 6, False),  # does not fit into shared memory
        )
    ],
    key=["size"],
    reference=product,
)
@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, size,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BROKEN: tl.constexpr,
):  # fmt: skip
    """c = a @ b for square matrices; ``BROKEN`` leaves out half of the sum, which makes it the fastest."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, size // 2 if BROKEN else size, K):
        a = tl.load(a_ptr + rows[:, None] * size + (start + inner)[None, :])
        b = tl.load(b_ptr + (start + inner)[:, None] * size + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * size + columns[None, :], total.to(tl.float16))


def summed(x_ptr, total_ptr):
    return {"total_ptr": total_ptr + x_ptr.sum()}


@tuner.autotune(
    [triton.Config({"BLOCK": b, "SPOIL": s}) for b, s in ((512, False), (1024, False), (2048, False), (2048, True))],
    key=["n"],
    reset_to_zero=["total_ptr"],
    reference=summed,
)
@triton.jit
def checked_total(x_ptr, total_ptr, n, BLOCK: tl.constexpr, SPOIL: tl.constexpr):
    """total += sum(x); ``SPOIL`` changes x afterwards."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.atomic_add(total_ptr, tl.sum(x, 0))
    if SPOIL:
        tl.store(x_ptr + at, x + 1.0, mask=at < n)


def refuse(self: CudaCard, *_: object) -> float:
    raise AssertionError("a sample was taken")


def main() -> None:
    """Launch each kernel, compare with torch, and print what was chosen."""
    if sys.argv[1:] == ["again"]:
        CudaCard.interval_us = refuse  # type: ignore[method-assign]
    started = time.monotonic()
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK"]),)  # noqa: E731
    x = torch.arange(N, device="cuda", dtype=torch.float32)
    grow[grid](x, N)
    in_place = torch.equal(x, 2.0 * torch.arange(N, device="cuda", dtype=torch.float32) + 1.0)
    grow[grid](x, N)
    in_place &= torch.equal(x, 4.0 * torch.arange(N, device="cuda", dtype=torch.float32) + 3.0)
    ones, total = torch.ones(N, device="cuda"), torch.full((1,), 5.0, device="cuda")
    accumulate[grid](ones, total, N)
    accumulating = total.item() == N + 5.0
    checked_total[grid](ones, total, N)
    accumulating &= total.item() == 2 * N + 5.0 and ones.eq(1.0).all().item()
    torch.manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    (a.double() @ b.double()).sum()  # the libraries' own workspaces stay, and are none of this
    before = torch.cuda.memory_allocated()
    with counting_compilations() as compiled:
        matmul[lambda meta: (SIZE // meta["M"], SIZE // meta["N"])](a, b, c, SIZE)
        recompiled = compiled()
    torch.cuda.synchronize()
    leftover = torch.cuda.memory_allocated() - before
    right = torch.allclose(c.float(), a.float() @ b.float(), atol=0.25, rtol=2e-2)
    print(
        json.dumps(
            {
                "in_place": in_place,
                "accumulating": accumulating,
                "matmul": right,
                "best": [k.best_config.all_kwargs() for k in (grow, accumulate, matmul, checked_total)],
                "recompiled": recompiled,
                "leftover": leftover,
                "captured": captured(),
                "seconds": time.monotonic() - started,
            }
        )
    )


def captured() -> list[object]:
    """A launch for a new key while a graph is captured: what is warned of, and what a replay leaves."""
    half = N // 2
    y = torch.zeros(half, device="cuda")
    first = grow.configs[0]
    grow.fn[lambda meta: (triton.cdiv(half, meta["BLOCK"]),)](y, half, **first.all_kwargs())  # compiled before
    y.zero_()
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.cuda.graph(graph):
            grow[lambda meta: (triton.cdiv(half, meta["BLOCK"]),)](y, half)
    graph.replay()
    graph.replay()
    said = [str(w.message) for w in caught if "grow" in str(w.message)]
    return [said, y.unique().tolist(), grow.best_config == first]


if __name__ == "__main__":
    main()
