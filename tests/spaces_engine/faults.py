"""Row softmax over a persistent grid that is right unless its switch FAULT says otherwise."""

import os
import time

import triton
import triton.language as tl


@triton.jit
def faults_kernel(
    x_ptr, out_ptr, x_row_stride, out_row_stride, rows, cols, BLOCK_COLS: tl.constexpr, FAULT: tl.constexpr
):
    offsets = tl.arange(0, BLOCK_COLS)
    mask = offsets < cols
    if FAULT == "shared":
        # Two operands of 16 KiB in eight buffers each are more than any GPU's shared memory.
        lanes = tl.arange(0, 64)
        acc = tl.zeros([64, 64], tl.float32)
        for step in tl.range(0, 64 * 16, 64, num_stages=8):
            a = tl.load(x_ptr + lanes[:, None] * 64 + (step + lanes)[None, :])
            b = tl.load(x_ptr + (step + lanes)[:, None] * 64 + lanes[None, :])
            acc = tl.dot(a, b, acc)
        tl.store(out_ptr + lanes[:, None] * 64 + lanes[None, :], acc)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * x_row_stride + offsets, mask=mask, other=float("-inf")).to(tl.float32)
        p = tl.exp(x - tl.max(x, axis=0))
        y = p / tl.sum(p, axis=0)
        if FAULT == "wrong":
            y = y * 1.02
        if FAULT == "type":
            y = y + tl.zeros([BLOCK_COLS // 2], tl.float32)
        tl.store(out_ptr + row * out_row_stride + offsets, y.to(out_ptr.dtype.element_ty), mask=mask)


def launch(x, out, *, BLOCK_COLS, NUM_PROGRAMS, IGNORED, FAULT, num_warps):
    """Write the softmax of ``x`` [rows, cols] over its last axis into ``out``. Compilers see tensors on ``meta``."""
    runs = x.device.type != "meta"
    if FAULT == "exit" and runs:
        os._exit(3)
    if FAULT == "endless" and runs:
        time.sleep(600)
    if FAULT == "shared":
        num_warps = 8  # with fewer, the compiler takes seconds
    rows, cols = x.shape
    faults_kernel[(NUM_PROGRAMS,)](
        x, out, x.stride(0), out.stride(0), rows, cols, BLOCK_COLS=BLOCK_COLS, FAULT=FAULT, num_warps=num_warps
    )
