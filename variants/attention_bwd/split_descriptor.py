"""Attention backward without atomic adds by tensor descriptors: one kernel for dk and dv, one for dq.

With x = scale q.k, P = exp(x - lse), delta = rowsum(dout*out) and dS = P*(dout.v - delta): dv = P^T.dout,
dk = scale dS^T.q and dq = scale dS.k. A first kernel writes delta and the log-sum-exp as the other two need them. The
second owns KEYS_BLOCK_N keys of one key/value head and walks over the queries of its group in tiles of KEYS_BLOCK_M; it
takes S and dP transposed, so that P^T and dS^T enter their products from the registers in which they arise. The third
owns QUERIES_BLOCK_M queries and walks over the keys in tiles of QUERIES_BLOCK_N. Tiles that need no mask take none.

Tiles travel by tensor descriptors (TMA; sm_90 and newer), which need no addresses in registers and have all four
dimensions, so that a tile beyond q_len or kv_len reads zeros and writes nothing. head_dim is a power of two; strides
are multiples of 16 bytes, and 1 along head_dim.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


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
    USE_EXP2: tl.constexpr,
):  # fmt: skip
    """Of ROWS queries of one head: delta, and what is subtracted from the logits."""
    LOG2E: tl.constexpr = 1.4426950408889634
    blocks = rows_padded // ROWS
    batch_head = tl.program_id(0) // blocks
    row = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    batch = (batch_head // heads).to(tl.int64)
    head = (batch_head % heads).to(tl.int64)
    dim = tl.arange(0, HEAD_DIM)[None, :]
    at = row.to(tl.int64)
    inside = (row < q_len)[:, None]
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
def _over_queries(
    dk,  # [BLOCK_N, HEAD_DIM] fp32, not scaled
    dv,  # [BLOCK_N, HEAD_DIM] fp32
    k,  # [BLOCK_N, HEAD_DIM]
    v,  # [BLOCK_N, HEAD_DIM]
    q_desc,
    dout_desc,
    delta_ptr,  # [rows_padded] of this head
    shift_ptr,  # [rows_padded] of this head
    batch,
    head,
    first_seen,  # the first query that sees the first key of the tile
    start,  # a multiple of BLOCK_M
    unmasked,
    q_len,
    qk_scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    STAGES: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):
    """Take the queries of one head from ``start`` into dk and dv; from ``unmasked`` on they see every key.

    Keys that are none get whatever weight: their rows of dk and dv are not written.
    """
    for first_query in tl.range(start, q_len, BLOCK_M, num_stages=STAGES):
        query = first_query + tl.arange(0, BLOCK_M)
        q = q_desc.load([batch, head, first_query, 0]).reshape(BLOCK_M, HEAD_DIM)
        dout = dout_desc.load([batch, head, first_query, 0]).reshape(BLOCK_M, HEAD_DIM)
        # A query that is none has a shift of inf, and so no weight.
        shift = tl.load(shift_ptr + query)
        delta = tl.load(delta_ptr + query)
        x = tl.dot(k, q.T, input_precision=DOT_PRECISION)
        dp = tl.dot(v, dout.T, input_precision=DOT_PRECISION)
        x = x * qk_scale - shift[None, :]
        if IS_CAUSAL:
            if first_query < unmasked:
                sees = (query - first_seen)[None, :] >= tl.arange(0, BLOCK_N)[:, None]
                x = tl.where(sees, x, float("-inf"))
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
    q_desc,  # [batch, heads, q_len, HEAD_DIM] in blocks of [1, 1, BLOCK_M, HEAD_DIM], as the next
    dout_desc,
    k_desc,  # [batch, kv_heads, kv_len, HEAD_DIM] in blocks of [1, 1, BLOCK_N, HEAD_DIM], as the next three
    v_desc,
    dk_desc,
    dv_desc,
    delta_ptr,  # [batch * heads, rows_padded] fp32
    shift_ptr,  # [batch * heads, rows_padded] fp32
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
    STAGES: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
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
    first_seen = first_key - (kv_len - q_len)
    if IS_CAUSAL:
        start = tl.maximum(first_seen, 0) // BLOCK_M * BLOCK_M
        unmasked = first_seen + BLOCK_N - 1
    else:
        start = 0
        unmasked = 0

    dk = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    for member in range(group):
        head = kv_head * group + member
        rows = (batch * heads + head).to(tl.int64) * rows_padded
        dk, dv = _over_queries(
            dk, dv, k, v, q_desc, dout_desc, delta_ptr + rows, shift_ptr + rows, batch, head, first_seen, start,
            unmasked, q_len, qk_scale, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, STAGES=STAGES,
            IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION,
        )  # fmt: skip
    dk_tile = (dk * scale).to(k.dtype).reshape(1, 1, BLOCK_N, HEAD_DIM)
    dk_desc.store([batch, kv_head, first_key, 0], dk_tile)
    dv_desc.store([batch, kv_head, first_key, 0], dv.to(k.dtype).reshape(1, 1, BLOCK_N, HEAD_DIM))


@triton.jit
def _over_keys(
    dq,  # [BLOCK_M, HEAD_DIM] fp32, not scaled
    q,  # [BLOCK_M, HEAD_DIM]
    dout,  # [BLOCK_M, HEAD_DIM]
    delta,  # [BLOCK_M]
    shift,  # [BLOCK_M]
    k_desc,
    v_desc,
    batch,
    kv_head,
    last_key,  # [BLOCK_M], the last key that each query sees
    kv_len,
    start,  # a multiple of BLOCK_N
    end,
    qk_scale,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    STAGES: tl.constexpr,
    MASKED: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):
    """Take the keys from ``start`` to ``end`` into dq."""
    for first_key in tl.range(start, end, BLOCK_N, num_stages=STAGES):
        k = k_desc.load([batch, kv_head, first_key, 0]).reshape(BLOCK_N, HEAD_DIM)
        v = v_desc.load([batch, kv_head, first_key, 0]).reshape(BLOCK_N, HEAD_DIM)
        x = tl.dot(q, k.T, input_precision=DOT_PRECISION)
        dp = tl.dot(dout, v.T, input_precision=DOT_PRECISION)
        x = x * qk_scale - shift[:, None]
        if MASKED:
            key = first_key + tl.arange(0, BLOCK_N)
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
    q_desc,  # [batch, heads, q_len, HEAD_DIM] in blocks of [1, 1, BLOCK_M, HEAD_DIM], as the next two
    dout_desc,
    dq_desc,
    k_desc,  # [batch, heads / group, kv_len, HEAD_DIM] in blocks of [1, 1, BLOCK_N, HEAD_DIM], as the next
    v_desc,
    delta_ptr,  # [batch * heads, rows_padded] fp32
    shift_ptr,  # [batch * heads, rows_padded] fp32
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
    STAGES: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):
    """One program takes BLOCK_M queries of one head through all keys that they see."""
    # The last queries, which see most keys, start first.
    tile_m = tiles_m - 1 - tl.program_id(0) % tiles_m
    batch_head = tl.program_id(0) // tiles_m
    batch = batch_head // heads
    head = batch_head % heads
    kv_head = head // group
    first_query = tile_m * BLOCK_M
    query = first_query + tl.arange(0, BLOCK_M)
    q = q_desc.load([batch, head, first_query, 0]).reshape(BLOCK_M, HEAD_DIM)
    dout = dout_desc.load([batch, head, first_query, 0]).reshape(BLOCK_M, HEAD_DIM)
    rows = batch_head.to(tl.int64) * rows_padded
    delta = tl.load(delta_ptr + rows + query)
    shift = tl.load(shift_ptr + rows + query)

    # Bottom-right aligned: query i sees the keys up to i + kv_len - q_len.
    diagonal = kv_len - q_len
    last_key = query + diagonal
    if IS_CAUSAL:
        unmasked = tl.minimum(first_query + diagonal + 1, kv_len)
        end = tl.minimum(tl.minimum(first_query + BLOCK_M, q_len) + diagonal, kv_len)
    else:
        unmasked = kv_len
        end = kv_len
    # Whole tiles of keys that every query sees; then those that some query sees, or that are cut off.
    unmasked = tl.maximum(unmasked, 0) // BLOCK_N * BLOCK_N

    dq = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    dq = _over_keys(
        dq, q, dout, delta, shift, k_desc, v_desc, batch, kv_head, last_key, kv_len, 0, unmasked, qk_scale,
        BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, STAGES=STAGES, MASKED=False, IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2,
        DOT_PRECISION=DOT_PRECISION,
    )  # fmt: skip
    dq = _over_keys(
        dq, q, dout, delta, shift, k_desc, v_desc, batch, kv_head, last_key, kv_len, unmasked, end, qk_scale,
        BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, STAGES=STAGES, MASKED=True, IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2,
        DOT_PRECISION=DOT_PRECISION,
    )  # fmt: skip
    dq_desc.store([batch, head, first_query, 0], (dq * scale).to(q.dtype).reshape(1, 1, BLOCK_M, HEAD_DIM))


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
    KEYS_STAGES,
    KEYS_WARPS,
    QUERIES_BLOCK_M,
    QUERIES_BLOCK_N,
    QUERIES_STAGES,
    QUERIES_WARPS,
):
    """Write the gradients of softmax(scale q.k) v in q, k and v, given that in its output, into dq, dk and dv.

    q, out, dout, dq [batch, heads, q_len, head_dim]; k, v, dk, dv [batch, kv_heads, kv_len, head_dim]; lse [batch,
    heads, q_len] fp32, the natural log-sum-exp. head_dim is a power of two with unit stride; q, k, v, dout, dq, dk and
    dv start, and their other strides are, at multiples of 16 bytes.
    """
    LOG2E = 1.4426950408889634
    ROWS = 32
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    # Whole tiles of every size, so that delta and shift are loaded without a mask.
    granule = max(KEYS_BLOCK_M, QUERIES_BLOCK_M, ROWS)
    rows_padded = triton.cdiv(q_len, granule) * granule
    tiles_m, tiles_n = triton.cdiv(q_len, QUERIES_BLOCK_M), triton.cdiv(kv_len, KEYS_BLOCK_N)
    qk_scale = scale * LOG2E if USE_EXP2 else scale
    delta = torch.empty((batch * heads, rows_padded), dtype=torch.float32, device=q.device)
    shift = torch.empty_like(delta)

    def rows(x, block):
        return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, block, head_dim])

    attention_bwd_delta_kernel[(rows_padded // ROWS * batch * heads,)](
        out, dout, lse, delta, shift, *out.stride()[:3], *dout.stride()[:3], *lse.stride(), heads, q_len, rows_padded,
        ROWS=ROWS, HEAD_DIM=head_dim, USE_EXP2=USE_EXP2, num_warps=4,
    )  # fmt: skip
    attention_bwd_keys_kernel[(tiles_n * batch * kv_heads,)](
        rows(q, KEYS_BLOCK_M), rows(dout, KEYS_BLOCK_M), rows(k, KEYS_BLOCK_N), rows(v, KEYS_BLOCK_N),
        rows(dk, KEYS_BLOCK_N), rows(dv, KEYS_BLOCK_N), delta, shift,
        heads, kv_heads, tiles_n, q_len, kv_len, rows_padded, scale, qk_scale,
        BLOCK_M=KEYS_BLOCK_M, BLOCK_N=KEYS_BLOCK_N, HEAD_DIM=head_dim, STAGES=KEYS_STAGES,
        IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION,
        num_warps=KEYS_WARPS, num_stages=KEYS_STAGES,
    )  # fmt: skip
    attention_bwd_queries_kernel[(tiles_m * batch * heads,)](
        rows(q, QUERIES_BLOCK_M), rows(dout, QUERIES_BLOCK_M), rows(dq, QUERIES_BLOCK_M), rows(k, QUERIES_BLOCK_N),
        rows(v, QUERIES_BLOCK_N), delta, shift,
        heads, heads // kv_heads, tiles_m, q_len, kv_len, rows_padded, scale, qk_scale,
        BLOCK_M=QUERIES_BLOCK_M, BLOCK_N=QUERIES_BLOCK_N, HEAD_DIM=head_dim, STAGES=QUERIES_STAGES,
        IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION,
        num_warps=QUERIES_WARPS, num_stages=QUERIES_STAGES,
    )  # fmt: skip
