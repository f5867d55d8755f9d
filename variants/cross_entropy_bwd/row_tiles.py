"""The gradient of the cross-entropy, one program a row and tile: with the log-sum-exp given, tiles are independent.

dlogits = grad * (exp(x - lse) * (1 + 2 z lse) - (1 - eps) onehot - eps / cols), and 0 throughout where a row is
ignored. One read, one write.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tiles"])  # 1 at small shapes, which the same binary must be checked on
def cross_entropy_bwd_tiles_kernel(
    logits_ptr,  # [rows, cols], any float dtype; rows are row_stride elements apart
    targets_ptr,  # [rows] int64; a row whose target is no column is ignored
    lse_ptr,  # [rows] fp32
    grad_ptr,  # [rows] fp32
    dlogits_ptr,  # [rows, cols]; rows are out_row_stride elements apart
    row_stride,
    out_row_stride,
    cols,
    tiles,  # of a row
    label_smoothing,
    z_loss,
    BLOCK_COLS: tl.constexpr,
    USE_EXP2: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program computes one tile of BLOCK_COLS columns of one row."""
    LOG2E: tl.constexpr = 1.4426950408889634
    # Nothing reads either of them again soon.
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    row = (tl.program_id(0) // tiles).to(tl.int64)
    col = tl.program_id(0) % tiles * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    inside = col < cols
    x = tl.load(logits_ptr + row * row_stride + col, mask=inside, other=0.0, eviction_policy=LOAD_HINT)
    target = tl.load(targets_ptr + row)
    lse = tl.load(lse_ptr + row)
    grad = tl.load(grad_ptr + row)
    counts = (target >= 0) & (target < cols)
    if USE_EXP2:
        # Where the product would overflow, neighbouring numbers are so far apart that any factor gives 0 or 1.
        factor = tl.where(tl.abs(lse) > 1.0e38, 0.5, LOG2E)
        y = tl.exp2(x.to(tl.float32) * factor - lse * factor)
    else:
        y = tl.exp(x.to(tl.float32) - lse)
    hot = tl.where(col == target.to(tl.int32), 1.0 - label_smoothing, 0.0)
    d = grad * (y * (1.0 + 2.0 * z_loss * lse) - label_smoothing / cols - hot)
    d = tl.where(counts, d, 0.0).to(dlogits_ptr.dtype.element_ty)
    tl.store(dlogits_ptr + row * out_row_stride + col, d, mask=inside, cache_modifier=STORE_HINT)


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
    USE_EXP2,
    STREAM_HINTS,
    num_warps,
):
    """Write the gradient of every row's loss, times ``grad``, into ``dlogits``.

    ``logits`` and ``dlogits``: [rows, cols] with unit stride along cols; ``targets``, ``lse`` and ``grad``: [rows],
    contiguous. ``label_smoothing`` and ``z_loss`` may be any numbers, 0 included, in every call.
    """
    rows, cols = logits.shape
    tiles = triton.cdiv(cols, BLOCK_COLS)
    cross_entropy_bwd_tiles_kernel[(rows * tiles,)](
        logits,
        targets,
        lse,
        grad,
        dlogits,
        logits.stride(0),
        dlogits.stride(0),
        cols,
        tiles,
        label_smoothing,
        z_loss,
        BLOCK_COLS=BLOCK_COLS,
        USE_EXP2=USE_EXP2,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
    )
