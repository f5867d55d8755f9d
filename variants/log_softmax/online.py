"""Row log-softmax, online over tiles: one program a row at a time, two passes over the row's tiles.

A lane of the first pass is the VECTOR columns that a thread loads at once. It keeps a running maximum m and a running
sum l of its own (m_new = max(m, x); l = l*alpha + sum p), so that no reduction across threads is needed until the row's
end, and its columns share one rescaling; the second pass writes (x - m) - log(l) and, where REVERSE_SECOND_PASS, reads
the tiles backwards, because the last ones read are those still in the cache.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def log_softmax_online_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    out_ptr,  # [rows, cols]; rows are out_row_stride elements apart
    x_row_stride,
    out_row_stride,
    rows,
    cols,
    BLOCK_COLS: tl.constexpr,
    VECTOR: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
    REVERSE_SECOND_PASS: tl.constexpr,
    STREAM_HINTS: tl.constexpr,
):
    """One program computes the rows program_id, program_id + num_programs, ..., in tiles of BLOCK_COLS columns."""
    LOG2E: tl.constexpr = 1.4426950408889634
    LANES: tl.constexpr = BLOCK_COLS // VECTOR
    LN2: tl.constexpr = 0.6931471805599453
    # The first pass leaves the row in the cache for the second, which uses it up and writes past it.
    FIRST_HINT: tl.constexpr = "evict_last" if STREAM_HINTS else ""
    SECOND_HINT: tl.constexpr = "evict_first" if STREAM_HINTS else ""
    STORE_HINT: tl.constexpr = ".cs" if STREAM_HINTS else ""
    lanes = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    columns = tl.arange(0, BLOCK_COLS)
    tiles = tl.cdiv(cols, BLOCK_COLS)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        x_row = x_ptr + tl.cast(row, tl.int64) * x_row_stride
        out_row = out_ptr + tl.cast(row, tl.int64) * out_row_stride
        m = tl.full([LANES], float("-inf"), tl.float32)
        l = tl.zeros([LANES], tl.float32)
        for tile in tl.range(0, tiles, num_stages=LOAD_STAGES):
            col = tile * BLOCK_COLS + lanes
            x = tl.load(x_row + col, mask=col < cols, other=float("-inf"), eviction_policy=FIRST_HINT)
            logits = x.to(tl.float32)
            m_new = tl.maximum(m, tl.max(logits, axis=1))
            # A lane that has seen only -inf keeps l = 0: -inf - -inf would be NaN.
            m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
            if USE_EXP2:
                p = tl.exp2((logits - m_safe[:, None]) * LOG2E)
                l = l * tl.exp2((m - m_safe) * LOG2E) + tl.sum(p, axis=1)
            else:
                p = tl.exp(logits - m_safe[:, None])
                l = l * tl.exp(m - m_safe) + tl.sum(p, axis=1)
            m = m_new
        # A row of nothing but -inf has -inf - -inf here: NaN throughout, as it should.
        m_row = tl.max(m, axis=0)
        if USE_EXP2:
            l_row = tl.sum(l * tl.exp2((m - m_row) * LOG2E), axis=0)
            log_l = tl.log2(l_row) * LN2
        else:
            l_row = tl.sum(l * tl.exp(m - m_row), axis=0)
            log_l = tl.log(l_row)
        for tile in tl.range(0, tiles, num_stages=LOAD_STAGES):
            if REVERSE_SECOND_PASS:
                col = (tiles - 1 - tile) * BLOCK_COLS + columns
            else:
                col = tile * BLOCK_COLS + columns
            x = tl.load(x_row + col, mask=col < cols, other=float("-inf"), eviction_policy=SECOND_HINT)
            # m and log(l) apart, because their sum is m where m is huge.
            y = (x.to(tl.float32) - m_row) - log_l
            tl.store(out_row + col, y.to(out_ptr.dtype.element_ty), mask=col < cols, cache_modifier=STORE_HINT)


def launch(
    x, out, *, BLOCK_COLS, VECTOR, LOAD_STAGES, NUM_PROGRAMS, USE_EXP2, REVERSE_SECOND_PASS, STREAM_HINTS, num_warps
):
    """Write the log-softmax of ``x`` over its last axis into ``out``; both [rows, cols] with unit stride along cols.

    ``BLOCK_COLS`` and ``VECTOR`` are powers of two; ``NUM_PROGRAMS`` programs share the rows.
    """
    rows, cols = x.shape
    log_softmax_online_kernel[(min(rows, NUM_PROGRAMS),)](
        x,
        out,
        x.stride(0),
        out.stride(0),
        rows,
        cols,
        BLOCK_COLS=BLOCK_COLS,
        VECTOR=VECTOR,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        REVERSE_SECOND_PASS=REVERSE_SECOND_PASS,
        STREAM_HINTS=STREAM_HINTS,
        num_warps=num_warps,
    )
