"""A small online row softmax for tests: persistent over rows, base-2, a running maximum and sum for the row.

Tests plant bugs in it by replacing source text, so every line that a mutant changes is kept on a line of its own.
"""

# ruff: noqa: E741 (l is the running sum in every paper on online softmax)
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, x_row_stride, out_row_stride, rows, cols, BLOCK_COLS: tl.constexpr):
    LOG2E: tl.constexpr = 1.4426950408889634
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        m = tl.full([1], float("-inf"), tl.float32)
        l = tl.zeros([1], tl.float32)
        for start in tl.range(0, cols, BLOCK_COLS):
            offsets = start + tl.arange(0, BLOCK_COLS)
            mask = offsets < cols
            x = tl.load(x_ptr + row * x_row_stride + offsets, mask=mask, other=float("-inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
            alpha = tl.exp2((m - m_safe) * LOG2E)
            l = l * alpha
            l = l + tl.sum(tl.exp2((x - m_safe) * LOG2E), axis=0)
            m = m_new
        for start in tl.range(0, cols, BLOCK_COLS):
            offsets = start + tl.arange(0, BLOCK_COLS)
            mask = offsets < cols
            x = tl.load(x_ptr + row * x_row_stride + offsets, mask=mask, other=float("-inf")).to(tl.float32)
            y = tl.exp2((x - m) * LOG2E) / l
            tl.store(out_ptr + row * out_row_stride + offsets, y.to(out_ptr.dtype.element_ty), mask=mask)


def launch(x, out, *, BLOCK_COLS, PROGRAMS):
    """The softmax of x over its columns into out."""
    rows, cols = x.shape
    softmax_kernel[(PROGRAMS,)](x, out, x.stride(0), out.stride(0), rows, cols, BLOCK_COLS=BLOCK_COLS)
