"""Cross-entropy, online over tiles: one program a row, which reads it once.

A tile is [BLOCK_COLS / VECTOR, VECTOR]: what a thread loads at once is a lane. Every lane keeps a running maximum m and
a running sum l (l = l*alpha + sum of exp(x - m) over its VECTOR elements), so that an element takes one exponential and
not two, and no reduction across threads is needed until the row's end. Whole tiles are loaded without a mask. Where
rows do not start at multiples of 16 bytes, REALIGN lets the tiles start at the one before.
"""

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
def cross_entropy_online_kernel(
    logits_ptr,  # [rows, cols], any float dtype; rows are row_stride elements apart
    targets_ptr,  # [rows] int64; a row whose target is no column is ignored
    loss_ptr,  # [rows] fp32
    lse_ptr,  # [rows] fp32
    row_stride,
    cols,
    label_smoothing,
    z_loss,
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
    SMOOTHING: tl.constexpr,
    REALIGN: tl.constexpr,
):
    """One program computes row program_id, in tiles of BLOCK_COLS columns."""
    LOG2E: tl.constexpr = 1.4426950408889634
    VECTOR: tl.constexpr = 128 // logits_ptr.dtype.element_ty.primitive_bitwidth  # 16 bytes
    LANES: tl.constexpr = BLOCK_COLS // VECTOR
    row = tl.program_id(0).to(tl.int64)
    logits_row = logits_ptr + row * row_stride
    target = tl.load(targets_ptr + row)
    lane = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    m = tl.full([LANES], float("-inf"), tl.float32)
    l = tl.zeros([LANES], tl.float32)
    if SMOOTHING:
        total = tl.zeros([LANES], tl.float32)
    if REALIGN:
        # Columns count from the last multiple of 16 bytes at or before the row's start.
        before = (row * row_stride % VECTOR).to(tl.int32)
        first = logits_ptr + tl.multiple_of(row * row_stride - before, VECTOR)
        end = cols + before
        inside = (lane >= before) & (lane < end)
        x = tl.load(first + lane, mask=inside, other=float("-inf")).to(tl.float32)
        m, l = _step(x, m, l, USE_EXP2=USE_EXP2)
        if SMOOTHING:
            total += tl.sum(tl.where(inside, x, 0.0), axis=1)
        start = BLOCK_COLS
    else:
        first = logits_row
        end = cols
        start = 0
    whole = end // BLOCK_COLS * BLOCK_COLS
    for tile in tl.range(start, whole, BLOCK_COLS, num_stages=LOAD_STAGES):
        x = tl.load(first + tile + lane).to(tl.float32)
        m, l = _step(x, m, l, USE_EXP2=USE_EXP2)
        if SMOOTHING:
            total += tl.sum(x, axis=1)
    rest = tl.maximum(whole, start)
    if rest < end:
        inside = rest + lane < end
        x = tl.load(first + rest + lane, mask=inside, other=float("-inf")).to(tl.float32)
        m, l = _step(x, m, l, USE_EXP2=USE_EXP2)
        if SMOOTHING:
            total += tl.sum(tl.where(inside, x, 0.0), axis=1)
    counts = (target >= 0) & (target < cols)
    at_target = tl.load(logits_row + target, mask=counts, other=0.0).to(tl.float32)
    # A row of nothing but -inf has -inf - -inf here: NaN, as it should.
    m_row = tl.max(m, axis=0)
    if USE_EXP2:
        l_row = tl.sum(l * tl.exp2((m - m_row) * LOG2E), axis=0)
    else:
        l_row = tl.sum(l * tl.exp(m - m_row), axis=0)
    lse = m_row + tl.log(l_row)
    loss = lse - (1.0 - label_smoothing) * at_target
    if SMOOTHING:
        loss -= label_smoothing * (tl.sum(total, axis=0) / cols)
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
    LOAD_STAGES,
    USE_EXP2,
    SMOOTHING,
    REALIGN,
    num_warps,
):
    """Write the loss and the log-sum-exp of every row of ``logits`` [rows, cols], of unit stride along cols.

    ``targets``, ``loss`` and ``lse``: [rows], contiguous; ``logits`` starts at a multiple of 16 bytes. ``REALIGN``:
    worth it where the rows' starts are no such multiples. ``z_loss`` may be any number, 0 included. ``label_smoothing``
    may be any above 0 and below 1 with ``SMOOTHING``, and must be 0 without it. ``ValueError`` where it does not fit.
    """
    rows, cols = logits.shape
    if SMOOTHING and label_smoothing == 0.0:
        # 0 times the sum of the logits is NaN where one of them is infinite.
        raise ValueError("label_smoothing is 0, but this kernel is for numbers above 0; render one for 0")
    if not SMOOTHING and label_smoothing != 0.0:
        raise ValueError(f"label_smoothing is {label_smoothing}, but this kernel is for 0; render one for others")
    cross_entropy_online_kernel[(rows,)](
        logits,
        targets,
        loss,
        lse,
        logits.stride(0),
        cols,
        label_smoothing,
        z_loss,
        BLOCK_COLS=BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        SMOOTHING=SMOOTHING,
        REALIGN=REALIGN,
        num_warps=num_warps,
    )
