"""Row log-softmax with several programs a row, for few and long rows: two kernels.

The first gives the maximum m and the sum l of every split of a row; the second combines them (M = max m,
L = sum l exp(m - M)) and writes (x - M) - log(L). A split is a run of whole tiles; trailing splits may be empty. A lane
of the first kernel is the VECTOR columns that a thread loads at once, which share one rescaling.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def log_softmax_split_partial_kernel(
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
    STREAM_HINTS: tl.constexpr,
):
    """One program takes one split of one row to its m and l, in tiles of BLOCK_COLS columns."""
    LOG2E: tl.constexpr = 1.4426950408889634
    LANES: tl.constexpr = BLOCK_COLS // VECTOR
    # The second kernel reads x again.
    LOAD_HINT: tl.constexpr = "evict_last" if STREAM_HINTS else ""
    row = tl.program_id(0) // SPLITS
    split = tl.program_id(0) % SPLITS
    x_row = x_ptr + row.to(tl.int64) * x_row_stride
    lanes = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    m = tl.full([LANES], float("-inf"), tl.float32)
    l = tl.zeros([LANES], tl.float32)
    end = tl.minimum((split + 1) * split_cols, cols)
    for start in tl.range(split * split_cols, end, BLOCK_COLS, num_stages=LOAD_STAGES):
        col = start + lanes
        x = tl.load(x_row + col, mask=col < cols, other=float("-inf"), eviction_policy=LOAD_HINT)
        logits = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(logits, axis=1))
        # A lane that has seen only -inf keeps l = 0: -inf - -inf would be NaN.
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        if USE_EXP2:
            p = tl.exp2((logits - m_safe[:, None]) * LOG2E)
            l = l * tl.exp2((m - m_safe) * LOG2E) + tl.sum(p, axis=1)
        else:
            p = tl.exp(logits - m_safe[:, None])
            l = l * tl.exp(m - m_safe) + tl.sum(p, axis=1)
        m = m_new
    m_split = tl.max(m, axis=0)
    m_safe = tl.where(m_split == float("-inf"), 0.0, m_split)
    if USE_EXP2:
        l_split = tl.sum(l * tl.exp2((m - m_safe) * LOG2E), axis=0)
    else:
        l_split = tl.sum(l * tl.exp(m - m_safe), axis=0)
    part = part_ptr + (row.to(tl.int64) * SPLITS + split) * 2
    tl.store(part, m_split)
    tl.store(part + 1, l_split)


@triton.jit
def log_softmax_split_write_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    out_ptr,  # [rows, cols]; rows are out_row_stride elements apart
    part_ptr,  # [rows, SPLITS, 2] fp32: m and l of each split
    x_row_stride,
    out_row_stride,
    cols,
    split_cols,  # a multiple of BLOCK_COLS
    SPLITS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program combines the splits of one row and writes one split of it."""
    LOG2E: tl.constexpr = 1.4426950408889634
    LN2: tl.constexpr = 0.6931471805599453
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    row = tl.program_id(0) // SPLITS
    split = tl.program_id(0) % SPLITS
    x_row = x_ptr + row.to(tl.int64) * x_row_stride
    out_row = out_ptr + row.to(tl.int64) * out_row_stride
    part = part_ptr + (row.to(tl.int64) * SPLITS + tl.arange(0, SPLITS)) * 2
    m = tl.load(part)
    l = tl.load(part + 1)
    # A row of nothing but -inf has -inf - -inf here: NaN throughout, as it should.
    m_row = tl.max(m, axis=0)
    if USE_EXP2:
        l_row = tl.sum(l * tl.exp2((m - m_row) * LOG2E), axis=0)
        log_l = tl.log2(l_row) * LN2
    else:
        l_row = tl.sum(l * tl.exp(m - m_row), axis=0)
        log_l = tl.log(l_row)
    columns = tl.arange(0, BLOCK_COLS)
    end = tl.minimum((split + 1) * split_cols, cols)
    for start in tl.range(split * split_cols, end, BLOCK_COLS, num_stages=LOAD_STAGES):
        col = start + columns
        x = tl.load(x_row + col, mask=col < cols, other=float("-inf"), eviction_policy=LOAD_HINT)
        # m and log(l) apart, because their sum is m where m is huge.
        y = (x.to(tl.float32) - m_row) - log_l
        tl.store(out_row + col, y.to(out_ptr.dtype.element_ty), mask=col < cols, cache_modifier=STORE_HINT)


def launch(x, out, *, BLOCK_COLS, VECTOR, SPLITS, LOAD_STAGES, USE_EXP2, STREAM_HINTS, num_warps):
    """Write the log-softmax of ``x`` over its last axis into ``out``; both [rows, cols] with unit stride along cols.

    ``BLOCK_COLS``, ``VECTOR`` and ``SPLITS`` are powers of two.
    """
    rows, cols = x.shape
    part = torch.empty((rows, SPLITS, 2), dtype=torch.float32, device=x.device)
    split_cols = triton.cdiv(triton.cdiv(cols, SPLITS), BLOCK_COLS) * BLOCK_COLS
    log_softmax_split_partial_kernel[(rows * SPLITS,)](
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
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
    )
    log_softmax_split_write_kernel[(rows * SPLITS,)](
        x,
        out,
        part,
        x.stride(0),
        out.stride(0),
        cols,
        split_cols,
        SPLITS=SPLITS,
        BLOCK_COLS=BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
    )
