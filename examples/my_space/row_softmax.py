"""Row softmax, one program a row: a template of one's own, as small as it can be.

A template is an ordinary Triton file. `launch` takes the operator's tensors (softmax: x and out), and after the `*` the
switches and the launch parameters that my_space/softmax.yaml names.
"""

import triton
import triton.language as tl


@triton.jit
def row_softmax_kernel(x_ptr, out_ptr, x_stride, out_stride, cols, BLOCK_COLS: tl.constexpr, USE_EXP2: tl.constexpr):
    """One program computes one row of at most BLOCK_COLS columns."""
    LOG2E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK_COLS)
    x = tl.load(x_ptr + row * x_stride + col, mask=col < cols, other=float("-inf")).to(tl.float32)
    if USE_EXP2:
        x = x * LOG2E
        p = tl.exp2(x - tl.max(x, axis=0))
    else:
        p = tl.exp(x - tl.max(x, axis=0))
    y = p / tl.sum(p, axis=0)
    tl.store(out_ptr + row * out_stride + col, y.to(out_ptr.dtype.element_ty), mask=col < cols)


def launch(x, out, *, BLOCK_COLS, USE_EXP2, num_warps):
    """Write the softmax of ``x`` [rows, cols] over its columns into ``out``. ``ValueError`` above BLOCK_COLS."""
    rows, cols = x.shape
    if cols > BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {BLOCK_COLS}; render one for it")
    row_softmax_kernel[(rows,)](
        x,
        out,
        x.stride(0),
        out.stride(0),
        cols,
        BLOCK_COLS=BLOCK_COLS,
        USE_EXP2=USE_EXP2,
        num_warps=num_warps,
    )
