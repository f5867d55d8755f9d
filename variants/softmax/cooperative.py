"""Row softmax with several programs a row in one kernel: each holds its part of the row, and they exchange (m, l).

SPLITS programs own a row at a time; each reads its BLOCK_COLS columns once, publishes the maximum m and the sum l of
them, waits for the others' pairs, and writes exp(x - M) / L. A row is read once, however long it is. m and l travel as
one 64-bit word, which is never 0 (m = 0 has l >= 1, m = -inf has its sign bit set), so a word is its own flag; the
scratch starts as zeros.

Needs a real GPU and all programs resident at once (a cooperative launch refuses a grid that is not): programs wait for
one another, so it cannot run in the interpreter, where they run one after the other. The wait is written in PTX.
"""

import torch
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
def _prefetch(x, elements):
    """Ask the L2 cache for ``elements`` elements from the pointer ``x`` on (sm_90): one instruction of one thread."""
    BYTES: tl.constexpr = x.dtype.element_ty.primitive_bitwidth // 8
    tl.inline_asm_elementwise(
        """
        {
            .reg .pred go, some;
            .reg .b32 thread, bytes;
            .reg .b64 place;
            mov.u32 thread, %tid.x;
            setp.eq.u32 go, thread, 0;
            and.b32 bytes, $2, -16;
            setp.gt.and.s32 go, bytes, 0, go;
            and.b64 place, $1, -16;
            @go cp.async.bulk.prefetch.L2.global [place], bytes;
            mov.u32 $0, thread;
        }
        """,
        constraints="=r,l,r",
        args=[x.to(tl.int64), (elements * BYTES).to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _publish(x, word, zero, DTYPE: tl.constexpr, USE_EXP2: tl.constexpr):
    """Store (m, l) of this program's part ``x`` of a row at ``word``; give the part as ``_finish`` wants it."""
    LOG2E: tl.constexpr = 1.4426950408889634
    m = tl.max(x.to(tl.float32), axis=0)
    # A part of nothing but -inf has l = 0: -inf - -inf would be NaN.
    m_safe = tl.where(m == float("-inf"), 0.0, m)
    SHORT: tl.constexpr = DTYPE.primitive_bitwidth == 16
    if SHORT:
        held = _hold(_pack(x), m, zero)
        logits = _unpack(held, DTYPE)
    else:
        held = x
        logits = x
    if USE_EXP2:
        l = tl.sum(tl.exp2((logits - m_safe) * LOG2E), axis=0)
    else:
        l = tl.sum(tl.exp(logits - m_safe), axis=0)
    high = m.to(tl.uint32, bitcast=True).to(tl.uint64) << 32
    both = high | l.to(tl.uint32, bitcast=True).to(tl.uint64)
    tl.store(word, both.to(tl.int64, bitcast=True))
    return held


@triton.jit
def _collect(words, SPLITS: tl.constexpr, USE_EXP2: tl.constexpr):
    """The row's m and log(l) (in base 2 where USE_EXP2), once all its ``words`` are there.

    Apart, because the sum of both is m where m is huge.
    """
    LOG2E: tl.constexpr = 1.4426950408889634
    # The wait is written in PTX, because the compiler pipelines no loop that holds another loop.
    word = tl.inline_asm_elementwise(
        """
        {
            .reg .pred empty;
        WAIT:
            ld.volatile.global.u64 $0, [$1];
            setp.eq.u64 empty, $0, 0;
            @empty bra WAIT;
        }
        """,
        constraints="=l,l",
        args=[(words + tl.arange(0, SPLITS)).to(tl.int64)],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )
    bits = word.to(tl.uint64, bitcast=True)
    m = (bits >> 32).to(tl.uint32).to(tl.float32, bitcast=True)
    l = (bits & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True)
    # A row of nothing but -inf has -inf - -inf here: NaN throughout, as it should.
    m_row = tl.max(m, axis=0)
    if USE_EXP2:
        log_l = tl.log2(tl.sum(l * tl.exp2((m - m_row) * LOG2E), axis=0))
    else:
        log_l = tl.log(tl.sum(l * tl.exp(m - m_row), axis=0))
    return m_row, log_l


@triton.jit
def _finish(
    held,
    words,
    out,
    inside,
    zero,
    SPLITS: tl.constexpr,
    EVEN: tl.constexpr,
    DTYPE: tl.constexpr,
    USE_EXP2: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """Wait for the row's ``words``, then store exp(x - m) / l of the ``held`` x at ``out`` where ``inside``."""
    LOG2E: tl.constexpr = 1.4426950408889634
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    SHORT: tl.constexpr = DTYPE.primitive_bitwidth == 16
    m, log_l = _collect(words, SPLITS=SPLITS, USE_EXP2=USE_EXP2)
    if SHORT:
        x = _unpack(_hold(held, log_l, zero), DTYPE)
    else:
        x = held
    if USE_EXP2:
        y = tl.exp2((x - m) * LOG2E - log_l)
    else:
        y = tl.exp((x - m) - log_l)
    if EVEN:
        tl.store(out, y.to(out.dtype.element_ty), cache_modifier=STORE_HINT)
    else:
        tl.store(out, y.to(out.dtype.element_ty), mask=inside, cache_modifier=STORE_HINT)


@triton.jit
def _load(x, inside, EVEN: tl.constexpr, STREAM_HINTS: tl.constexpr):
    """The elements at ``x``, -inf where not ``inside``."""
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    if EVEN:
        loaded = tl.load(x, eviction_policy=LOAD_HINT)
    else:
        loaded = tl.load(x, mask=inside, other=float("-inf"), eviction_policy=LOAD_HINT)
    return loaded


@triton.jit(do_not_specialize=["rows"])
def softmax_cooperative_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    out_ptr,  # [rows, cols]; rows are out_row_stride elements apart
    words_ptr,  # [rows, SPLITS] int64, zeros; (m, l) of each part of each row
    x_row_stride,
    out_row_stride,
    rows,
    cols,  # at most SPLITS * BLOCK_COLS
    SPLITS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    EVEN: tl.constexpr,  # cols == SPLITS * BLOCK_COLS
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
    PREFETCH: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program computes part program_id % SPLITS of every row of its group of SPLITS programs."""
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    split = tl.program_id(0) % SPLITS
    first = tl.program_id(0) // SPLITS
    step = tl.num_programs(0) // SPLITS
    col = split * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    inside = col < cols
    zero = tl.minimum(cols, 0)
    row = first.to(tl.int64)
    x = _load(x_ptr + row * x_row_stride + col, inside, EVEN=EVEN, STREAM_HINTS=STREAM_HINTS)
    held = _publish(x, words_ptr + row * SPLITS + split, zero, DTYPE=DTYPE, USE_EXP2=USE_EXP2)
    # A row is finished after the next one has been published, so that the others' words have had time to arrive.
    for next_row in tl.range(first + step, rows, step, num_stages=LOAD_STAGES):
        row = tl.cast(next_row, tl.int64)
        x = _load(x_ptr + row * x_row_stride + col, inside, EVEN=EVEN, STREAM_HINTS=STREAM_HINTS)
        if PREFETCH:
            if next_row + step < rows:
                ahead = x_ptr + (row + step) * x_row_stride + split * BLOCK_COLS
                _prefetch(ahead, tl.minimum(cols - split * BLOCK_COLS, BLOCK_COLS))
        published = _publish(x, words_ptr + row * SPLITS + split, zero, DTYPE=DTYPE, USE_EXP2=USE_EXP2)
        row = row - step
        _finish(
            held,
            words_ptr + row * SPLITS,
            out_ptr + row * out_row_stride + col,
            inside,
            zero,
            SPLITS=SPLITS,
            EVEN=EVEN,
            DTYPE=DTYPE,
            USE_EXP2=USE_EXP2,
            STREAM_HINTS=STREAM_HINTS,
        )
        held = published
    row = first.to(tl.int64) + (rows - 1 - first) // step * step
    _finish(
        held,
        words_ptr + row * SPLITS,
        out_ptr + row * out_row_stride + col,
        inside,
        zero,
        SPLITS=SPLITS,
        EVEN=EVEN,
        DTYPE=DTYPE,
        USE_EXP2=USE_EXP2,
        STREAM_HINTS=STREAM_HINTS,
    )


def launch(
    x,
    out,
    *,
    BLOCK_COLS,
    SPLITS,
    LOAD_STAGES,
    NUM_PROGRAMS,
    USE_EXP2,
    PREFETCH,
    STREAM_HINTS,
    MAX_REGISTERS,
    num_warps,
):
    """Write the softmax of ``x`` over its last axis into ``out``; both [rows, cols] with unit stride along cols.

    ``BLOCK_COLS * SPLITS`` is at least cols, both powers of two; ``NUM_PROGRAMS`` is a multiple of ``SPLITS`` and no
    more than the device can hold at once. ``MAX_REGISTERS`` a thread (0: as many as the compiler likes) lets more
    programs share a multiprocessor, at the price of spills. ``ValueError`` where a row is longer.
    """
    rows, cols = x.shape
    if cols > SPLITS * BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {SPLITS * BLOCK_COLS}; render one for it")
    words = torch.zeros((rows, SPLITS), dtype=torch.int64, device=x.device)
    softmax_cooperative_kernel[(min(rows * SPLITS, NUM_PROGRAMS),)](
        x,
        out,
        words,
        x.stride(0),
        out.stride(0),
        rows,
        cols,
        SPLITS=SPLITS,
        BLOCK_COLS=BLOCK_COLS,
        EVEN=cols == SPLITS * BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        PREFETCH=PREFETCH,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
        launch_cooperative_grid=True,
        **({"maxnreg": MAX_REGISTERS} if MAX_REGISTERS else {}),
    )
