"""Gradient of the row softmax with several programs a row in one kernel: each holds its part, and they exchange sums.

SPLITS programs own a row at a time; each reads its BLOCK_COLS columns of y and dy once, publishes the sum of y * dy
over them, waits for the others' sums, and writes y * (dy - D), D being the sum of all. A row is read once, however long
it is. A sum travels in one 64-bit word with a 1 above it, so a word is its own flag; the scratch starts as zeros.

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
def _publish(y, dy, word, zero, DTYPE: tl.constexpr):
    """Store the sum of ``y * dy`` of this program's part of a row at ``word``; give both as ``_finish`` wants them."""
    total = tl.sum(y.to(tl.float32) * dy.to(tl.float32), axis=0)
    SHORT: tl.constexpr = DTYPE.primitive_bitwidth == 16
    if SHORT:
        held_y = _hold(_pack(y), total, zero)
        held_dy = _hold(_pack(dy), total, zero)
    else:
        held_y = y
        held_dy = dy
    flagged = total.to(tl.uint32, bitcast=True).to(tl.uint64) | (tl.full([], 1, tl.uint64) << 32)
    tl.store(word, flagged.to(tl.int64, bitcast=True))
    return held_y, held_dy


@triton.jit
def _collect(words, SPLITS: tl.constexpr):
    """The row's sum, once all its ``words`` are there."""
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
    totals = (word.to(tl.uint64, bitcast=True) & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True)
    return tl.sum(totals, axis=0)


@triton.jit
def _finish(
    held_y,
    held_dy,
    words,
    dx_part,
    inside,
    zero,
    SPLITS: tl.constexpr,
    EVEN: tl.constexpr,
    DTYPE: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """Wait for the row's ``words``, then store y * (dy - D) of what is held at ``dx_part`` where ``inside``."""
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    SHORT: tl.constexpr = DTYPE.primitive_bitwidth == 16
    total = _collect(words, SPLITS=SPLITS)
    if SHORT:
        y = _unpack(_hold(held_y, total, zero), DTYPE)
        dy = _unpack(_hold(held_dy, total, zero), DTYPE)
    else:
        y = held_y
        dy = held_dy
    dx = y * (dy - total)
    if EVEN:
        tl.store(dx_part, dx.to(dx_part.dtype.element_ty), cache_modifier=STORE_HINT)
    else:
        tl.store(dx_part, dx.to(dx_part.dtype.element_ty), mask=inside, cache_modifier=STORE_HINT)


@triton.jit
def _load(part, inside, EVEN: tl.constexpr, STREAM_HINTS: tl.constexpr):
    """The elements at ``part``, 0 where not ``inside``."""
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    if EVEN:
        loaded = tl.load(part, eviction_policy=LOAD_HINT)
    else:
        loaded = tl.load(part, mask=inside, other=0.0, eviction_policy=LOAD_HINT)
    return loaded


@triton.jit(do_not_specialize=["rows"])
def softmax_bwd_cooperative_kernel(
    y_ptr,  # [rows, cols], any float dtype; rows are y_row_stride elements apart
    dy_ptr,  # [rows, cols]; rows are dy_row_stride elements apart
    dx_ptr,  # [rows, cols]; rows are dx_row_stride elements apart
    words_ptr,  # [rows, SPLITS] int64, zeros; the sum of each part of each row
    y_row_stride,
    dy_row_stride,
    dx_row_stride,
    rows,
    cols,  # at most SPLITS * BLOCK_COLS
    SPLITS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    EVEN: tl.constexpr,  # cols == SPLITS * BLOCK_COLS
    PREFETCH: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program computes part program_id % SPLITS of every row of its group of SPLITS programs."""
    DTYPE: tl.constexpr = y_ptr.dtype.element_ty
    split = tl.program_id(0) % SPLITS
    first = tl.program_id(0) // SPLITS
    step = tl.num_programs(0) // SPLITS
    col = split * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    inside = col < cols
    zero = tl.minimum(cols, 0)
    row = first.to(tl.int64)
    y = _load(y_ptr + row * y_row_stride + col, inside, EVEN=EVEN, STREAM_HINTS=STREAM_HINTS)
    dy = _load(dy_ptr + row * dy_row_stride + col, inside, EVEN=EVEN, STREAM_HINTS=STREAM_HINTS)
    held_y, held_dy = _publish(y, dy, words_ptr + row * SPLITS + split, zero, DTYPE=DTYPE)
    # A row is finished after the next one has been published, so that the others' words have had time to arrive.
    for next_row in tl.range(first + step, rows, step):
        row = tl.cast(next_row, tl.int64)
        y = _load(y_ptr + row * y_row_stride + col, inside, EVEN=EVEN, STREAM_HINTS=STREAM_HINTS)
        dy = _load(dy_ptr + row * dy_row_stride + col, inside, EVEN=EVEN, STREAM_HINTS=STREAM_HINTS)
        if PREFETCH:
            if next_row + step < rows:
                start = split * BLOCK_COLS
                _prefetch(y_ptr + (row + step) * y_row_stride + start, tl.minimum(cols - start, BLOCK_COLS))
                _prefetch(dy_ptr + (row + step) * dy_row_stride + start, tl.minimum(cols - start, BLOCK_COLS))
        next_y, next_dy = _publish(y, dy, words_ptr + row * SPLITS + split, zero, DTYPE=DTYPE)
        row = row - step
        _finish(
            held_y,
            held_dy,
            words_ptr + row * SPLITS,
            dx_ptr + row * dx_row_stride + col,
            inside,
            zero,
            SPLITS=SPLITS,
            EVEN=EVEN,
            DTYPE=DTYPE,
            STREAM_HINTS=STREAM_HINTS,
        )
        held_y = next_y
        held_dy = next_dy
    row = first.to(tl.int64) + (rows - 1 - first) // step * step
    _finish(
        held_y,
        held_dy,
        words_ptr + row * SPLITS,
        dx_ptr + row * dx_row_stride + col,
        inside,
        zero,
        SPLITS=SPLITS,
        EVEN=EVEN,
        DTYPE=DTYPE,
        STREAM_HINTS=STREAM_HINTS,
    )


def launch(y, dy, dx, *, BLOCK_COLS, SPLITS, NUM_PROGRAMS, PREFETCH, STREAM_HINTS, MAX_REGISTERS, num_warps):
    """Write the gradient of the softmax's input into ``dx``, of its output ``y`` and that one's gradient ``dy``.

    All [rows, cols] with unit stride along cols. ``BLOCK_COLS * SPLITS`` is at least cols, both powers of two;
    ``NUM_PROGRAMS`` is a multiple of ``SPLITS`` and no more than the device can hold at once. ``MAX_REGISTERS`` a
    thread (0: as many as the compiler likes) lets more programs share a multiprocessor, at the price of spills.
    ``ValueError`` where a row is longer.
    """
    rows, cols = y.shape
    if cols > SPLITS * BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {SPLITS * BLOCK_COLS}; render one for it")
    words = torch.zeros((rows, SPLITS), dtype=torch.int64, device=y.device)
    softmax_bwd_cooperative_kernel[(min(rows * SPLITS, NUM_PROGRAMS),)](
        y,
        dy,
        dx,
        words,
        y.stride(0),
        dy.stride(0),
        dx.stride(0),
        rows,
        cols,
        SPLITS=SPLITS,
        BLOCK_COLS=BLOCK_COLS,
        EVEN=cols == SPLITS * BLOCK_COLS,
        PREFETCH=PREFETCH,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
        launch_cooperative_grid=True,
        **({"maxnreg": MAX_REGISTERS} if MAX_REGISTERS else {}),
    )
