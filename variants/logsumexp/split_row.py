"""Row log-sum-exp with several programs a row, for few and long rows: two kernels.

The first gives the maximum m and the sum l of every split of a row; the second combines them (M = max m,
L = sum l exp(m - M)) and writes M + log(L). A split is a run of whole tiles; trailing splits may be empty. A lane is
the VECTOR columns that a thread loads at once, which share one rescaling.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def logsumexp_split_partial_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    part_ptr,  # [rows, SPLITS, 2] fp32: m and l of each split (m = -inf and l = 0 where it is empty)
    x_row_stride,
    cols,
    split_cols,  # a multiple of BLOCK_COLS
    SPLITS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    VECTOR: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """One program takes one split of one row to its m and l, in tiles of BLOCK_COLS columns."""
    LOG2E: tl.constexpr = 1.4426950408889634
    LANES: tl.constexpr = BLOCK_COLS // VECTOR
    row = tl.program_id(0) // SPLITS
    split = tl.program_id(0) % SPLITS
    x_row = x_ptr + row.to(tl.int64) * x_row_stride
    lanes = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    m = tl.full([LANES], float("-inf"), tl.float32)
    l = tl.zeros([LANES], tl.float32)
    end = tl.minimum((split + 1) * split_cols, cols)
    for start in tl.range(split * split_cols, end, BLOCK_COLS, num_stages=LOAD_STAGES):
        col = start + lanes
        # Every element is read once: it need not stay in the cache.
        x = tl.load(x_row + col, mask=col < cols, other=float("-inf"), eviction_policy="evict_first")
        logits = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(logits, axis=1))
        # A lane that has seen only -inf keeps l = 0, and one with +inf has l = +inf: inf - inf would be NaN.
        m_safe = tl.where(tl.abs(m_new) == float("inf"), 0.0, m_new)
        if USE_EXP2:
            p = tl.exp2((logits - m_safe[:, None]) * LOG2E)
            l = l * tl.exp2((m - m_safe) * LOG2E) + tl.sum(p, axis=1)
        else:
            p = tl.exp(logits - m_safe[:, None])
            l = l * tl.exp(m - m_safe) + tl.sum(p, axis=1)
        m = m_new
    m_split = tl.max(m, axis=0)
    m_safe = tl.where(tl.abs(m_split) == float("inf"), 0.0, m_split)
    if USE_EXP2:
        l_split = tl.sum(l * tl.exp2((m - m_safe) * LOG2E), axis=0)
    else:
        l_split = tl.sum(l * tl.exp(m - m_safe), axis=0)
    part = part_ptr + (row.to(tl.int64) * SPLITS + split) * 2
    tl.store(part, m_split)
    tl.store(part + 1, l_split)


@triton.jit
def logsumexp_split_merge_kernel(
    out_ptr,  # [rows] fp32
    part_ptr,  # [rows, SPLITS, 2] fp32: m and l of each split
    SPLITS: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """One program combines the splits of one row."""
    LOG2E: tl.constexpr = 1.4426950408889634
    LN2: tl.constexpr = 0.6931471805599453
    row = tl.program_id(0).to(tl.int64)
    part = part_ptr + (row * SPLITS + tl.arange(0, SPLITS)) * 2
    m = tl.load(part)
    l = tl.load(part + 1)
    m_row = tl.max(m, axis=0)
    # With 0 for an infinite maximum a row of nothing but -inf gives log(0), and one with +inf gives log(+inf).
    m_safe = tl.where(tl.abs(m_row) == float("inf"), 0.0, m_row)
    if USE_EXP2:
        l_row = tl.sum(l * tl.exp2((m - m_safe) * LOG2E), axis=0)
        lse = m_safe + tl.log2(l_row) * LN2
    else:
        l_row = tl.sum(l * tl.exp(m - m_safe), axis=0)
        lse = m_safe + tl.log(l_row)
    tl.store(out_ptr + row, lse)


def launch(x, out, *, BLOCK_COLS, VECTOR, SPLITS, LOAD_STAGES, USE_EXP2, num_warps):
    """Write the log-sum-exp of ``x`` [rows, cols] over its last axis, of unit stride, into ``out`` [rows], fp32.

    ``BLOCK_COLS``, ``VECTOR`` and ``SPLITS`` are powers of two.
    """
    rows, cols = x.shape
    part = torch.empty((rows, SPLITS, 2), dtype=torch.float32, device=x.device)
    split_cols = triton.cdiv(triton.cdiv(cols, SPLITS), BLOCK_COLS) * BLOCK_COLS
    logsumexp_split_partial_kernel[(rows * SPLITS,)](
        x,
        part,
        x.stride(0),
        cols,
        split_cols,
        SPLITS=SPLITS,
        BLOCK_COLS=BLOCK_COLS,
        VECTOR=VECTOR,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        num_warps=num_warps,
    )
    logsumexp_split_merge_kernel[(rows,)](out, part, SPLITS=SPLITS, USE_EXP2=USE_EXP2, num_warps=1)
