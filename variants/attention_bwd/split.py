"""Attention backward without atomic adds: one kernel for dk and dv, one for dq. Any GPU, any head_dim, any strides.

With x = scale q.k, P = exp(x - lse), delta = rowsum(dout*out) and dS = P*(dout.v - delta): dv = P^T.dout,
dk = scale dS^T.q and dq = scale dS.k. A first kernel writes delta and the log-sum-exp as the other two need them. The
second owns KEYS_BLOCK_N keys of one key/value head and walks over the queries of its group in tiles of KEYS_BLOCK_M; it
takes S and dP transposed, so that P^T and dS^T enter their products from the registers in which they arise. The third
owns QUERIES_BLOCK_M queries and walks over the keys in tiles of QUERIES_BLOCK_N. Tiles that need no mask take none.
"""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["heads", "q_len"])
def attention_bwd_delta_kernel(
    out_ptr,  # [batch, heads, q_len, HEAD_DIM], unit stride along HEAD_DIM, as dout
    dout_ptr,  # [batch, heads, q_len, HEAD_DIM]
    lse_ptr,  # [batch, heads, q_len] fp32, natural logarithm
    delta_ptr,  # [batch * heads, rows_padded] fp32
    shift_ptr,  # [batch * heads, rows_padded] fp32
    out_stride_batch, out_stride_head, out_stride_row,
    dout_stride_batch, dout_stride_head, dout_stride_row,
    lse_stride_batch, lse_stride_head, lse_stride_row,
    heads,
    q_len,
    rows_padded,  # a multiple of ROWS
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    USE_EXP2: tl.constexpr,
):  # fmt: skip
    """Of ROWS queries of one head: delta, and what is subtracted from the logits."""
    LOG2E: tl.constexpr = 1.4426950408889634
    blocks = rows_padded // ROWS
    batch_head = tl.program_id(0) // blocks
    row = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    batch = (batch_head // heads).to(tl.int64)
    head = (batch_head % heads).to(tl.int64)
    dim = tl.arange(0, HEAD_DIM_PADDED)[None, :]
    at = row.to(tl.int64)
    inside = (row < q_len)[:, None] & (dim < HEAD_DIM)
    out_rows = out_ptr + batch * out_stride_batch + head * out_stride_head + at[:, None] * out_stride_row + dim
    dout_rows = dout_ptr + batch * dout_stride_batch + head * dout_stride_head + at[:, None] * dout_stride_row + dim
    out = tl.load(out_rows, mask=inside, other=0.0).to(tl.float32)
    dout = tl.load(dout_rows, mask=inside, other=0.0).to(tl.float32)
    lse_head = lse_ptr + batch * lse_stride_batch + head * lse_stride_head
    lse = tl.load(lse_head + at * lse_stride_row, mask=row < q_len, other=float("-inf"))
    # A query that sees no key, or that is none, gets no weight: exp(x - inf) is 0.
    shift = tl.where(lse == float("-inf"), float("inf"), lse * LOG2E if USE_EXP2 else lse)
    place = batch_head.to(tl.int64) * rows_padded + row
    tl.store(delta_ptr + place, tl.sum(out * dout, axis=1))
    tl.store(shift_ptr + place, shift)


@triton.jit
def _rows(
    ptr,  # [length, HEAD_DIM] of one head
    row,  # [rows]
    stride_row,
    length,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    CUT_OFF: tl.constexpr,
):
    """Those rows [rows, HEAD_DIM_PADDED], 0 beyond HEAD_DIM and, where CUT_OFF, beyond ``length``."""
    dim = tl.arange(0, HEAD_DIM_PADDED)[None, :]
    places = ptr + row.to(tl.int64)[:, None] * stride_row + dim
    if CUT_OFF:
        tile = tl.load(places, mask=(row < length)[:, None] & (dim < HEAD_DIM), other=0.0)
    elif HEAD_DIM == HEAD_DIM_PADDED:
        tile = tl.load(places)
    else:
        tile = tl.load(places, mask=dim < HEAD_DIM, other=0.0)
    return tile


@triton.jit
def _over_queries(
    dk,  # [BLOCK_N, HEAD_DIM_PADDED] fp32, not scaled
    dv,  # [BLOCK_N, HEAD_DIM_PADDED] fp32
    k,  # [BLOCK_N, HEAD_DIM_PADDED]
    v,  # [BLOCK_N, HEAD_DIM_PADDED]
    q_ptr,  # [q_len, HEAD_DIM] of this head
    dout_ptr,  # [q_len, HEAD_DIM] of this head
    delta_ptr,  # [rows_padded] of this head
    shift_ptr,  # [rows_padded] of this head
    q_stride_row,
    dout_stride_row,
    first_seen,  # [BLOCK_N], the first query that sees each key
    q_len,
    start,  # a multiple of BLOCK_M
    unmasked,
    qk_scale,
    BLOCK_M: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):
    """Take the queries of one head from ``start`` into dk and dv; from ``unmasked`` on they see every key.

    One loop for both: two would hold the accumulators and twice as many addresses in registers, and spill.
    """
    for first_query in tl.range(start, q_len, BLOCK_M):
        query = first_query + tl.arange(0, BLOCK_M)
        q = _rows(q_ptr, query, q_stride_row, q_len, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, CUT_OFF=True)
        dout = _rows(
            dout_ptr, query, dout_stride_row, q_len, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, CUT_OFF=True
        )
        # A query that is none has a shift of inf, and so no weight.
        shift = tl.load(shift_ptr + query)
        delta = tl.load(delta_ptr + query)
        x = tl.dot(k, tl.trans(q), input_precision=DOT_PRECISION)
        dp = tl.dot(v, tl.trans(dout), input_precision=DOT_PRECISION)
        x = x * qk_scale - shift[None, :]
        if IS_CAUSAL:
            if first_query < unmasked:
                x = tl.where(query[None, :] >= first_seen[:, None], x, float("-inf"))
        if USE_EXP2:
            p = tl.exp2(x)
        else:
            p = tl.exp(x)
        dv = tl.dot(p.to(dout.dtype), dout, dv, input_precision=DOT_PRECISION)
        ds = (p * (dp - delta[None, :])).to(q.dtype)
        dk = tl.dot(ds, q, dk, input_precision=DOT_PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["heads", "kv_heads", "tiles_n", "q_len", "kv_len"])
def attention_bwd_keys_kernel(
    q_ptr,  # [batch, heads, q_len, HEAD_DIM], unit stride along HEAD_DIM, as the next five
    k_ptr,  # [batch, kv_heads, kv_len, HEAD_DIM]
    v_ptr,  # [batch, kv_heads, kv_len, HEAD_DIM]
    dout_ptr,  # [batch, heads, q_len, HEAD_DIM]
    dk_ptr,  # [batch, kv_heads, kv_len, HEAD_DIM]
    dv_ptr,  # [batch, kv_heads, kv_len, HEAD_DIM]
    delta_ptr,  # [batch * heads, rows_padded] fp32
    shift_ptr,  # [batch * heads, rows_padded] fp32
    q_stride_batch, q_stride_head, q_stride_row,
    k_stride_batch, k_stride_head, k_stride_row,
    v_stride_batch, v_stride_head, v_stride_row,
    dout_stride_batch, dout_stride_head, dout_stride_row,
    dk_stride_batch, dk_stride_head, dk_stride_row,
    dv_stride_batch, dv_stride_head, dv_stride_row,
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
    HEAD_DIM_PADDED: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):  # fmt: skip
    """One program takes BLOCK_N keys of one key/value head through all queries of its group that see them."""
    # The first keys, which most queries see, start first.
    tile_n = tl.program_id(0) % tiles_n
    batch_head = tl.program_id(0) // tiles_n
    batch = (batch_head // kv_heads).to(tl.int64)
    kv_head = (batch_head % kv_heads).to(tl.int64)
    group = heads // kv_heads
    first_key = tile_n * BLOCK_N
    key = first_key + tl.arange(0, BLOCK_N)
    k_head = k_ptr + batch * k_stride_batch + kv_head * k_stride_head
    v_head = v_ptr + batch * v_stride_batch + kv_head * v_stride_head
    k = _rows(k_head, key, k_stride_row, kv_len, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, CUT_OFF=True)
    v = _rows(v_head, key, v_stride_row, kv_len, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, CUT_OFF=True)

    # Bottom-right aligned: query i sees the keys up to i + kv_len - q_len.
    diagonal = kv_len - q_len
    first_seen = key - diagonal
    if IS_CAUSAL:
        start = tl.maximum(first_key - diagonal, 0) // BLOCK_M * BLOCK_M
        unmasked = first_key + BLOCK_N - 1 - diagonal
    else:
        start = 0
        unmasked = 0

    dk = tl.zeros([BLOCK_N, HEAD_DIM_PADDED], tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD_DIM_PADDED], tl.float32)
    for member in range(group):
        head = kv_head * group + member
        q_head = q_ptr + batch * q_stride_batch + head * q_stride_head
        dout_head = dout_ptr + batch * dout_stride_batch + head * dout_stride_head
        rows = (batch * heads + head) * rows_padded
        dk, dv = _over_queries(
            dk, dv, k, v, q_head, dout_head, delta_ptr + rows, shift_ptr + rows, q_stride_row, dout_stride_row,
            first_seen, q_len, start, unmasked, qk_scale, BLOCK_M=BLOCK_M, HEAD_DIM=HEAD_DIM,
            HEAD_DIM_PADDED=HEAD_DIM_PADDED, IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION,
        )  # fmt: skip

    at = key.to(tl.int64)[:, None]
    dim = tl.arange(0, HEAD_DIM_PADDED)[None, :]
    inside = (key < kv_len)[:, None] & (dim < HEAD_DIM)
    dk_rows = dk_ptr + batch * dk_stride_batch + kv_head * dk_stride_head + at * dk_stride_row + dim
    dv_rows = dv_ptr + batch * dv_stride_batch + kv_head * dv_stride_head + at * dv_stride_row + dim
    tl.store(dk_rows, (dk * scale).to(dk_ptr.dtype.element_ty), mask=inside)
    tl.store(dv_rows, dv.to(dv_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _over_keys(
    dq,  # [BLOCK_M, HEAD_DIM_PADDED] fp32, not scaled
    q,  # [BLOCK_M, HEAD_DIM_PADDED]
    dout,  # [BLOCK_M, HEAD_DIM_PADDED]
    delta,  # [BLOCK_M]
    shift,  # [BLOCK_M]
    k_ptr,  # [kv_len, HEAD_DIM] of this head
    v_ptr,  # [kv_len, HEAD_DIM] of this head
    k_stride_row,
    v_stride_row,
    last_key,  # [BLOCK_M], the last key that each query sees
    kv_len,
    start,  # a multiple of BLOCK_N
    end,
    qk_scale,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    MASKED: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):
    """Take the keys from ``start`` to ``end`` into dq."""
    for first_key in tl.range(start, end, BLOCK_N):
        key = first_key + tl.arange(0, BLOCK_N)
        k = _rows(k_ptr, key, k_stride_row, kv_len, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, CUT_OFF=MASKED)
        v = _rows(v_ptr, key, v_stride_row, kv_len, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, CUT_OFF=MASKED)
        x = tl.dot(q, tl.trans(k), input_precision=DOT_PRECISION)
        dp = tl.dot(dout, tl.trans(v), input_precision=DOT_PRECISION)
        x = x * qk_scale - shift[:, None]
        if MASKED:
            if IS_CAUSAL:
                visible = (key[None, :] <= last_key[:, None]) & (key[None, :] < kv_len)
            else:
                visible = key[None, :] < kv_len
            x = tl.where(visible, x, float("-inf"))
        if USE_EXP2:
            p = tl.exp2(x)
        else:
            p = tl.exp(x)
        ds = (p * (dp - delta[:, None])).to(k.dtype)
        dq = tl.dot(ds, k, dq, input_precision=DOT_PRECISION)
    return dq


@triton.jit(do_not_specialize=["heads", "group", "tiles_m", "q_len", "kv_len"])
def attention_bwd_queries_kernel(
    q_ptr,  # [batch, heads, q_len, HEAD_DIM], unit stride along HEAD_DIM, as the next four
    k_ptr,  # [batch, heads / group, kv_len, HEAD_DIM]
    v_ptr,  # [batch, heads / group, kv_len, HEAD_DIM]
    dout_ptr,  # [batch, heads, q_len, HEAD_DIM]
    dq_ptr,  # [batch, heads, q_len, HEAD_DIM]
    delta_ptr,  # [batch * heads, rows_padded] fp32
    shift_ptr,  # [batch * heads, rows_padded] fp32
    q_stride_batch, q_stride_head, q_stride_row,
    k_stride_batch, k_stride_head, k_stride_row,
    v_stride_batch, v_stride_head, v_stride_row,
    dout_stride_batch, dout_stride_head, dout_stride_row,
    dq_stride_batch, dq_stride_head, dq_stride_row,
    heads,
    group,  # query heads for each key/value head
    tiles_m,  # tiles of queries in a head
    q_len,
    kv_len,
    rows_padded,
    scale,
    qk_scale,  # scale, times log2(e) where USE_EXP2
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):  # fmt: skip
    """One program takes BLOCK_M queries of one head through all keys that they see."""
    # The last queries, which see most keys, start first.
    tile_m = tiles_m - 1 - tl.program_id(0) % tiles_m
    batch_head = tl.program_id(0) // tiles_m
    batch = (batch_head // heads).to(tl.int64)
    head = (batch_head % heads).to(tl.int64)
    kv_head = head // group
    query = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    q_head = q_ptr + batch * q_stride_batch + head * q_stride_head
    dout_head = dout_ptr + batch * dout_stride_batch + head * dout_stride_head
    q = _rows(q_head, query, q_stride_row, q_len, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, CUT_OFF=True)
    dout = _rows(
        dout_head, query, dout_stride_row, q_len, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, CUT_OFF=True
    )
    rows = batch_head.to(tl.int64) * rows_padded
    delta = tl.load(delta_ptr + rows + query)
    shift = tl.load(shift_ptr + rows + query)
    k_head = k_ptr + batch * k_stride_batch + kv_head * k_stride_head
    v_head = v_ptr + batch * v_stride_batch + kv_head * v_stride_head

    # Bottom-right aligned: query i sees the keys up to i + kv_len - q_len.
    diagonal = kv_len - q_len
    last_key = query + diagonal
    if IS_CAUSAL:
        unmasked = tl.minimum(tile_m * BLOCK_M + diagonal + 1, kv_len)
        end = tl.minimum(tl.minimum((tile_m + 1) * BLOCK_M, q_len) + diagonal, kv_len)
    else:
        unmasked = kv_len
        end = kv_len
    # Whole tiles of keys that every query sees; then those that some query sees, or that are cut off.
    unmasked = tl.maximum(unmasked, 0) // BLOCK_N * BLOCK_N

    dq = tl.zeros([BLOCK_M, HEAD_DIM_PADDED], tl.float32)
    dq = _over_keys(
        dq, q, dout, delta, shift, k_head, v_head, k_stride_row, v_stride_row, last_key, kv_len, 0, unmasked, qk_scale,
        BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, MASKED=False, IS_CAUSAL=IS_CAUSAL,
        USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION,
    )  # fmt: skip
    dq = _over_keys(
        dq, q, dout, delta, shift, k_head, v_head, k_stride_row, v_stride_row, last_key, kv_len, unmasked, end,
        qk_scale, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, MASKED=True,
        IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION,
    )  # fmt: skip

    dim = tl.arange(0, HEAD_DIM_PADDED)[None, :]
    dq_rows = dq_ptr + batch * dq_stride_batch + head * dq_stride_head + query.to(tl.int64)[:, None] * dq_stride_row
    inside = (query < q_len)[:, None] & (dim < HEAD_DIM)
    tl.store(dq_rows + dim, (dq * scale).to(dq_ptr.dtype.element_ty), mask=inside)


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
    DOT_PRECISION,
    KEYS_BLOCK_M,
    KEYS_BLOCK_N,
    QUERIES_BLOCK_M,
    QUERIES_BLOCK_N,
    num_warps,
    num_stages,
):
    """Write the gradients of softmax(scale q.k) v in q, k and v, given that in its output, into dq, dk and dv.

    q, out, dout, dq [batch, heads, q_len, head_dim]; k, v, dk, dv [batch, kv_heads, kv_len, head_dim]; lse [batch,
    heads, q_len] fp32, the natural log-sum-exp. Any strides, but 1 along head_dim.
    """
    LOG2E = 1.4426950408889634
    ROWS = 32
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    head_dim_padded = triton.next_power_of_2(head_dim)
    # Whole tiles of every size, so that delta and shift are loaded without a mask.
    granule = max(KEYS_BLOCK_M, QUERIES_BLOCK_M, ROWS)
    rows_padded = triton.cdiv(q_len, granule) * granule
    tiles_m, tiles_n = triton.cdiv(q_len, QUERIES_BLOCK_M), triton.cdiv(kv_len, KEYS_BLOCK_N)
    qk_scale = scale * LOG2E if USE_EXP2 else scale
    delta = torch.empty((batch * heads, rows_padded), dtype=torch.float32, device=q.device)
    shift = torch.empty_like(delta)
    attention_bwd_delta_kernel[(rows_padded // ROWS * batch * heads,)](
        out, dout, lse, delta, shift, *out.stride()[:3], *dout.stride()[:3], *lse.stride(), heads, q_len, rows_padded,
        ROWS=ROWS, HEAD_DIM=head_dim, HEAD_DIM_PADDED=head_dim_padded, USE_EXP2=USE_EXP2, num_warps=4,
    )  # fmt: skip
    given = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *dout.stride()[:3])
    attention_bwd_keys_kernel[(tiles_n * batch * kv_heads,)](
        q, k, v, dout, dk, dv, delta, shift, *given, *dk.stride()[:3], *dv.stride()[:3],
        heads, kv_heads, tiles_n, q_len, kv_len, rows_padded, scale, qk_scale,
        BLOCK_M=KEYS_BLOCK_M, BLOCK_N=KEYS_BLOCK_N, HEAD_DIM=head_dim, HEAD_DIM_PADDED=head_dim_padded,
        IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    attention_bwd_queries_kernel[(tiles_m * batch * heads,)](
        q, k, v, dout, dq, delta, shift, *given, *dq.stride()[:3],
        heads, heads // kv_heads, tiles_m, q_len, kv_len, rows_padded, scale, qk_scale,
        BLOCK_M=QUERIES_BLOCK_M, BLOCK_N=QUERIES_BLOCK_N, HEAD_DIM=head_dim, HEAD_DIM_PADDED=head_dim_padded,
        IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
