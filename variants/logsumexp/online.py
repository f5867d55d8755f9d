"""Row log-sum-exp, online over tiles: one program a row at a time, one pass over the row.

A lane is the VECTOR columns that a thread loads at once. It keeps a running maximum m and a running sum l of its own
(m_new = max(m, x); l = l*alpha + sum p), so that no reduction across threads is needed until the row's end. Its columns
share one rescaling: with an exponential for each of them and another for each rescaling, the exponentials would be
dearer than reading the row.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def logsumexp_online_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    out_ptr,  # [rows] fp32
    x_row_stride,
    rows,
    cols,
    BLOCK_COLS: tl.constexpr,
    VECTOR: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """One program computes the rows program_id, program_id + num_programs, ..., in tiles of BLOCK_COLS columns."""
    LOG2E: tl.constexpr = 1.4426950408889634
    LN2: tl.constexpr = 0.6931471805599453
    LANES: tl.constexpr = BLOCK_COLS // VECTOR
    lanes = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    tiles = tl.cdiv(cols, BLOCK_COLS)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        x_row = x_ptr + tl.cast(row, tl.int64) * x_row_stride
        m = tl.full([LANES], float("-inf"), tl.float32)
        l = tl.zeros([LANES], tl.float32)
        for tile in tl.range(0, tiles, num_stages=LOAD_STAGES):
            col = tile * BLOCK_COLS + lanes
            # Every element is read once: it need not stay in the cache.
            x = tl.load(x_row + col, mask=col < cols, other=float("-inf"), eviction_policy="evict_first")
            logits = x.to(tl.float32)
            m_new = tl.maximum(m, tl.max(logits, axis=1))
            # A lane that has seen only -inf keeps l = 0, and one with +inf has l = +inf: inf - inf would be NaN.
            m_safe = tl.where(tl.abs(m_new) == float("inf"), 0.0, m_new)
            if USE_EXP2:
                p = tl.exp2((logits - m_safe[:, None]) * LOG2E)
                l = l * tl.exp2((m - m_safe) * LOG2E) + tl.sum(p, axis=1)
            else:
                p = tl.exp(logits - m_safe[:, None])
                l = l * tl.exp(m - m_safe) + tl.sum(p, axis=1)
            m = m_new
        m_row = tl.max(m, axis=0)
        # With 0 for an infinite maximum a row of nothing but -inf gives log(0), and one with +inf gives log(+inf).
        m_safe = tl.where(tl.abs(m_row) == float("inf"), 0.0, m_row)
        if USE_EXP2:
            l_row = tl.sum(l * tl.exp2((m - m_safe) * LOG2E), axis=0)
            lse = m_safe + tl.log2(l_row) * LN2
        else:
            l_row = tl.sum(l * tl.exp(m - m_safe), axis=0)
            lse = m_safe + tl.log(l_row)
        tl.store(out_ptr + row, lse)


def launch(x, out, *, BLOCK_COLS, VECTOR, LOAD_STAGES, NUM_PROGRAMS, USE_EXP2, num_warps):
    """Write the log-sum-exp of ``x`` [rows, cols] over its last axis, of unit stride, into ``out`` [rows], fp32.

    ``BLOCK_COLS`` and ``VECTOR`` are powers of two; ``NUM_PROGRAMS`` programs share the rows.
    """
    rows, cols = x.shape
    logsumexp_online_kernel[(min(rows, NUM_PROGRAMS),)](
        x,
        out,
        x.stride(0),
        rows,
        cols,
        BLOCK_COLS=BLOCK_COLS,
        VECTOR=VECTOR,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        num_warps=num_warps,
    )
