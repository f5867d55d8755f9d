"""Gradient of the row softmax by tiles: one program a row at a time, two passes over the row's tiles.

Of the saved output y and the output's gradient dy, dx = y * (dy - sum(y * dy)). The first pass adds y * dy up in every
lane; the second one writes and, where REVERSE_SECOND_PASS, reads the tiles backwards, because the last ones read are
those still in the cache.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def softmax_bwd_two_pass_kernel(
    y_ptr,  # [rows, cols], any float dtype; rows are y_row_stride elements apart
    dy_ptr,  # [rows, cols]; rows are dy_row_stride elements apart
    dx_ptr,  # [rows, cols]; rows are dx_row_stride elements apart
    y_row_stride,
    dy_row_stride,
    dx_row_stride,
    rows,
    cols,
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    REVERSE_SECOND_PASS: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program computes the rows program_id, program_id + num_programs, ..., in tiles of BLOCK_COLS columns."""
    # The first pass leaves the row in the cache for the second, which uses it up and writes past it.
    FIRST_HINT: tl.constexpr = "evict_last" if STREAM_HINTS else ""
    SECOND_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    lanes = tl.arange(0, BLOCK_COLS)
    tiles = tl.cdiv(cols, BLOCK_COLS)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        y_row = y_ptr + tl.cast(row, tl.int64) * y_row_stride
        dy_row = dy_ptr + tl.cast(row, tl.int64) * dy_row_stride
        dx_row = dx_ptr + tl.cast(row, tl.int64) * dx_row_stride
        sums = tl.zeros([BLOCK_COLS], tl.float32)
        for tile in tl.range(0, tiles, num_stages=LOAD_STAGES):
            col = tile * BLOCK_COLS + lanes
            y = tl.load(y_row + col, mask=col < cols, other=0.0, eviction_policy=FIRST_HINT)
            dy = tl.load(dy_row + col, mask=col < cols, other=0.0, eviction_policy=FIRST_HINT)
            sums += y.to(tl.float32) * dy.to(tl.float32)
        total = tl.sum(sums, axis=0)
        for tile in tl.range(0, tiles, num_stages=LOAD_STAGES):
            if REVERSE_SECOND_PASS:
                col = (tiles - 1 - tile) * BLOCK_COLS + lanes
            else:
                col = tile * BLOCK_COLS + lanes
            y = tl.load(y_row + col, mask=col < cols, other=0.0, eviction_policy=SECOND_HINT)
            dy = tl.load(dy_row + col, mask=col < cols, other=0.0, eviction_policy=SECOND_HINT)
            dx = y.to(tl.float32) * (dy.to(tl.float32) - total)
            tl.store(dx_row + col, dx.to(dx_ptr.dtype.element_ty), mask=col < cols, cache_modifier=STORE_HINT)


def launch(y, dy, dx, *, BLOCK_COLS, LOAD_STAGES, NUM_PROGRAMS, REVERSE_SECOND_PASS, STREAM_HINTS, num_warps):
    """Write the gradient of the softmax's input into ``dx``, of its output ``y`` and that one's gradient ``dy``.

    All [rows, cols] with unit stride along cols. ``BLOCK_COLS`` is a power of two; ``NUM_PROGRAMS`` programs share the
    rows.
    """
    rows, cols = y.shape
    softmax_bwd_two_pass_kernel[(min(rows, NUM_PROGRAMS),)](
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
        REVERSE_SECOND_PASS=REVERSE_SECOND_PASS,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
    )
