"""Small kernels with known instructions, compiled by the tests of resources without a GPU."""

import triton
import triton.language as tl


@triton.jit
def copy_exp2(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    """out = 2 ** x, one block a program."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < size)
    tl.store(out_ptr + offsets, tl.exp2(x), mask=offsets < size)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, depth, stride, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """One BLOCK_M x BLOCK_N tile of a @ b; square matrices with one row stride."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, depth, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * stride + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * stride + cols[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * stride + cols[None, :], acc)
