"""Row log-softmax with the whole row in one block: one read, one write, every reduction inside the block.

Two passes over registers: m = max(x), l = sum(exp(x - m)), out = (x - m) - log(l). A row longer than BLOCK_COLS cannot
be computed by it. Programs may stay and walk over the rows: the loop's loads are then pipelined, LOAD_STAGES - 1 rows
being on their way into shared memory during the reductions of a row. HOLD_SHORT keeps a 16-bit x in its own format
between the passes, which halves the registers, so that more rows are on their way at once.
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
def log_softmax_whole_row_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    out_ptr,  # [rows, cols]; rows are out_row_stride elements apart
    x_row_stride,
    out_row_stride,
    rows,
    cols,  # at most BLOCK_COLS
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
    HOLD_SHORT: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program computes the rows program_id, program_id + num_programs, ..."""
    LOG2E: tl.constexpr = 1.4426950408889634
    LN2: tl.constexpr = 0.6931471805599453
    SHORT: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16
    # Every element is read once and written once: neither need stay in the cache.
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    col = tl.arange(0, BLOCK_COLS)
    inside = col < cols
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=LOAD_STAGES):
        x_row = x_ptr + tl.cast(row, tl.int64) * x_row_stride
        out_row = out_ptr + tl.cast(row, tl.int64) * out_row_stride
        x = tl.load(x_row + col, mask=inside, other=float("-inf"), eviction_policy=LOAD_HINT)
        logits = x.to(tl.float32)
        # A row of nothing but -inf has -inf - -inf here: NaN throughout, as it should.
        m = tl.max(logits, axis=0)
        if HOLD_SHORT and SHORT:
            zero = tl.minimum(cols, 0)
            pairs = _hold(_pack(x), m, zero)
            logits = _unpack(pairs, x.dtype)
        if USE_EXP2:
            p = tl.exp2((logits - m) * LOG2E)
        else:
            p = tl.exp(logits - m)
        l = tl.sum(p, axis=0)
        if USE_EXP2:
            log_l = tl.log2(l) * LN2
        else:
            log_l = tl.log(l)
        if HOLD_SHORT and SHORT:
            logits = _unpack(_hold(pairs, log_l, zero), x.dtype)
        # m and log(l) apart, because their sum is m where m is huge.
        y = (logits - m) - log_l
        tl.store(out_row + col, y.to(out_ptr.dtype.element_ty), mask=inside, cache_modifier=STORE_HINT)


def launch(x, out, *, BLOCK_COLS, LOAD_STAGES, NUM_PROGRAMS, USE_EXP2, HOLD_SHORT, STREAM_HINTS, num_warps):
    """Write the log-softmax of ``x`` over its last axis into ``out``; both [rows, cols] with unit stride along cols.

    ``BLOCK_COLS`` is a power of two of at least cols; ``NUM_PROGRAMS`` programs share the rows. ``ValueError``
    where a row is longer.
    """
    rows, cols = x.shape
    if cols > BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {BLOCK_COLS}; render one for it")
    log_softmax_whole_row_kernel[(min(rows, NUM_PROGRAMS),)](
        x,
        out,
        x.stride(0),
        out.stride(0),
        rows,
        cols,
        BLOCK_COLS=BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        HOLD_SHORT=HOLD_SHORT,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
    )
