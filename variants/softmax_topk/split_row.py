"""The k largest softmax probabilities of each row, several programs a row, for few and long rows: two kernels.

The first gives the maximum m and the sum l of every split of a row, and its k largest elements; the second combines the
sums (M = max m, L = sum l exp(m - M)) and takes the k largest of all splits' elements. A split is a run of whole tiles;
trailing splits may be empty. Inside a split a lane is 16 bytes of every tile, with a running maximum and sum of its
own, and the tile in which its maximum came first. The k largest lie in the k lanes whose maxima are the largest (of
equal maxima the one that came first), and only those are read again and searched.
"""

import torch
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
def softmax_topk_split_partial_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    part_ptr,  # [rows, SPLITS, 2] fp32: m and l of each split (m = -inf and l = 0 where it is empty)
    keys_ptr,  # [rows, SPLITS, SLOTS] int64 (int32 where not WIDE): its largest elements
    x_row_stride,
    cols,
    split_cols,  # a multiple of BLOCK_COLS
    SLOTS: tl.constexpr,  # the power of two of at least k; at most BLOCK_COLS // GROUP
    GROUP: tl.constexpr,  # elements of 16 bytes
    STEP: tl.constexpr,  # tiles that are searched at once
    WIDE: tl.constexpr,  # keys of 64 bits
    SPLITS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program takes one split of one row to its m, l and largest elements, in tiles of BLOCK_COLS columns."""
    LOG2E: tl.constexpr = 1.4426950408889634
    LANES: tl.constexpr = BLOCK_COLS // GROUP
    NONE: tl.constexpr = -9223372036854775808 if WIDE else -2147483648
    SHIFT: tl.constexpr = 32 if WIDE else 16
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    # The row is not read again, but for a few lanes.
    LOAD_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    row = tl.program_id(0) // SPLITS
    split = tl.program_id(0) % SPLITS
    x_row = x_ptr + row.to(tl.int64) * x_row_stride
    lane = tl.arange(0, LANES)
    inner = tl.arange(0, GROUP)
    begin = split * split_cols // BLOCK_COLS
    end = tl.cdiv(tl.minimum((split + 1) * split_cols, cols), BLOCK_COLS)
    m = tl.full([LANES], float("-inf"), tl.float32)
    l = tl.zeros([LANES], tl.float32)
    first = tl.full([LANES], 0, tl.int32) + begin
    for tile in tl.range(begin, end, num_stages=LOAD_STAGES):
        col = tile * BLOCK_COLS + lane[:, None] * GROUP + inner[None, :]
        x = tl.load(x_row + col, mask=col < cols, other=float("-inf"), eviction_policy=LOAD_HINT)
        logits = x.to(tl.float32)
        tops = tl.max(logits, axis=1)
        m_new = tl.maximum(m, tops)
        # A lane that has seen only -inf keeps l = 0: -inf - -inf would be NaN.
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2((logits - m_safe[:, None]) * LOG2E)
        l = l * tl.exp2((m - m_safe) * LOG2E) + tl.sum(p, axis=1)
        first = tl.where(tops > m, tile, first)
        m = m_new
    m_split = tl.max(m, axis=0)
    m_safe = tl.where(m_split == float("-inf"), 0.0, m_split)
    l_split = tl.sum(l * tl.exp2((m - m_safe) * LOG2E), axis=0)
    best = _largest(_keys(m.to(DTYPE), first * LANES + lane, WIDE), SLOTS, WIDE)
    chosen = _place(best, WIDE) % LANES
    # At least SLOTS elements are as large as the least of these maxima, so that nothing below it counts.
    floor = ((tl.min(best, axis=0) >> SHIFT) << SHIFT) - 1
    slot = tl.arange(0, SLOTS)
    kept = slot.to(best.dtype) + NONE
    for start in tl.range(begin, end, STEP):
        searched = start + tl.arange(0, STEP)
        col = searched[:, None, None] * BLOCK_COLS + chosen[None, :, None] * GROUP + inner[None, None, :]
        x = tl.load(x_row + col, mask=col < cols, other=float("-inf"))
        # Tiles past the end are the next split's; what is found twice has one key, and is merged into one.
        keys = tl.reshape(_keys(x, col, WIDE), [STEP * SLOTS * GROUP])
        top = tl.max(keys, axis=0)
        least = tl.min(kept, axis=0)
        while top > tl.maximum(least, floor):
            kept = tl.where(kept == least, top, kept)
            keys = tl.where(keys == top, NONE, keys)
            top = tl.max(keys, axis=0)
            least = tl.min(kept, axis=0)
    part = row.to(tl.int64) * SPLITS + split
    tl.store(part_ptr + part * 2, m_split)
    tl.store(part_ptr + part * 2 + 1, l_split)
    tl.store(keys_ptr + part * SLOTS + slot, kept)


@triton.jit
def softmax_topk_split_merge_kernel(
    part_ptr,  # [rows, SPLITS, 2] fp32: m and l of each split
    keys_ptr,  # [rows, SPLITS, SLOTS] int64 (int32 where not WIDE): its largest elements
    values_ptr,  # [rows, K], of the dtype of x
    indices_ptr,  # [rows, K] int64
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    WIDE: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """One program combines the splits of row program_id."""
    LOG2E: tl.constexpr = 1.4426950408889634
    DTYPE: tl.constexpr = values_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    part = part_ptr + (row * SPLITS + tl.arange(0, SPLITS)) * 2
    m = tl.load(part)
    l = tl.load(part + 1)
    # A row of nothing but -inf has -inf - -inf here: NaN, as it should.
    m_row = tl.max(m, axis=0)
    l_row = tl.sum(l * tl.exp2((m - m_row) * LOG2E), axis=0)
    keys = tl.load(keys_ptr + row * (SPLITS * SLOTS) + tl.arange(0, SPLITS * SLOTS))
    kept = _largest(keys, SLOTS, WIDE)
    slot = tl.arange(0, SLOTS)
    y = tl.exp2((_value(kept, DTYPE, WIDE) - m_row) * LOG2E) / l_row
    # A row without probabilities: every one of them is NaN, and the first are taken.
    index = tl.where(l_row == l_row, _place(kept, WIDE), slot)
    at = row * K + slot
    tl.store(values_ptr + at, y.to(values_ptr.dtype.element_ty), mask=slot < K)
    tl.store(indices_ptr + at, index.to(tl.int64), mask=slot < K)


def launch(x, values, indices, *, BLOCK_COLS, SPLITS, STEP, WIDE, LOAD_STAGES, STREAM_HINTS, num_warps):
    """Write the k largest softmax probabilities of each row of ``x`` [rows, cols] into ``values``, and where they are
    into ``indices``; both [rows, k] and contiguous, ``x`` with unit stride along cols.

    ``SPLITS`` is a power of two, and so are ``STEP`` and ``BLOCK_COLS``, of at least k times the elements of 16 bytes.
    fp32, and more than 65536 columns, need ``WIDE``. ``ValueError`` where they do not have it.
    """
    rows, cols = x.shape
    k = values.shape[1]
    if not WIDE and (x.element_size() > 2 or cols > 65536):
        raise ValueError(f"{cols} columns of {x.dtype} need WIDE keys, which this kernel lacks; render one for it")
    slots, group = triton.next_power_of_2(k), 16 // x.element_size()
    tiles = triton.cdiv(triton.cdiv(cols, SPLITS), BLOCK_COLS)
    part = torch.empty((rows, SPLITS, 2), dtype=torch.float32, device=x.device)
    keys = torch.empty((rows, SPLITS, slots), dtype=torch.int64 if WIDE else torch.int32, device=x.device)
    softmax_topk_split_partial_kernel[(rows * SPLITS,)](
        x,
        part,
        keys,
        x.stride(0),
        cols,
        tiles * BLOCK_COLS,
        SLOTS=slots,
        GROUP=group,
        STEP=STEP,
        WIDE=WIDE,
        SPLITS=SPLITS,
        BLOCK_COLS=BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
    )
    softmax_topk_split_merge_kernel[(rows,)](
        part,
        keys,
        values,
        indices,
        K=k,
        SLOTS=slots,
        WIDE=WIDE,
        SPLITS=SPLITS,
        num_warps=4,
    )
