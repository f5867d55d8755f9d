"""Cross-entropy with several programs a row, for few and long rows: two kernels.

The first takes every split of a row to its maximum m and sum l, and where the labels are smoothed to the sum of its
logits; the second combines them (M = max m, L = sum l exp(m - M), lse = M + log L). A split is a run of whole tiles;
trailing splits may be empty.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _step(x, m, l, USE_EXP2: tl.constexpr):
    """m and l [LANES] after the tile ``x`` [LANES, VECTOR] fp32."""
    LOG2E: tl.constexpr = 1.4426950408889634
    m_new = tl.maximum(m, tl.max(x, axis=1))
    # A lane that has seen only -inf keeps l = 0: -inf - -inf would be NaN.
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    if USE_EXP2:
        l = l * tl.exp2((m - m_safe) * LOG2E) + tl.sum(tl.exp2((x - m_safe[:, None]) * LOG2E), axis=1)
    else:
        l = l * tl.exp(m - m_safe) + tl.sum(tl.exp(x - m_safe[:, None]), axis=1)
    return m_new, l


@triton.jit
def cross_entropy_split_partial_kernel(
    logits_ptr,  # [rows, cols], any float dtype; rows are row_stride elements apart
    part_ptr,  # [rows, SPLITS, 3] fp32: m, l and sum of each split (-inf, 0 and 0 where it is empty)
    row_stride,
    cols,
    split_cols,  # a multiple of BLOCK_COLS
    SPLITS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
    SMOOTHING: tl.constexpr,
):
    """One program takes one split of one row, in tiles of BLOCK_COLS columns."""
    LOG2E: tl.constexpr = 1.4426950408889634
    VECTOR: tl.constexpr = 128 // logits_ptr.dtype.element_ty.primitive_bitwidth  # 16 bytes
    LANES: tl.constexpr = BLOCK_COLS // VECTOR
    row = tl.program_id(0) // SPLITS
    split = tl.program_id(0) % SPLITS
    logits_row = logits_ptr + row.to(tl.int64) * row_stride
    lane = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    m = tl.full([LANES], float("-inf"), tl.float32)
    l = tl.zeros([LANES], tl.float32)
    if SMOOTHING:
        total = tl.zeros([LANES], tl.float32)
    start = split * split_cols
    end = tl.minimum(start + split_cols, cols)
    whole = end // BLOCK_COLS * BLOCK_COLS
    for tile in tl.range(start, whole, BLOCK_COLS, num_stages=LOAD_STAGES):
        x = tl.load(logits_row + tile + lane).to(tl.float32)
        m, l = _step(x, m, l, USE_EXP2=USE_EXP2)
        if SMOOTHING:
            total += tl.sum(x, axis=1)
    # An empty split starts beyond the row's end.
    rest = tl.maximum(whole, start)
    if rest < end:
        inside = rest + lane < end
        x = tl.load(logits_row + rest + lane, mask=inside, other=float("-inf")).to(tl.float32)
        m, l = _step(x, m, l, USE_EXP2=USE_EXP2)
        if SMOOTHING:
            total += tl.sum(tl.where(inside, x, 0.0), axis=1)
    m_split = tl.max(m, axis=0)
    m_safe = tl.where(m_split == float("-inf"), 0.0, m_split)
    if USE_EXP2:
        l_split = tl.sum(l * tl.exp2((m - m_safe) * LOG2E), axis=0)
    else:
        l_split = tl.sum(l * tl.exp(m - m_safe), axis=0)
    part = part_ptr + (row.to(tl.int64) * SPLITS + split) * 3
    tl.store(part, m_split)
    tl.store(part + 1, l_split)
    if SMOOTHING:
        tl.store(part + 2, tl.sum(total, axis=0))


@triton.jit
def cross_entropy_split_combine_kernel(
    logits_ptr,  # [rows, cols], any float dtype; rows are row_stride elements apart
    targets_ptr,  # [rows] int64; a row whose target is no column is ignored
    loss_ptr,  # [rows] fp32
    lse_ptr,  # [rows] fp32
    part_ptr,  # [rows, SPLITS, 3] fp32: m, l and sum of each split
    row_stride,
    cols,
    label_smoothing,
    z_loss,
    SPLITS: tl.constexpr,
    USE_EXP2: tl.constexpr,
    SMOOTHING: tl.constexpr,
):
    """One program combines the splits of row program_id."""
    LOG2E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    part = part_ptr + (row * SPLITS + tl.arange(0, SPLITS)) * 3
    m = tl.load(part)
    l = tl.load(part + 1)
    counts = (target >= 0) & (target < cols)
    at_target = tl.load(logits_ptr + row * row_stride + target, mask=counts, other=0.0).to(tl.float32)
    # A row of nothing but -inf has -inf - -inf here: NaN, as it should.
    m_row = tl.max(m, axis=0)
    if USE_EXP2:
        l_row = tl.sum(l * tl.exp2((m - m_row) * LOG2E), axis=0)
    else:
        l_row = tl.sum(l * tl.exp(m - m_row), axis=0)
    lse = m_row + tl.log(l_row)
    loss = lse - (1.0 - label_smoothing) * at_target
    if SMOOTHING:
        loss -= label_smoothing * (tl.sum(tl.load(part + 2), axis=0) / cols)
    loss += z_loss * lse * lse
    tl.store(loss_ptr + row, tl.where(counts, loss, 0.0))
    tl.store(lse_ptr + row, lse)


def launch(
    logits,
    targets,
    loss,
    lse,
    *,
    label_smoothing,
    z_loss,
    BLOCK_COLS,
    SPLITS,
    LOAD_STAGES,
    USE_EXP2,
    SMOOTHING,
    num_warps,
):
    """Write the loss and the log-sum-exp of every row of ``logits`` [rows, cols], of unit stride along cols.

    ``targets``, ``loss`` and ``lse``: [rows], contiguous. ``SPLITS`` is a power of two. ``z_loss`` may be any number, 0
    included. ``label_smoothing`` may be any above 0 and below 1 with ``SMOOTHING``, and must be 0 without it.
    ``ValueError`` where it does not fit.
    """
    rows, cols = logits.shape
    if SMOOTHING and label_smoothing == 0.0:
        # 0 times the sum of the logits is NaN where one of them is infinite.
        raise ValueError("label_smoothing is 0, but this kernel is for numbers above 0; render one for 0")
    if not SMOOTHING and label_smoothing != 0.0:
        raise ValueError(f"label_smoothing is {label_smoothing}, but this kernel is for 0; render one for others")
    part = torch.empty((rows, SPLITS, 3), dtype=torch.float32, device=logits.device)
    split_cols = triton.cdiv(triton.cdiv(cols, SPLITS), BLOCK_COLS) * BLOCK_COLS
    cross_entropy_split_partial_kernel[(rows * SPLITS,)](
        logits,
        part,
        logits.stride(0),
        cols,
        split_cols,
        SPLITS=SPLITS,
        BLOCK_COLS=BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        SMOOTHING=SMOOTHING,
        num_warps=num_warps,
    )
    cross_entropy_split_combine_kernel[(rows,)](
        logits,
        targets,
        loss,
        lse,
        part,
        logits.stride(0),
        cols,
        label_smoothing,
        z_loss,
        SPLITS=SPLITS,
        USE_EXP2=USE_EXP2,
        SMOOTHING=SMOOTHING,
        num_warps=1,
    )
