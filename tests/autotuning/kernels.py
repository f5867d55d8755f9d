"""Kernels for tests of the decorator: small, and each with another way to treat its arguments."""

from __future__ import annotations

import triton
import triton.language as tl

STEP = tl.constexpr(3)


@triton.jit
def twice(x_ptr, n, BLOCK: tl.constexpr):
    """x *= 2."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, 2 * x, mask=at < n)


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)


@triton.jit
def _keep(where, value, mask):
    tl.store(where, value + STEP, mask=mask)


@triton.jit
def through_helper(x_ptr, out_ptr, bias, n, BLOCK: tl.constexpr, EVEN: tl.constexpr = True):
    """Writes in a function of its own."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = out_ptr + at
    _keep(place, tl.load(x_ptr + at, mask=at < n) + bias, at < n)


@triton.jit
def totals(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    """total += sum(x)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0))


@triton.jit
def product(a_ptr, b_ptr, c_ptr, m, n, k, BLOCK: tl.constexpr):
    """c = a @ b, for one tile."""
    rows, columns, inner = tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    a = tl.load(a_ptr + rows[:, None] * k + inner[None, :])
    b = tl.load(b_ptr + inner[:, None] * n + columns[None, :])
    c_ptrs = c_ptr + rows[:, None] * n + columns[None, :]
    tl.store(c_ptrs, tl.dot(a, b))
