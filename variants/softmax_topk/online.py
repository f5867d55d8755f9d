"""The k largest softmax probabilities of each row, online over tiles: one program a row, which is read once.

A lane is 16 bytes of every tile. It keeps the running maximum m and sum l of what it has seen (m_new = max(m, x); l =
l*alpha + p), and the tile in which m came first; nothing crosses lanes until the row's end. The k largest of a row lie
in the k lanes whose maxima are the largest (of equal maxima the one that came first), for any other lane has k elements
before each of its own. Only those lanes are read again and searched: k elements are kept, and what is larger takes the
place of the least of them.
"""

import triton
import triton.language as tl


@triton.jit
def _order(x):
    """Integers that are in the order of ``x``, and equal where ``x`` is, -0.0 and 0.0 included: int32."""
    if x.dtype.primitive_bitwidth == 16:
        bits = x.to(tl.int16, bitcast=True).to(tl.int32)
        order = tl.where(bits < 0, -32768 - bits, bits)
    else:
        bits = x.to(tl.int32, bitcast=True)
        order = tl.where(bits < 0, -2147483648 - bits, bits)
    return order


@triton.jit
def _keys(x, place, WIDE: tl.constexpr):
    """One integer for each ``x`` at its ``place`` in the row: the larger the larger, of equal ones the earlier.

    int64 where WIDE; else int32, for ``x`` of 16 bits and places below 65536.
    """
    if WIDE:
        keys = _order(x).to(tl.int64) * 4294967296 + (2147483647 - place).to(tl.int64)
    else:
        keys = _order(x) * 65536 + (65535 - place)
    return keys


@triton.jit
def _place(keys, WIDE: tl.constexpr):
    """The places that ``keys`` were made of: int32."""
    if WIDE:
        place = 2147483647 - (keys & 4294967295).to(tl.int32)
    else:
        place = 65535 - (keys & 65535)
    return place


@triton.jit
def _value(keys, DTYPE: tl.constexpr, WIDE: tl.constexpr):
    """The ``x`` that ``keys`` were made of, as fp32; 0.0 for -0.0."""
    if WIDE:
        order = (keys >> 32).to(tl.int32)
    else:
        order = keys >> 16
    if DTYPE.primitive_bitwidth == 16:
        bits = tl.where(order < 0, -32768 - order, order)
        value = bits.to(tl.int16).to(DTYPE, bitcast=True)
    else:
        bits = tl.where(order < 0, -2147483648 - order, order)
        value = bits.to(DTYPE, bitcast=True)
    return value.to(tl.float32)


@triton.jit
def _largest(keys, COUNT: tl.constexpr, WIDE: tl.constexpr):
    """The COUNT largest of ``keys`` [N], in descending order; equal ones count as one."""
    NONE: tl.constexpr = -9223372036854775808 if WIDE else -2147483648
    slot = tl.arange(0, COUNT)
    found = tl.zeros([COUNT], keys.dtype)
    for number in tl.range(0, COUNT):
        top = tl.max(keys, axis=0)
        found = tl.where(slot == number, top, found)
        keys = tl.where(keys == top, NONE, keys)
    return found


@triton.jit
def _seen(x, tile, m, l, first):
    """What the lanes have seen once ``x`` [LANES, GROUP], which is tile number ``tile``, is added to it."""
    LOG2E: tl.constexpr = 1.4426950408889634
    logits = x.to(tl.float32)
    tops = tl.max(logits, axis=1)
    m_new = tl.maximum(m, tops)
    # A lane that has seen only -inf keeps l = 0: -inf - -inf would be NaN.
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2((logits - m_safe[:, None]) * LOG2E)
    l = l * tl.exp2((m - m_safe) * LOG2E) + tl.sum(p, axis=1)
    first = tl.where(tops > m, tile, first)
    return m_new, l, first


