"""Row softmax with the whole row in one block: one read, one write, every reduction inside the block.

Two passes over registers: m = max(x), p = exp(x - m), l = sum(p), out = p / l. For rows that fit into a block's
registers; a row longer than BLOCK_COLS cannot be computed by it. RECOMPUTE_EXP keeps a 16-bit x instead of p, which
halves the registers, so that more rows are on their way at once.
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


@triton.jit
def softmax_whole_row_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    out_ptr,  # [rows, cols]; rows are out_row_stride elements apart
    x_row_stride,
    out_row_stride,
    cols,  # at most BLOCK_COLS
    BLOCK_COLS: tl.constexpr,
    USE_EXP2: tl.constexpr,
    RECOMPUTE_EXP: tl.constexpr,
):
    """One program computes row program_id."""
    LOG2E: tl.constexpr = 1.4426950408889634
    SHORT: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK_COLS)
    inside = col < cols
    x = tl.load(x_ptr + row * x_row_stride + col, mask=inside, other=float("-inf"))
    logits = x.to(tl.float32)
    # A row of nothing but -inf has -inf - -inf here: NaN throughout, as it should.
    m = tl.max(logits, axis=0)
    if RECOMPUTE_EXP and SHORT:
        zero = tl.minimum(cols, 0)
        pairs = _hold(_pack(x), m, zero)
        logits = _unpack(pairs, x.dtype)
    if USE_EXP2:
        p = tl.exp2((logits - m) * LOG2E)
    else:
        p = tl.exp(logits - m)
    l = tl.sum(p, axis=0)
    if RECOMPUTE_EXP:
        # A second exponential instead of p / l, so that p need not be kept.
        if SHORT:
            logits = _unpack(_hold(pairs, l, zero), x.dtype)
        if USE_EXP2:
            y = tl.exp2((logits - m) * LOG2E - tl.log2(l))
        else:
            y = tl.exp((logits - m) - tl.log(l))
    else:
        y = p * (1.0 / l)
    tl.store(out_ptr + row * out_row_stride + col, y.to(out_ptr.dtype.element_ty), mask=inside)


def launch(x, out, *, BLOCK_COLS, USE_EXP2, RECOMPUTE_EXP, num_warps):
    """Write the softmax of ``x`` over its last axis into ``out``; both [rows, cols] with unit stride along cols.

    ``BLOCK_COLS`` is a power of two of at least cols. ``ValueError`` where a row is longer.
    """
    rows, cols = x.shape
    if cols > BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {BLOCK_COLS}; render one for it")
    softmax_whole_row_kernel[(rows,)](
        x,
        out,
        x.stride(0),
        out.stride(0),
        cols,
        BLOCK_COLS=BLOCK_COLS,
        USE_EXP2=USE_EXP2,
        RECOMPUTE_EXP=RECOMPUTE_EXP,
        num_warps=num_warps,
    )
