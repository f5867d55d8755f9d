"""Attention backward in one pass: each tile of keys walks over the queries once, and adds its share of dq in fp32.

With x = scale q.k, P = exp(x - lse), delta = rowsum(dout*out) and dS = P*(dout.v - delta): dv = P^T.dout,
dk = scale dS^T.q and dq = scale dS.k. A first kernel writes delta and the log-sum-exp as the second one needs them, and
zeros; the second owns BLOCK_N keys of one key/value head, keeps dk and dv, and adds dS.k of each tile of BLOCK_M
queries to dq by atomic adds (so that dq's last bits differ from launch to launch); the third scales and rounds dq. S
and dP are taken transposed, [BLOCK_N, BLOCK_M], so that P^T and dS^T enter their products from the registers in which
they arise.

Tiles travel by tensor descriptors (TMA; sm_90 and newer), which have all four dimensions, so that a tile beyond q_len
or kv_len reads zeros and writes nothing. head_dim is a power of two; strides are multiples of 16 bytes, and 1 along
head_dim.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit(do_not_specialize=["heads", "q_len"])
def attention_bwd_prepare_kernel(
    out_ptr,  # [batch, heads, q_len, HEAD_DIM], unit stride along HEAD_DIM, as dout
    dout_ptr,  # [batch, heads, q_len, HEAD_DIM]
    lse_ptr,  # [batch, heads, q_len] fp32, natural logarithm
    delta_ptr,  # [batch * heads, rows_padded] fp32
    shift_ptr,  # [batch * heads, rows_padded] fp32
    dq_sum_ptr,  # [batch, heads, q_len, HEAD_DIM] fp32, contiguous
    out_stride_batch,
    out_stride_head,
    out_stride_row,
    dout_stride_batch,
    dout_stride_head,
    dout_stride_row,
    lse_stride_batch,
    lse_stride_head,
    lse_stride_row,
    heads,
    q_len,
    rows_padded,  # a multiple of ROWS
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """Of ROWS queries of one head: delta, what is subtracted from the logits, and zeros to add dq to."""
    LOG2E: tl.constexpr = 1.4426950408889634
    blocks = rows_padded // ROWS
    batch_head = tl.program_id(0) // blocks
    row = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    batch = (batch_head // heads).to(tl.int64)
    head = (batch_head % heads).to(tl.int64)
    dim = tl.arange(0, HEAD_DIM)[None, :]
    at = row.to(tl.int64)
    inside = row < q_len
    out_rows = out_ptr + batch * out_stride_batch + head * out_stride_head + at[:, None] * out_stride_row + dim
    dout_rows = dout_ptr + batch * dout_stride_batch + head * dout_stride_head + at[:, None] * dout_stride_row + dim
    out = tl.load(out_rows, mask=inside[:, None], other=0.0).to(tl.float32)
    dout = tl.load(dout_rows, mask=inside[:, None], other=0.0).to(tl.float32)
    lse_head = lse_ptr + batch * lse_stride_batch + head * lse_stride_head
    lse = tl.load(lse_head + at * lse_stride_row, mask=inside, other=float("-inf"))
    # A query that sees no key, or that is none, gets no weight: exp(x - inf) is 0.
    shift = tl.where(lse == float("-inf"), float("inf"), lse * LOG2E if USE_EXP2 else lse)
    place = batch_head.to(tl.int64) * rows_padded + row
    tl.store(delta_ptr + place, tl.sum(out * dout, axis=1))
    tl.store(shift_ptr + place, shift)
    sums = (batch_head.to(tl.int64) * q_len + at)[:, None] * HEAD_DIM + dim
    tl.store(dq_sum_ptr + sums, tl.zeros([ROWS, HEAD_DIM], tl.float32), mask=inside[:, None])


@triton.jit
def _walk(
    dk,  # [BLOCK_N, HEAD_DIM] fp32, not scaled
    dv,  # [BLOCK_N, HEAD_DIM] fp32
    k,  # [BLOCK_N, HEAD_DIM]
    v,  # [BLOCK_N, HEAD_DIM]
    q_desc,
    dout_desc,
    dq_desc,
    delta_ptr,  # [rows_padded] of this head
    shift_ptr,  # [rows_padded] of this head
    dq_sum_ptr,  # [q_len, HEAD_DIM] of this head
    batch,
    head,
    first_key,
    diagonal,
    q_len,
    kv_len,
    start,  # a multiple of BLOCK_M
    unmasked,
    qk_scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    Q_STAGES: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    BULK_ADD: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):
    """Take the queries of one head from ``start`` into dk and dv, and add to their dq; from ``unmasked`` on they see
    every key.

    One loop for both: two would hold the accumulators and twice as many addresses in registers, and spill.
    """
    for first_query in tl.range(start, q_len, BLOCK_M, num_stages=Q_STAGES):
        query = first_query + tl.arange(0, BLOCK_M)
        q = q_desc.load([batch, head, first_query, 0]).reshape(BLOCK_M, HEAD_DIM)
        dout = dout_desc.load([batch, head, first_query, 0]).reshape(BLOCK_M, HEAD_DIM)
        shift = tl.load(shift_ptr + query)
        delta = tl.load(delta_ptr + query)
        x = tl.dot(k, q.T, input_precision=DOT_PRECISION)
        dp = tl.dot(v, dout.T, input_precision=DOT_PRECISION)
        x = x * qk_scale - shift[None, :]
        if first_query < unmasked:
            key = first_key + tl.arange(0, BLOCK_N)
            if IS_CAUSAL:
                visible = key[:, None] <= (query + diagonal)[None, :]
            else:
                visible = key[:, None] < kv_len
            x = tl.where(visible, x, float("-inf"))
        if USE_EXP2:
            p = tl.exp2(x)
        else:
            p = tl.exp(x)
        dv = tl.dot(p.to(dout.dtype), dout, dv, input_precision=DOT_PRECISION)
        ds = (p * (dp - delta[None, :])).to(q.dtype)
        dk = tl.dot(ds, q, dk, input_precision=DOT_PRECISION)
        share = tl.dot(ds.T, k, input_precision=DOT_PRECISION)
        if BULK_ADD:
            dq_desc.atomic_add([batch, head, first_query, 0], share.reshape(1, 1, BLOCK_M, HEAD_DIM))
        else:
            tile = dq_sum_ptr + tl.cast(first_query, tl.int64) * HEAD_DIM
            places = tl.arange(0, BLOCK_M)[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
            tl.atomic_add(tile + places, share, mask=(query < q_len)[:, None], sem="relaxed")
    return dk, dv


@triton.jit(do_not_specialize=["heads", "kv_heads", "tiles_n", "q_len", "kv_len"])
def attention_bwd_kernel(
    q_desc,  # [batch, heads, q_len, HEAD_DIM] in blocks of [1, 1, BLOCK_M, HEAD_DIM], as the next and dq's sums
    dout_desc,
    dq_desc,  # fp32
    k_desc,  # [batch, kv_heads, kv_len, HEAD_DIM] in blocks of [1, 1, BLOCK_N, HEAD_DIM], as the next three
    v_desc,
    dk_desc,
    dv_desc,
    delta_ptr,  # [batch * heads, rows_padded] fp32
    shift_ptr,  # [batch * heads, rows_padded] fp32
    dq_sum_ptr,  # [batch, heads, q_len, HEAD_DIM] fp32, contiguous: what dq_desc describes
    heads,
    kv_heads,
    tiles_n,  # tiles of keys in a head
    q_len,
    kv_len,
    rows_padded,
    scale,
    qk_scale,  # scale, times log2(e) where USE_EXP2
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    Q_STAGES: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    BULK_ADD: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):
    """One program takes BLOCK_N keys of one key/value head through all queries of its group that see them."""
    # The first keys, which most queries see, start first.
    tile_n = tl.program_id(0) % tiles_n
    batch_head = tl.program_id(0) // tiles_n
    batch = batch_head // kv_heads
    kv_head = batch_head % kv_heads
    group = heads // kv_heads
    first_key = tile_n * BLOCK_N
    k = k_desc.load([batch, kv_head, first_key, 0]).reshape(BLOCK_N, HEAD_DIM)
    v = v_desc.load([batch, kv_head, first_key, 0]).reshape(BLOCK_N, HEAD_DIM)

    # Bottom-right aligned: query i sees the keys up to i + kv_len - q_len.
    diagonal = kv_len - q_len
    if IS_CAUSAL:
        start = tl.maximum(first_key - diagonal, 0) // BLOCK_M * BLOCK_M
        unmasked = first_key + BLOCK_N - 1 - diagonal
    else:
        start = 0
        unmasked = 0
    # Keys that are none have a logit of 0: of a tile that is cut off, every query takes the mask.
    if first_key + BLOCK_N > kv_len:
        unmasked = q_len

    dk = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    for member in range(group):
        head = kv_head * group + member
        rows = (batch * heads + head).to(tl.int64)
        dk, dv = _walk(
            dk, dv, k, v, q_desc, dout_desc, dq_desc, delta_ptr + rows * rows_padded, shift_ptr + rows * rows_padded,
            dq_sum_ptr + rows * q_len * HEAD_DIM, batch, head, first_key, diagonal, q_len, kv_len, start, unmasked,
            qk_scale, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, Q_STAGES=Q_STAGES, IS_CAUSAL=IS_CAUSAL,
            USE_EXP2=USE_EXP2, BULK_ADD=BULK_ADD, DOT_PRECISION=DOT_PRECISION,
        )  # fmt: skip
    dk_tile = (dk * scale).to(k.dtype).reshape(1, 1, BLOCK_N, HEAD_DIM)
    dk_desc.store([batch, kv_head, first_key, 0], dk_tile)
    dv_desc.store([batch, kv_head, first_key, 0], dv.to(k.dtype).reshape(1, 1, BLOCK_N, HEAD_DIM))


@triton.jit(do_not_specialize=["heads", "q_len"])
def attention_bwd_finish_kernel(
    dq_sum_ptr,  # [batch, heads, q_len, HEAD_DIM] fp32, contiguous
    dq_ptr,  # [batch, heads, q_len, HEAD_DIM], unit stride along HEAD_DIM
    dq_stride_batch,
    dq_stride_head,
    dq_stride_row,
    heads,
    q_len,
    scale,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """Scale and round dq of ROWS queries of one head."""
    blocks = tl.cdiv(q_len, ROWS)
    batch_head = tl.program_id(0) // blocks
    row = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    batch = (batch_head // heads).to(tl.int64)
    head = (batch_head % heads).to(tl.int64)
    dim = tl.arange(0, HEAD_DIM)[None, :]
    at = row.to(tl.int64)
    inside = (row < q_len)[:, None]
    sums = tl.load(
        dq_sum_ptr + (batch_head.to(tl.int64) * q_len + at)[:, None] * HEAD_DIM + dim, mask=inside, other=0.0
    )
    dq_rows = dq_ptr + batch * dq_stride_batch + head * dq_stride_head + at[:, None] * dq_stride_row + dim
    tl.store(dq_rows, (sums * scale).to(dq_ptr.dtype.element_ty), mask=inside)


def launch(
    q,
    k,
    v,
    out,
    lse,
    dout,
    dq,
    dk,
    dv,
    *,
    scale,
    IS_CAUSAL,
    USE_EXP2,
    BULK_ADD,
    DOT_PRECISION,
    BLOCK_M,
    BLOCK_N,
    Q_STAGES,
    num_warps,
):
    """Write the gradients of softmax(scale q.k) v in q, k and v, given that in its output, into dq, dk and dv.

    q, out, dout, dq [batch, heads, q_len, head_dim]; k, v, dk, dv [batch, kv_heads, kv_len, head_dim]; lse [batch,
    heads, q_len] fp32, the natural log-sum-exp. head_dim is a power of two with unit stride; q, k, v, dout, dk and dv
    start, and their other strides are, at multiples of 16 bytes.
    """
    LOG2E = 1.4426950408889634
    ROWS = 32
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    rows_padded = triton.cdiv(q_len, max(BLOCK_M, ROWS)) * max(BLOCK_M, ROWS)
    tiles_n = triton.cdiv(kv_len, BLOCK_N)
    delta = torch.empty((batch * heads, rows_padded), dtype=torch.float32, device=q.device)
    shift = torch.empty_like(delta)
    dq_sum = torch.empty((batch, heads, q_len, head_dim), dtype=torch.float32, device=q.device)

    def rows(x, block):
        return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, block, head_dim])

    attention_bwd_prepare_kernel[(rows_padded // ROWS * batch * heads,)](
        out,
        dout,
        lse,
        delta,
        shift,
        dq_sum,
        out.stride(0),
        out.stride(1),
        out.stride(2),
        dout.stride(0),
        dout.stride(1),
        dout.stride(2),
        lse.stride(0),
        lse.stride(1),
        lse.stride(2),
        heads,
        q_len,
        rows_padded,
        ROWS=ROWS,
        HEAD_DIM=head_dim,
        USE_EXP2=USE_EXP2,
        num_warps=4,
    )
    attention_bwd_kernel[(tiles_n * batch * kv_heads,)](
        rows(q, BLOCK_M),
        rows(dout, BLOCK_M),
        rows(dq_sum, BLOCK_M),
        rows(k, BLOCK_N),
        rows(v, BLOCK_N),
        rows(dk, BLOCK_N),
        rows(dv, BLOCK_N),
        delta,
        shift,
        dq_sum,
        heads,
        kv_heads,
        tiles_n,
        q_len,
        kv_len,
        rows_padded,
        scale,
        scale * LOG2E if USE_EXP2 else scale,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        HEAD_DIM=head_dim,
        Q_STAGES=Q_STAGES,
        IS_CAUSAL=IS_CAUSAL,
        USE_EXP2=USE_EXP2,
        BULK_ADD=BULK_ADD,
        DOT_PRECISION=DOT_PRECISION,
        num_warps=num_warps,
        num_stages=Q_STAGES,
    )
    attention_bwd_finish_kernel[(triton.cdiv(q_len, ROWS) * batch * heads,)](
        dq_sum,
        dq,
        dq.stride(0),
        dq.stride(1),
        dq.stride(2),
        heads,
        q_len,
        scale,
        ROWS=ROWS,
        HEAD_DIM=head_dim,
        num_warps=4,
    )