@triton.jit
def softmax_topk_online_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    values_ptr,  # [rows, K]
    indices_ptr,  # [rows, K] int64
    x_row_stride,
    cols,
    K: tl.constexpr,
    SLOTS: tl.constexpr,  # the power of two of at least K; at most BLOCK_COLS // GROUP
    GROUP: tl.constexpr,  # elements of 16 bytes
    STEP: tl.constexpr,  # tiles that are searched at once
    WIDE: tl.constexpr,  # keys of 64 bits
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program computes row program_id, in tiles of BLOCK_COLS columns."""
    LOG2E: tl.constexpr = 1.4426950408889634
    LANES: tl.constexpr = BLOCK_COLS // GROUP
    NONE: tl.constexpr = -9223372036854775808 if WIDE else -2147483648
    SHIFT: tl.constexpr = 32 if WIDE else 16
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    # The row is not read again, but for a few lanes.
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * x_row_stride
    lane = tl.arange(0, LANES)
    inner = tl.arange(0, GROUP)
    m = tl.full([LANES], float("-inf"), tl.float32)
    l = tl.zeros([LANES], tl.float32)
    first = tl.zeros([LANES], tl.int32)
    # Whole tiles are loaded without a mask.
    whole = cols // BLOCK_COLS
    in_tile = lane[:, None] * GROUP + inner[None, :]
    for tile in tl.range(0, whole, num_stages=LOAD_STAGES):
        x = tl.load(x_row + tile * BLOCK_COLS + in_tile, eviction_policy=LOAD_HINT)
        m, l, first = _seen(x, tile, m, l, first)
    if whole * BLOCK_COLS < cols:
        tail = whole * BLOCK_COLS + in_tile
        x = tl.load(x_row + tail, mask=tail < cols, other=float("-inf"), eviction_policy=LOAD_HINT)
        m, l, first = _seen(x, whole, m, l, first)
    # A row of nothing but -inf has -inf - -inf here: NaN, as it should.
    m_row = tl.max(m, axis=0)
    l_row = tl.sum(l * tl.exp2((m - m_row) * LOG2E), axis=0)
    best = _largest(_keys(m.to(DTYPE), first * LANES + lane, WIDE), SLOTS, WIDE)
    chosen = _place(best, WIDE) % LANES
    # At least SLOTS elements are as large as the least of these maxima, so that nothing below it counts.
    floor = ((tl.min(best, axis=0) >> SHIFT) << SHIFT) - 1
    slot = tl.arange(0, SLOTS)
    kept = slot.to(best.dtype) + NONE
    for start in tl.range(0, tl.cdiv(cols, BLOCK_COLS), STEP):
        searched = start + tl.arange(0, STEP)
        col = searched[:, None, None] * BLOCK_COLS + chosen[None, :, None] * GROUP + inner[None, None, :]
        x = tl.load(x_row + col, mask=col < cols, other=float("-inf"))
        keys = tl.reshape(_keys(x, col, WIDE), [STEP * SLOTS * GROUP])
        top = tl.max(keys, axis=0)
        least = tl.min(kept, axis=0)
        while top > tl.maximum(least, floor):
            kept = tl.where(kept == least, top, kept)
            keys = tl.where(keys == top, NONE, keys)
            top = tl.max(keys, axis=0)
            least = tl.min(kept, axis=0)
    rank = tl.sum((kept[None, :] > kept[:, None]).to(tl.int32), axis=1)
    y = tl.exp2((_value(kept, DTYPE, WIDE) - m_row) * LOG2E) / l_row
    # A row without probabilities: every one of them is NaN, and the first are taken.
    index = tl.where(l_row == l_row, _place(kept, WIDE), rank)
    at = row * K + rank
    tl.store(values_ptr + at, y.to(values_ptr.dtype.element_ty), mask=rank < K)
    tl.store(indices_ptr + at, index.to(tl.int64), mask=rank < K)


def launch(x, values, indices, *, BLOCK_COLS, STEP, WIDE, LOAD_STAGES, STREAM_HINTS, num_warps):
    """Write the k largest softmax probabilities of each row of ``x`` [rows, cols] into ``values``, and where they are
    into ``indices``; both [rows, k] and contiguous, ``x`` with unit stride along cols.

    ``BLOCK_COLS`` is a power of two of at least k times the elements of 16 bytes, ``STEP`` a power of two. fp32, and
    more than 65536 columns, need ``WIDE``. ``ValueError`` where they do not have it.
    """
    rows, cols = x.shape
    k = values.shape[1]
    if not WIDE and (x.element_size() > 2 or cols > 65536):
        raise ValueError(f"{cols} columns of {x.dtype} need WIDE keys, which this kernel lacks; render one for it")
    slots, group = triton.next_power_of_2(k), 16 // x.element_size()
    softmax_topk_online_kernel[(rows,)](
        x,
        values,
        indices,
        x.stride(0),
        cols,
        K=k,
        SLOTS=slots,
        GROUP=group,
        STEP=STEP,
        WIDE=WIDE,
        BLOCK_COLS=BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
    )
