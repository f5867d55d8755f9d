"""A small template that runs in every Triton that is supported, compiled or interpreted."""

from __future__ import annotations

SOFTMAX = '''\
"""Softmax of one row a program, the whole row in one block."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def exponential(x, USE_EXP2: tl.constexpr):
    if USE_EXP2:
        y = tl.exp2(x * 1.4426950408889634)
    else:
        y = tl.exp(x)
    return y


@triton.jit
def reciprocal(x):
    return 1.0 / x


@triton.jit
def softmax_kernel(
    x_ptr,  # [rows, cols]
    out_ptr,  # [rows, cols]
    cols,  # at most BLOCK
    BLOCK: tl.constexpr,
    USE_EXP2: tl.constexpr,  # base 2 or e
    DIVIDE: tl.constexpr,
):
    # Which row this is.
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + lanes, mask=lanes < cols, other=float("-inf")).to(tl.float32)
    p = exponential(x - tl.max(x, axis=0), USE_EXP2=USE_EXP2)
    l = tl.sum(p, axis=0)
    if DIVIDE:
        # One division an element.
        y = p / l
    else:
        # One division a row.
        y = p * reciprocal(l)
    tl.store(out_ptr + row * cols + lanes, y.to(out_ptr.dtype.element_ty), mask=lanes < cols)


def launch(x, out, *, BLOCK, USE_EXP2, DIVIDE, num_warps):
    """Write the softmax of ``x`` [rows, cols] into ``out``."""
    rows = math.prod(x.shape[:-1])
    assert x.dtype == out.dtype
    if not DIVIDE:
        torch._check(rows > 0)
    softmax_kernel[(rows,)](x, out, x.shape[-1], BLOCK=BLOCK, USE_EXP2=USE_EXP2, DIVIDE=DIVIDE, num_warps=num_warps)
'''
