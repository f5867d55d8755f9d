"""Row softmax with several programs a row in one kernel: each holds its part of the row, and they exchange (m, l).

SPLITS programs own a row at a time; each reads its BLOCK_COLS columns once, publishes the maximum m and the sum l of
them, waits for the others' pairs, and writes exp(x - M) / L. A row is read once, however long it is. m and l travel as
one 64-bit word, which is never 0 (m = 0 has l >= 1, m = -inf has its sign bit set), so a word is its own flag; the
scratch starts as zeros.

Needs a real GPU and all programs resident at once (a cooperative launch refuses a grid that is not): programs wait for
one another, so it cannot run in the interpreter, where they run one after the other. DEFERRED is written in PTX.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _again(x, zero, SHORT: tl.constexpr):
    """``x``, but the compiler does not know: it must not keep the fp32 form of a 16-bit x, twice as large, for later.

    ``zero`` is 0, which the compiler cannot know either. Two 16-bit elements stay packed in one register.
    """
    if SHORT:
        bits = tl.inline_asm_elementwise(
            "xor.b32 $0, $1, $2;",
            constraints="=r,r,r",
            args=[x.to(tl.int16, bitcast=True), zero.to(tl.int16)],
            dtype=tl.int16,
            is_pure=True,
            pack=2,
        )
        x = bits.to(x.dtype, bitcast=True)
    return x


@triton.jit
def _publish(x, words, split, zero, SHORT: tl.constexpr, USE_EXP2: tl.constexpr):
    """Store (m, l) of this program's part ``x`` of a row as word ``split`` of the row's ``words``."""
    LOG2E: tl.constexpr = 1.4426950408889634
    m = tl.max(x.to(tl.float32), axis=0)
    # A part of nothing but -inf has l = 0: -inf - -inf would be NaN.
    m_safe = tl.where(m == float("-inf"), 0.0, m)
    logits = _again(x, zero, SHORT=SHORT).to(tl.float32)
    if USE_EXP2:
        l = tl.sum(tl.exp2((logits - m_safe) * LOG2E), axis=0)
    else:
        l = tl.sum(tl.exp(logits - m_safe), axis=0)
    high = m.to(tl.uint32, bitcast=True).to(tl.uint64) << 32
    word = high | l.to(tl.uint32, bitcast=True).to(tl.uint64)
    tl.store(words + split, word.to(tl.int64, bitcast=True))


@triton.jit
def _collect(words, SPLITS: tl.constexpr, USE_EXP2: tl.constexpr, DEFERRED: tl.constexpr):
    """The row's m and log(l) (in base 2 where USE_EXP2), once all its ``words`` are there.

    Apart, because the sum of both is m where m is huge.
    """
    LOG2E: tl.constexpr = 1.4426950408889634
    places = words + tl.arange(0, SPLITS)
    if DEFERRED:
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
            args=[places.to(tl.int64)],
            dtype=tl.int64,
            is_pure=False,
            pack=1,
        )
    else:
        word = tl.load(places, volatile=True)
        while tl.min((word != 0).to(tl.int32), axis=0) == 0:
            word = tl.load(places, volatile=True)
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
def _write(x, m, log_l, out, inside, USE_EXP2: tl.constexpr, STREAM_HINTS: tl.constexpr):
    """Store exp(x - m) / l to the pointers ``out`` where ``inside``."""
    LOG2E: tl.constexpr = 1.4426950408889634
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    if USE_EXP2:
        y = tl.exp2((x.to(tl.float32) - m) * LOG2E - log_l)
    else:
        y = tl.exp((x.to(tl.float32) - m) - log_l)
    tl.store(out, y.to(out.dtype.element_ty), mask=inside, cache_modifier=STORE_HINT)


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
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
    DEFERRED: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program computes part program_id % SPLITS of every row of its group of SPLITS programs."""
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    split = tl.program_id(0) % SPLITS
    first = tl.program_id(0) // SPLITS
    step = tl.num_programs(0) // SPLITS
    col = split * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    inside = col < cols
    zero = tl.minimum(cols, 0)
    SHORT: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16
    if DEFERRED:
        # A row is finished after the next one has been published, so that the others' words have had time to arrive.
        row = first.to(tl.int64)
        previous = tl.load(x_ptr + row * x_row_stride + col, mask=inside, other=float("-inf"))
        _publish(previous, words_ptr + row * SPLITS, split, zero, SHORT=SHORT, USE_EXP2=USE_EXP2)
        for next_row in tl.range(first + step, rows, step, num_stages=LOAD_STAGES):
            row = tl.cast(next_row, tl.int64)
            x = tl.load(x_ptr + row * x_row_stride + col, mask=inside, other=float("-inf"), eviction_policy=LOAD_HINT)
            _publish(x, words_ptr + row * SPLITS, split, zero, SHORT=SHORT, USE_EXP2=USE_EXP2)
            row = row - step
            m, log_l = _collect(words_ptr + row * SPLITS, SPLITS=SPLITS, USE_EXP2=USE_EXP2, DEFERRED=DEFERRED)
            out = out_ptr + row * out_row_stride + col
            _write(
                _again(previous, zero, SHORT=SHORT), m, log_l, out, inside, USE_EXP2=USE_EXP2, STREAM_HINTS=STREAM_HINTS
            )
            previous = _again(x, zero, SHORT=SHORT)
        row = first.to(tl.int64) + (rows - 1 - first) // step * step
        m, log_l = _collect(words_ptr + row * SPLITS, SPLITS=SPLITS, USE_EXP2=USE_EXP2, DEFERRED=DEFERRED)
        out = out_ptr + row * out_row_stride + col
        _write(previous, m, log_l, out, inside, USE_EXP2=USE_EXP2, STREAM_HINTS=STREAM_HINTS)
    else:
        for this_row in tl.range(first, rows, step):
            row = tl.cast(this_row, tl.int64)
            x = tl.load(x_ptr + row * x_row_stride + col, mask=inside, other=float("-inf"), eviction_policy=LOAD_HINT)
            _publish(x, words_ptr + row * SPLITS, split, zero, SHORT=SHORT, USE_EXP2=USE_EXP2)
            m, log_l = _collect(words_ptr + row * SPLITS, SPLITS=SPLITS, USE_EXP2=USE_EXP2, DEFERRED=DEFERRED)
            out = out_ptr + row * out_row_stride + col
            _write(_again(x, zero, SHORT=SHORT), m, log_l, out, inside, USE_EXP2=USE_EXP2, STREAM_HINTS=STREAM_HINTS)


def launch(
    x,
    out,
    *,
    BLOCK_COLS,
    SPLITS,
    LOAD_STAGES,
    NUM_PROGRAMS,
    USE_EXP2,
    DEFERRED,
    STREAM_HINTS,
    MAX_REGISTERS,
    num_warps,
):
    """Write the softmax of ``x`` over its last axis into ``out``; both [rows, cols] with unit stride along cols.

    ``BLOCK_COLS * SPLITS`` is at least cols, both powers of two; ``NUM_PROGRAMS`` is a multiple of ``SPLITS`` and no
    more than the device can hold at once. ``MAX_REGISTERS`` a thread (0: as many as the compiler likes) lets more
    programs share a multiprocessor, at the price of spills.
    """
    rows, cols = x.shape
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
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        DEFERRED=DEFERRED,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
        launch_cooperative_grid=True,
        **({"maxnreg": MAX_REGISTERS} if MAX_REGISTERS else {}),
    )
