"""The gradient of the cross-entropy, one program for whole rows, which it walks through in tiles.

dlogits = grad * (exp(x - lse) * (1 + 2 z lse) - (1 - eps) onehot - eps / cols), and 0 throughout where a row is
ignored. One read, one write; what a row needs beside them is read once for all of its tiles, the next of which are
loaded meanwhile. Whole tiles are read and written without a mask.
"""

import triton
import triton.language as tl


@triton.jit
def _gradient(x, lanes, hot_lane, lse, slope, base, hot, USE_EXP2: tl.constexpr):
    """slope * exp(x - lse) - base, and less by ``hot`` in the lane ``hot_lane``: fp32, as ``x``."""
    LOG2E: tl.constexpr = 1.4426950408889634
    if USE_EXP2:
        # Where the product would overflow, neighbouring numbers are so far apart that any factor gives 0 or 1.
        factor = tl.where(tl.abs(lse) > 1.0e38, 0.5, LOG2E)
        y = tl.exp2(x * factor - lse * factor)
    else:
        y = tl.exp(x - lse)
    # By lane, and not by column: columns would have to be held in registers from tile to tile.
    return slope * y - base - tl.where(lanes == hot_lane, hot, 0.0)


@triton.jit(do_not_specialize=["rows"])
def cross_entropy_bwd_loop_kernel(
    logits_ptr,  # [rows, cols], any float dtype; rows are row_stride elements apart
    targets_ptr,  # [rows] int64; a row whose target is no column is ignored
    lse_ptr,  # [rows] fp32
    grad_ptr,  # [rows] fp32
    dlogits_ptr,  # [rows, cols]; rows are out_row_stride elements apart
    row_stride,
    out_row_stride,
    rows,
    cols,
    label_smoothing,
    z_loss,
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program computes the rows program_id, program_id + num_programs, ..., in tiles of BLOCK_COLS columns."""
    # Nothing reads either of them again soon.
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    lanes = tl.arange(0, BLOCK_COLS)
    whole = cols // BLOCK_COLS * BLOCK_COLS
    for number in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(number, tl.int64)
        logits_row = logits_ptr + row * row_stride
        out_row = dlogits_ptr + row * out_row_stride
        target = tl.load(targets_ptr + row)
        lse = tl.load(lse_ptr + row)
        grad = tl.load(grad_ptr + row)
        counts = (target >= 0) & (target < cols)
        hot_col = target.to(tl.int32)
        slope = grad * (1.0 + 2.0 * z_loss * lse)
        base = grad * (label_smoothing / cols)
        hot = grad * (1.0 - label_smoothing)
        for tile in tl.range(0, whole, BLOCK_COLS, num_stages=LOAD_STAGES):
            x = tl.load(logits_row + tile + lanes, eviction_policy=LOAD_HINT).to(tl.float32)
            d = _gradient(x, lanes, hot_col - tile, lse, slope, base, hot, USE_EXP2=USE_EXP2)
            # An ignored row is 0 whatever is in it.
            d = tl.where(counts, d, 0.0).to(dlogits_ptr.dtype.element_ty)
            tl.store(out_row + tile + lanes, d, cache_modifier=STORE_HINT)
        if whole < cols:
            inside = whole + lanes < cols
            x = tl.load(logits_row + whole + lanes, mask=inside, other=0.0, eviction_policy=LOAD_HINT).to(tl.float32)
            d = _gradient(x, lanes, hot_col - whole, lse, slope, base, hot, USE_EXP2=USE_EXP2)
            d = tl.where(counts, d, 0.0).to(dlogits_ptr.dtype.element_ty)
            tl.store(out_row + whole + lanes, d, mask=inside, cache_modifier=STORE_HINT)


def launch(
    logits,
    targets,
    lse,
    grad,
    dlogits,
    *,
    label_smoothing,
    z_loss,
    BLOCK_COLS,
    LOAD_STAGES,
    NUM_PROGRAMS,
    USE_EXP2,
    STREAM_HINTS,
    num_warps,
):
    """Write the gradient of every row's loss, times ``grad``, into ``dlogits``.

    ``logits`` and ``dlogits``: [rows, cols] with unit stride along cols; ``targets``, ``lse`` and ``grad``: [rows],
    contiguous. ``NUM_PROGRAMS`` programs share the rows.
    """
    rows, cols = logits.shape
    cross_entropy_bwd_loop_kernel[(min(rows, NUM_PROGRAMS),)](
        logits,
        targets,
        lse,
        grad,
        dlogits,
        logits.stride(0),
        dlogits.stride(0),
        rows,
        cols,
        label_smoothing,
        z_loss,
        BLOCK_COLS=BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
    )
