"""Row softmax with several whole rows in one block, for short rows: one read, one write, reductions inside the block.

Two passes over registers: m = max(x), p = exp(x - m), l = sum(p), out = p / l. A row longer than BLOCK_COLS cannot be
computed by it.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def softmax_several_rows_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    out_ptr,  # [rows, cols]; rows are out_row_stride elements apart
    x_row_stride,
    out_row_stride,
    rows,
    cols,  # at most BLOCK_COLS
    ROWS_PER_PROGRAM: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """One program computes ROWS_PER_PROGRAM rows, each as a block of BLOCK_COLS columns."""
    LOG2E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(0) * ROWS_PER_PROGRAM + tl.arange(0, ROWS_PER_PROGRAM)[:, None]
    col = tl.arange(0, BLOCK_COLS)[None, :]
    inside = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row.to(tl.int64) * x_row_stride + col, mask=inside, other=float("-inf"))
    logits = x.to(tl.float32)
    # A row of nothing but -inf has -inf - -inf here: NaN throughout, as it should.
    m = tl.max(logits, axis=1, keep_dims=True)
    if USE_EXP2:
        p = tl.exp2((logits - m) * LOG2E)
    else:
        p = tl.exp(logits - m)
    l = tl.sum(p, axis=1, keep_dims=True)
    y = p * (1.0 / l)
    tl.store(out_ptr + row.to(tl.int64) * out_row_stride + col, y.to(out_ptr.dtype.element_ty), mask=inside)


def launch(x, out, *, BLOCK_COLS, ROWS_PER_PROGRAM, USE_EXP2, num_warps):
    """Write the softmax of ``x`` over its last axis into ``out``; both [rows, cols] with unit stride along cols.

    ``BLOCK_COLS`` is a power of two of at least cols. ``ValueError`` where a row is longer.
    """
    rows, cols = x.shape
    if cols > BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {BLOCK_COLS}; render one for it")
    softmax_several_rows_kernel[(triton.cdiv(rows, ROWS_PER_PROGRAM),)](
        x,
        out,
        x.stride(0),
        out.stride(0),
        rows,
        cols,
        ROWS_PER_PROGRAM=ROWS_PER_PROGRAM,
        BLOCK_COLS=BLOCK_COLS,
        USE_EXP2=USE_EXP2,
        num_warps=num_warps,
    )
