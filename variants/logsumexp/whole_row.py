"""Row log-sum-exp with the whole row in one block: one read, every reduction inside the block.

Two passes over registers: m = max(x), l = sum(exp(x - m)), out = m + log(l). A row longer than BLOCK_COLS cannot be
computed by it. Programs may stay and walk over the rows: the loop's loads are then pipelined, LOAD_STAGES - 1 rows
being on their way into shared memory during the reductions of a row.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def logsumexp_whole_row_kernel(
    x_ptr,  # [rows, cols], any float dtype; rows are x_row_stride elements apart
    out_ptr,  # [rows] fp32
    x_row_stride,
    rows,
    cols,  # at most BLOCK_COLS
    BLOCK_COLS: tl.constexpr,
    LOAD_STAGES: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """One program computes the rows program_id, program_id + num_programs, ..."""
    LOG2E: tl.constexpr = 1.4426950408889634
    LN2: tl.constexpr = 0.6931471805599453
    col = tl.arange(0, BLOCK_COLS)
    inside = col < cols
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=LOAD_STAGES):
        x_row = x_ptr + tl.cast(row, tl.int64) * x_row_stride
        # Every element is read once: it need not stay in the cache.
        x = tl.load(x_row + col, mask=inside, other=float("-inf"), eviction_policy="evict_first")
        logits = x.to(tl.float32)
        m = tl.max(logits, axis=0)
        # With 0 for an infinite maximum a row of nothing but -inf gives log(0), and one with +inf gives log(+inf).
        m_safe = tl.where(tl.abs(m) == float("inf"), 0.0, m)
        if USE_EXP2:
            p = tl.exp2((logits - m_safe) * LOG2E)
        else:
            p = tl.exp(logits - m_safe)
        l = tl.sum(p, axis=0)
        if USE_EXP2:
            lse = m_safe + tl.log2(l) * LN2
        else:
            lse = m_safe + tl.log(l)
        tl.store(out_ptr + row, lse)


def launch(x, out, *, BLOCK_COLS, LOAD_STAGES, NUM_PROGRAMS, USE_EXP2, num_warps):
    """Write the log-sum-exp of ``x`` [rows, cols] over its last axis, of unit stride, into ``out`` [rows], fp32.

    ``BLOCK_COLS`` is a power of two of at least cols; ``NUM_PROGRAMS`` programs share the rows. ``ValueError``
    where a row is longer.
    """
    rows, cols = x.shape
    if cols > BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {BLOCK_COLS}; render one for it")
    logsumexp_whole_row_kernel[(min(rows, NUM_PROGRAMS),)](
        x,
        out,
        x.stride(0),
        rows,
        cols,
        BLOCK_COLS=BLOCK_COLS,
        LOAD_STAGES=LOAD_STAGES,
        USE_EXP2=USE_EXP2,
        num_warps=num_warps,
    )
