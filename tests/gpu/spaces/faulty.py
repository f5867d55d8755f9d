"""Row softmax that is right unless its switch FAULT says otherwise."""

import triton
import triton.language as tl


@triton.jit
def faulty_kernel(x_ptr, out_ptr, x_row_stride, out_row_stride, cols, BLOCK_COLS: tl.constexpr, FAULT: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK_COLS)
    mask = offsets < cols
    x = tl.load(x_ptr + row * x_row_stride + offsets, mask=mask, other=float("-inf")).to(tl.float32)
    p = tl.exp(x - tl.max(x, axis=0))
    y = p / tl.sum(p, axis=0)
    if FAULT == "wrong":
        y = y * 1.02
    if FAULT == "half":
        mask = offsets < cols // 2
    if FAULT == "endless":
        spin = tl.load(x_ptr, volatile=True).to(tl.float32)
        while spin < 1e30:
            spin = tl.load(x_ptr, volatile=True).to(tl.float32)
        y = y + spin
    if FAULT == "illegal":
        # 2 TiB beyond the tensor.
        tl.store(out_ptr + (1 << 40) + offsets, y.to(out_ptr.dtype.element_ty))
    if FAULT == "shared":
        # Two operands of 128 KiB are more than any GPU's shared memory.
        rows, deep = tl.arange(0, 64), tl.arange(0, 1024)
        acc = tl.zeros([64, 64], tl.float32)
        for step in range(2):
            a = tl.load(x_ptr + rows[:, None] * x_row_stride + (step + deep)[None, :])
            b = tl.load(x_ptr + deep[:, None] * x_row_stride + (step + rows)[None, :])
            acc = tl.dot(a, b, acc)
        y = y + 0.0 * tl.sum(acc)
    if FAULT == "type":
        y = y + tl.zeros([BLOCK_COLS // 2], tl.float32)
    tl.store(out_ptr + row * out_row_stride + offsets, y.to(out_ptr.dtype.element_ty), mask=mask)


def launch(x, out, *, BLOCK_COLS, FAULT, num_warps):
    """Write the softmax of ``x`` [rows, cols] over its last axis into ``out``."""
    rows, cols = x.shape
    faulty_kernel[(rows,)](
        x, out, x.stride(0), out.stride(0), cols, BLOCK_COLS=BLOCK_COLS, FAULT=FAULT, num_warps=num_warps
    )
