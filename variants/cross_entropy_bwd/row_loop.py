"""The gradient of the cross-entropy, one program for whole rows, which it walks through in tiles.

dlogits = grad * (exp(x - lse) * (1 + 2 z lse) - (1 - eps) onehot - eps / cols), and 0 throughout where a row is
ignored. One read, one write; what a row needs beside them is read once for all of its tiles, the next of which are
loaded meanwhile. Whole tiles are read and written without a mask. Where rows do not start at multiples of 16 bytes,
REALIGN lets the tiles start at the one before.
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
    logits_ptr,  # [rows, cols], any float dtype; rows are row_stride elements apart here and in dlogits
    targets_ptr,  # [rows] int64; a row whose target is no column is ignored
    lse_ptr,  # [rows] fp32
    grad_ptr,  # [rows] fp32
    dlogits_ptr,  # [rows, cols]
    row_stride,
    rows,
    cols,
    label_smoothing,
    z_loss,
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
    REALIGN: tl.constexpr,
):
    """One program computes the rows program_id, program_id + num_programs, ..., in tiles of BLOCK_COLS columns."""
    # Nothing reads either of them again soon.
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    VECTOR: tl.constexpr = 128 // logits_ptr.dtype.element_ty.primitive_bitwidth  # 16 bytes
    lanes = tl.arange(0, BLOCK_COLS)
    for number in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(number, tl.int64)
        target = tl.load(targets_ptr + row)
        lse = tl.load(lse_ptr + row)
        grad = tl.load(grad_ptr + row)
        counts = (target >= 0) & (target < cols)
        hot_place = target.to(tl.int32)
        slope = grad * (1.0 + 2.0 * z_loss * lse)
        base = grad * (label_smoothing / cols)
        hot = grad * (1.0 - label_smoothing)
        if REALIGN:
            # Places count from the last multiple of 16 bytes at or before the row's start.
            before = (row * row_stride % VECTOR).to(tl.int32)
            first = tl.multiple_of(row * row_stride - before, VECTOR)
            hot_place += before
            end = cols + before
            inside = (lanes >= before) & (lanes < end)
            x = tl.load(logits_ptr + first + lanes, mask=inside, other=0.0, eviction_policy=LOAD_HINT).to(tl.float32)
            d = _gradient(x, lanes, hot_place, lse, slope, base, hot, USE_EXP2=USE_EXP2)
            d = tl.where(counts, d, 0.0).to(dlogits_ptr.dtype.element_ty)
            tl.store(dlogits_ptr + first + lanes, d, mask=inside, cache_modifier=STORE_HINT)
            start = BLOCK_COLS
        else:
            first = row * row_stride
            end = cols
            start = 0
        logits_row = logits_ptr + first
        out_row = dlogits_ptr + first
        whole = end // BLOCK_COLS * BLOCK_COLS
        for tile in tl.range(start, whole, BLOCK_COLS, num_stages=LOAD_STAGES):
            x = tl.load(logits_row + tile + lanes, eviction_policy=LOAD_HINT).to(tl.float32)
            d = _gradient(x, lanes, hot_place - tile, lse, slope, base, hot, USE_EXP2=USE_EXP2)
            # An ignored row is 0 whatever is in it.
            d = tl.where(counts, d, 0.0).to(dlogits_ptr.dtype.element_ty)
            tl.store(out_row + tile + lanes, d, cache_modifier=STORE_HINT)
        rest = tl.maximum(whole, start)
        if rest < end:
            inside = rest + lanes < end
            x = tl.load(logits_row + rest + lanes, mask=inside, other=0.0, eviction_policy=LOAD_HINT).to(tl.float32)
            d = _gradient(x, lanes, hot_place - rest, lse, slope, base, hot, USE_EXP2=USE_EXP2)
            d = tl.where(counts, d, 0.0).to(dlogits_ptr.dtype.element_ty)
            tl.store(out_row + rest + lanes, d, mask=inside, cache_modifier=STORE_HINT)


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
    REALIGN,
    num_warps,
):
    """Write the gradient of every row's loss, times ``grad``, into ``dlogits``.

    ``logits`` and ``dlogits``: [rows, cols] with one stride from row to row, unit stride along cols, and a start at a
    multiple of 16 bytes; ``targets``, ``lse`` and ``grad``: [rows], contiguous. ``NUM_PROGRAMS`` programs share the
    rows. ``REALIGN``: worth it where the rows' starts are no such multiples. ``label_smoothing`` and ``z_loss`` may be
    any numbers, 0 included, in every call. ``ValueError`` where the strides differ.
    """
    rows, cols = logits.shape
    if logits.stride(0) != dlogits.stride(0):
        raise ValueError(
            f"the rows of dlogits are {dlogits.stride(0)} elements apart, those of logits {logits.stride(0)}"
        )
    cross_entropy_bwd_loop_kernel[(min(rows, NUM_PROGRAMS),)](
        logits,
        targets,
        lse,
        grad,
        dlogits,
        logits.stride(0),
        rows,
        cols,
        label_smoothing,
        z_loss,
        BLOCK_COLS=BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        STREAM_HINTS=STREAM_HINTS,
        REALIGN=REALIGN,
        num_warps=num_warps,
    )
