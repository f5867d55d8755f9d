"""The k largest softmax probabilities of each row, with the whole row in one block: it is read once.

A thread's 16 bytes of the row are a group. The k largest of a row lie in the k groups whose maxima are the largest (of
equal maxima the earlier group), for any other group has k elements before each of its own. So the maxima of all groups
are searched, and then the elements of k groups alone, which are read again.
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
def softmax_topk_whole_row_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    values_ptr,  # [rows, K]
    indices_ptr,  # [rows, K] int64
    x_row_stride,
    cols,  # at most BLOCK_COLS
    K: tl.constexpr,
    SLOTS: tl.constexpr,  # the power of two of at least K; at most BLOCK_COLS // GROUP
    GROUP: tl.constexpr,  # elements of 16 bytes
    WIDE: tl.constexpr,  # keys of 64 bits
    BLOCK_COLS: tl.constexpr,
):
    """One program computes row program_id."""
    LOG2E: tl.constexpr = 1.4426950408889634
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * x_row_stride
    group = tl.arange(0, BLOCK_COLS // GROUP)
    inner = tl.arange(0, GROUP)[None, :]
    col = group[:, None] * GROUP + inner
    x = tl.load(x_row + col, mask=col < cols, other=float("-inf"))
    logits = x.to(tl.float32)
    tops = tl.max(logits, axis=1)
    # A row of nothing but -inf has -inf - -inf here: NaN, as it should.
    m = tl.max(tops, axis=0)
    l = tl.sum(tl.sum(tl.exp2((logits - m) * LOG2E), axis=1), axis=0)
    chosen = _place(_largest(_keys(tops.to(DTYPE), group, WIDE), SLOTS, WIDE), WIDE)
    col = chosen[:, None] * GROUP + inner
    x = tl.load(x_row + col, mask=col < cols, other=float("-inf"))
    kept = _largest(tl.reshape(_keys(x, col, WIDE), [SLOTS * GROUP]), SLOTS, WIDE)
    y = tl.exp2((_value(kept, DTYPE, WIDE) - m) * LOG2E) / l
    slot = tl.arange(0, SLOTS)
    # A row without probabilities: every one of them is NaN, and the first are taken.
    index = tl.where(l == l, _place(kept, WIDE), slot)
    at = row * K + slot
    tl.store(values_ptr + at, y.to(values_ptr.dtype.element_ty), mask=slot < K)
    tl.store(indices_ptr + at, index.to(tl.int64), mask=slot < K)


def launch(x, values, indices, *, BLOCK_COLS, num_warps):
    """Write the k largest softmax probabilities of each row of ``x`` [rows, cols] into ``values``, and where they are
    into ``indices``; both [rows, k] and contiguous, ``x`` with unit stride along cols.

    ``BLOCK_COLS`` is a power of two of at least cols, and of at least k times the elements of 16 bytes.
    ``ValueError`` where a row is longer.
    """
    rows, cols = x.shape
    if cols > BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {BLOCK_COLS}; render one for it")
    k = values.shape[1]
    softmax_topk_whole_row_kernel[(rows,)](
        x,
        values,
        indices,
        x.stride(0),
        cols,
        K=k,
        SLOTS=triton.next_power_of_2(k),
        GROUP=16 // x.element_size(),
        WIDE=x.element_size() > 2 or cols > 65536,
        BLOCK_COLS=BLOCK_COLS,
        num_warps=num_warps,
    )
