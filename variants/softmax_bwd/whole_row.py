"""Gradient of the row softmax with the whole row in one block: two reads, one write, the reduction inside the block.

Of the saved output y and the output's gradient dy, dx = y * (dy - sum(y * dy)). A row longer than BLOCK_COLS cannot be
computed by it. Programs may stay and walk over the rows: the loop's loads are then pipelined, LOAD_STAGES - 1 rows
being on their way into shared memory during the reduction of a row. HOLD_SHORT keeps 16-bit y and dy in their own
format until the sum is there, which halves the registers, so that more rows are on their way at once.
"""

import triton
import triton.language as tl


@triton.jit
def _pack(x):
    """``x`` [N] of a 16-bit dtype as [N / 2] uint32, two neighbours in a word: half the registers of its fp32 form."""
    halves = tl.reshape(x.to(tl.uint16, bitcast=True), [x.shape[0] // 2, 2])
    low, high = tl.split(halves)
    return low.to(tl.uint32) | (high.to(tl.uint32) << 16)


@triton.jit
def _unpack(pairs, dtype: tl.constexpr):
    """What ``_pack`` packed, as [N] fp32."""
    if dtype == tl.bfloat16:
        # A bf16 is the upper half of an fp32.
        low = (pairs << 16).to(tl.float32, bitcast=True)
        high = (pairs & 0xFFFF0000).to(tl.float32, bitcast=True)
    else:
        low = (pairs & 0xFFFF).to(tl.uint16).to(dtype, bitcast=True).to(tl.float32)
        high = (pairs >> 16).to(tl.uint16).to(dtype, bitcast=True).to(tl.float32)
    return tl.reshape(tl.join(low, high), [pairs.shape[0] * 2])


@triton.jit
def _hold(pairs, after, zero):
    """``pairs``, but the compiler cannot unpack them before it has ``after`` (fp32): it must not keep them unpacked.

    ``zero`` is 0, which the compiler cannot know.
    """
    return pairs + (after.to(tl.int32, bitcast=True) & zero).to(tl.uint32)


@triton.jit(do_not_specialize=["rows"])
def softmax_bwd_whole_row_kernel(
    y_ptr,  # [rows, cols], any float dtype; rows are y_row_stride elements apart
    dy_ptr,  # [rows, cols]; rows are dy_row_stride elements apart
    dx_ptr,  # [rows, cols]; rows are dx_row_stride elements apart
    y_row_stride,
    dy_row_stride,
    dx_row_stride,
    rows,
    cols,  # at most BLOCK_COLS
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    HOLD_SHORT: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program computes the rows program_id, program_id + num_programs, ..."""
    SHORT: tl.constexpr = y_ptr.dtype.element_ty.primitive_bitwidth == 16
    # Every element is read once and written once: neither need stay in the cache.
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    col = tl.arange(0, BLOCK_COLS)
    inside = col < cols
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=LOAD_STAGES):
        y_row = y_ptr + tl.cast(row, tl.int64) * y_row_stride
        dy_row = dy_ptr + tl.cast(row, tl.int64) * dy_row_stride
        dx_row = dx_ptr + tl.cast(row, tl.int64) * dx_row_stride
        y_in = tl.load(y_row + col, mask=inside, other=0.0, eviction_policy=LOAD_HINT)
        dy_in = tl.load(dy_row + col, mask=inside, other=0.0, eviction_policy=LOAD_HINT)
        y = y_in.to(tl.float32)
        dy = dy_in.to(tl.float32)
        total = tl.sum(y * dy, axis=0)
        if HOLD_SHORT and SHORT:
            zero = tl.minimum(cols, 0)
            y = _unpack(_hold(_pack(y_in), total, zero), y_in.dtype)
            dy = _unpack(_hold(_pack(dy_in), total, zero), dy_in.dtype)
        dx = y * (dy - total)
        tl.store(dx_row + col, dx.to(dx_ptr.dtype.element_ty), mask=inside, cache_modifier=STORE_HINT)


def launch(y, dy, dx, *, BLOCK_COLS, LOAD_STAGES, NUM_PROGRAMS, HOLD_SHORT, STREAM_HINTS, num_warps):
    """Write the gradient of the softmax's input into ``dx``, of its output ``y`` and that one's gradient ``dy``.

    All [rows, cols] with unit stride along cols. ``BLOCK_COLS`` is a power of two of at least cols; ``NUM_PROGRAMS``
    programs share the rows. ``ValueError`` where a row is longer.
    """
    rows, cols = y.shape
    if cols > BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {BLOCK_COLS}; render one for it")
    softmax_bwd_whole_row_kernel[(min(rows, NUM_PROGRAMS),)](
        y,
        dy,
        dx,
        y.stride(0),
        dy.stride(0),
        dx.stride(0),
        rows,
        cols,
        BLOCK_COLS=BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        HOLD_SHORT=HOLD_SHORT,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
    )
