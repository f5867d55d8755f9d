"""Cross-entropy with the whole row in one block: one read, every reduction inside the block.

m = max(x), l = sum exp(x - m), lse = m + log l, loss = lse - x[target]. For rows that fit into a block's registers; a
row longer than BLOCK_COLS cannot be computed by it. In base 2 the scale is folded: exp2(x log2(e) - m log2(e)) is one
fused multiply-add and one exponential an element.
"""

import triton
import triton.language as tl


@triton.jit
def cross_entropy_whole_row_kernel(
    logits_ptr,  # [rows, cols], any float dtype; rows are row_stride elements apart
    targets_ptr,  # [rows] int64; a row whose target is no column is ignored
    loss_ptr,  # [rows] fp32
    lse_ptr,  # [rows] fp32
    row_stride,
    cols,  # at most BLOCK_COLS
    label_smoothing,
    z_loss,
    BLOCK_COLS: tl.constexpr,
    USE_EXP2: tl.constexpr,
    SMOOTHING: tl.constexpr,
):
    """One program computes row program_id."""
    LOG2E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(0).to(tl.int64)
    logits_row = logits_ptr + row * row_stride
    target = tl.load(targets_ptr + row)
    col = tl.arange(0, BLOCK_COLS)
    inside = col < cols
    x = tl.load(logits_row + col, mask=inside, other=float("-inf")).to(tl.float32)
    counts = (target >= 0) & (target < cols)
    # After the row's own loads, which it need not wait for, and among what they bring into the cache.
    at_target = tl.load(logits_row + target, mask=counts, other=0.0).to(tl.float32)
    # A row of nothing but -inf has -inf - -inf here: NaN, as it should.
    m = tl.max(x, axis=0)
    if USE_EXP2:
        # Where the product would overflow, neighbouring numbers are so far apart that any factor gives 0 or 1.
        factor = tl.where(tl.abs(m) > 1.0e38, 0.5, LOG2E)
        p = tl.exp2(x * factor - m * factor)
    else:
        p = tl.exp(x - m)
    lse = m + tl.log(tl.sum(p, axis=0))
    loss = lse - (1.0 - label_smoothing) * at_target
    if SMOOTHING:
        loss -= label_smoothing * (tl.sum(tl.where(inside, x, 0.0), axis=0) / cols)
    loss += z_loss * lse * lse
    tl.store(loss_ptr + row, tl.where(counts, loss, 0.0))
    tl.store(lse_ptr + row, lse)


def launch(logits, targets, loss, lse, *, label_smoothing, z_loss, BLOCK_COLS, USE_EXP2, SMOOTHING, num_warps):
    """Write the loss and the log-sum-exp of every row of ``logits`` [rows, cols], of unit stride along cols.

    ``targets``, ``loss`` and ``lse``: [rows], contiguous. ``BLOCK_COLS`` is a power of two of at least cols. ``z_loss``
    may be any number, 0 included. ``label_smoothing`` may be any above 0 and below 1 with ``SMOOTHING``, and must be 0
    without it. ``ValueError`` where it does not fit.
    """
    rows, cols = logits.shape
    if cols > BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {BLOCK_COLS}; render one for it")
    if SMOOTHING and label_smoothing == 0.0:
        # 0 times the sum of the logits is NaN where one of them is infinite.
        raise ValueError("label_smoothing is 0, but this kernel is for numbers above 0; render one for 0")
    if not SMOOTHING and label_smoothing != 0.0:
        raise ValueError(f"label_smoothing is {label_smoothing}, but this kernel is for 0; render one for others")
    cross_entropy_whole_row_kernel[(rows,)](
        logits,
        targets,
        loss,
        lse,
        logits.stride(0),
        cols,
        label_smoothing,
        z_loss,
        BLOCK_COLS=BLOCK_COLS,
        USE_EXP2=USE_EXP2,
        SMOOTHING=SMOOTHING,
        num_warps=num_warps,
    )
