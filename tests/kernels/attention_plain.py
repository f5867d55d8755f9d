"""A small attention kernel for tests: pointer loads, persistent over the query tiles of a head, base-2 online softmax.

Tests plant bugs in it by replacing source text, so every line that a mutant changes is kept on a line of its own.
"""

# ruff: noqa: E741 (l is the running sum in every paper on online softmax)
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    scale,
    heads,
    kv_heads,
    q_len,
    kv_len,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
):
    LOG2E: tl.constexpr = 1.4426950408889634
    batch_head = tl.program_id(1)
    batch = batch_head // heads
    head = batch_head % heads
    kv_head = head // (heads // kv_heads)
    q_base = batch_head * q_len * HEAD_DIM
    kv_base = (batch * kv_heads + kv_head) * kv_len * HEAD_DIM
    dims = tl.arange(0, BLOCK_D)
    for first_row in tl.range(tl.program_id(0) * BLOCK_M, q_len, tl.num_programs(0) * BLOCK_M):
        rows = first_row + tl.arange(0, BLOCK_M)
        q_mask = (rows[:, None] < q_len) & (dims[None, :] < HEAD_DIM)
        q = tl.load(q_ptr + q_base + rows[:, None] * HEAD_DIM + dims[None, :], mask=q_mask, other=0.0)
        m = tl.full([BLOCK_M], float("-inf"), tl.float32)
        l = tl.zeros([BLOCK_M], tl.float32)
        acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
        for start in range(0, kv_len, BLOCK_N):
            cols = start + tl.arange(0, BLOCK_N)
            kv_mask = (cols[:, None] < kv_len) & (dims[None, :] < HEAD_DIM)
            kv_offsets = kv_base + cols[:, None] * HEAD_DIM + dims[None, :]
            k = tl.load(k_ptr + kv_offsets, mask=kv_mask, other=0.0)
            v = tl.load(v_ptr + kv_offsets, mask=kv_mask, other=0.0)
            s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2E)
            visible = (cols[None, :] < kv_len) & (rows[:, None] < q_len)
            if IS_CAUSAL:
                visible = visible & (cols[None, :] <= rows[:, None] + (kv_len - q_len))
            s = tl.where(visible, s, float("-inf"))
            block_max = tl.max(s, axis=1)
            m_new = tl.maximum(m, block_max)
            m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
            alpha = tl.exp2(m - m_safe)
            p = tl.exp2(s - m_safe[:, None])
            l = l * alpha
            l = l + tl.sum(p, axis=1)
            acc = acc * alpha[:, None]
            acc = acc + tl.dot(p.to(v.dtype), v, input_precision="ieee")
            m = m_new
        l_safe = tl.where(l == 0.0, 1.0, l)
        out = acc / l_safe[:, None]
        lse = m / LOG2E + tl.log(l_safe)
        tl.store(out_ptr + q_base + rows[:, None] * HEAD_DIM + dims[None, :], out.to(q.dtype), mask=q_mask)
        tl.store(lse_ptr + batch_head * q_len + rows, lse, mask=rows < q_len)


def launch(q, k, v, out, lse, *, scale, IS_CAUSAL, BLOCK_M, BLOCK_N, PROGRAMS):
    """Attention of contiguous q over k, v into out and lse."""
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    attention_kernel[(PROGRAMS, batch * heads)](
        q,
        k,
        v,
        out,
        lse,
        scale,
        heads,
        kv_heads,
        q_len,
        kv_len,
        HEAD_DIM=head_dim,
        BLOCK_D=triton.next_power_of_2(head_dim),
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        IS_CAUSAL=IS_CAUSAL,
    )
