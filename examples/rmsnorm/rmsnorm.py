"""RMSNorm as an operator of one's own: the declaration, and beside it the kernels that the search space names.

::

    tuner tune examples/rmsnorm/rmsnorm.py:rmsnorm --shape rows=4096,cols=4096 --dtype bf16
"""

import torch
import triton
import triton.language as tl

import tuner


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, out_ptr, rows, cols, eps, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    """One program normalises BLOCK_ROWS rows, each in one block."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    col = tl.arange(0, BLOCK_COLS)
    inside = (row[:, None] < rows) & (col[None, :] < cols)
    offsets = row[:, None].to(tl.int64) * cols + col[None, :]
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    mean = tl.sum(x * x, axis=1) / cols
    scale = 1.0 / tl.sqrt(mean + eps)
    y = x * scale[:, None] * weight[None, :]
    tl.store(out_ptr + offsets, y.to(out_ptr.dtype.element_ty), mask=inside)


def launch(x, weight, out, *, eps, BLOCK_ROWS, BLOCK_COLS, num_warps):
    """x, out [rows, cols], contiguous; weight [cols]. ``ValueError`` where a row is longer than BLOCK_COLS."""
    rows, cols = x.shape
    if cols > BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {BLOCK_COLS}; render one for it")
    grid = (triton.cdiv(rows, BLOCK_ROWS),)
    rmsnorm_kernel[grid](
        x, weight, out, rows, cols, eps, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
    )


def reference(x, weight, eps):
    """In float64, as the definition says."""
    return x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + eps) * weight


def work(sizes):
    """Four operations an element: square, sum, scale, weight."""
    return tuner.Work(flops=4.0 * sizes["rows"] * sizes["cols"])


rmsnorm = tuner.OwnOperator(
    name="rmsnorm",
    summary="x / sqrt(mean(x ** 2) + eps) * weight, row by row",
    sizes={
        "rows": tuner.Size(4096, "rows of the matrix"),
        "cols": tuner.Size(4096, "columns, over which the mean is taken"),
    },
    inputs={"x": ("rows", "cols"), "weight": ("cols",)},
    outputs={"out": ("rows", "cols")},
    numbers={"eps": 1e-6},
    reduced="cols",
    independent="rows",
    reference=reference,
    work=work,
    space="rmsnorm.yaml",
)
