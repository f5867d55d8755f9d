"""Attention forward with tensor descriptors: tiles travel by the hardware's bulk copy engine (TMA; sm_90 and newer).

One program owns BLOCK_M queries of one head (or walks over several such tiles, where PERSISTENT) and keeps for each
query the running maximum m, the running sum l and the unnormalised output acc. For each tile of BLOCK_N keys, with
x = q.k scaled: m_new = max(m, max(x)); alpha = exp(m - m_new); p = exp(x - m_new); l = l*alpha + sum(p);
acc = acc*alpha + p.v. Tiles of keys that every query of the block sees take no mask and run in a loop of their own.

A descriptor has all four dimensions, so that a tile beyond q_len or kv_len reads zeros and writes nothing, and never
touches the next head. head_dim is a power of two; strides are multiples of 16 bytes, and 1 along head_dim.
"""

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _logits(
    q,  # [BLOCK_M, HEAD_DIM]
    k_desc,
    batch,
    kv_head,
    first_key,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):
    """q.k [BLOCK_M, BLOCK_N] fp32, not scaled, for the keys from ``first_key``."""
    k = k_desc.load([batch, kv_head, first_key, 0]).reshape(BLOCK_N, HEAD_DIM)
    return tl.dot(q, k.T, input_precision="ieee" if DOT_PRECISION == "bf16" else DOT_PRECISION)


@triton.jit
def _logits_of_parts(
    q,  # [BLOCK_M, HEAD_DIM]
    q_rest,  # [BLOCK_M, REST_PADDED], what q has from HEAD_DIM on
    k_desc,
    k_rest_desc,
    batch,
    kv_head,
    first_key,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    REST_PADDED: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
):
    """The same, of q and k in two parts."""
    x = _logits(q, k_desc, batch, kv_head, first_key, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, DOT_PRECISION=DOT_PRECISION)
    k_rest = k_rest_desc.load([batch, kv_head, first_key, HEAD_DIM]).reshape(BLOCK_N, REST_PADDED)
    return tl.dot(q_rest, k_rest.T, x, input_precision=DOT_PRECISION)


@triton.jit
def _capped(x, cap_scale, softcap, USE_EXP2: tl.constexpr):
    """softcap * tanh(y) of x = q.k [BLOCK_M, BLOCK_N], x * cap_scale being 2 y (times log2(e) where USE_EXP2).

    As softcap - 2 softcap / (1 + exp(2 y)), which is softcap or -softcap where the exponential overflows or underflows.
    """
    if USE_EXP2:
        squared = tl.exp2(x * cap_scale)
    else:
        squared = tl.exp(x * cap_scale)
    return softcap - 2.0 * softcap / (1.0 + squared)


@triton.jit
def _lowered(x, USE_EXP2: tl.constexpr):
    """x - log(256), to base 2 where USE_EXP2: with it in the place of the maximum x the largest weight is 256.

    Weights in e4m3 then use its range; what they are divided by in the end has the same factor.
    """
    if USE_EXP2:
        return x - 8.0
    else:
        return x - 5.545177444479562


@triton.jit
def _attend(
    acc,  # [BLOCK_M, HEAD_DIM] fp32, unnormalised output
    l,  # [BLOCK_M] fp32, running sum
    m,  # [BLOCK_M] fp32, running maximum
    ahead,  # [BLOCK_M, BLOCK_N] fp32, q.k of the tile at ``start`` (where OVERLAP_QK)
    q,  # [BLOCK_M, HEAD_DIM]
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
    KV_STAGES: tl.constexpr,
    MASKED: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    OVERLAP_QK: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    ALIBI: tl.constexpr,
    BIAS: tl.constexpr,
    OWN_V_DIM: tl.constexpr,
    SPLIT_DIM: tl.constexpr,
    FP8: tl.constexpr,
    first_seen=None,  # [BLOCK_M], the first key that each query sees, where WINDOW
    logit_scale=None,  # where the logits are more than scaled, and qk_scale is 1
    softcap=None,  # where SOFTCAP
    slope=None,  # where ALIBI: what a logit loses for each key between it and the query's own place
    place=None,  # [BLOCK_M], the key at each query's own place, where ALIBI
    bias_rows=None,  # [BLOCK_M, 1], where each query's bias starts, where BIAS
    rows_inside=None,  # [BLOCK_M, 1], which of them there are
    V_DIM_PADDED: tl.constexpr = None,  # where OWN_V_DIM: elements of a row of v and acc
    q_rest=None,  # [BLOCK_M, REST_PADDED], where SPLIT_DIM: what q has from HEAD_DIM on
    k_rest_desc=None,
    REST_PADDED: tl.constexpr = None,
):
    """Take the keys from ``start`` to ``end`` into acc, l and m."""
    for first_key in tl.range(start, end, BLOCK_N, num_stages=KV_STAGES):
        if OVERLAP_QK:
            x = ahead
        elif SPLIT_DIM:
            x = _logits_of_parts(
                q, q_rest, k_desc, k_rest_desc, batch, kv_head, first_key,
                BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, REST_PADDED=REST_PADDED, DOT_PRECISION=DOT_PRECISION,
            )  # fmt: skip
        else:
            x = _logits(
                q, k_desc, batch, kv_head, first_key, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, DOT_PRECISION=DOT_PRECISION
            )
        if SOFTCAP:
            x = _capped(x, logit_scale, softcap, USE_EXP2=USE_EXP2)
        elif ALIBI or BIAS:
            x = x * logit_scale
        if ALIBI:
            away = (first_key + tl.arange(0, BLOCK_N))[None, :] - place[:, None]
            x = x - slope * tl.abs(away).to(tl.float32)
        if BIAS:
            biased = (first_key + tl.arange(0, BLOCK_N))[None, :]
            bias = tl.load(bias_rows + biased, mask=rows_inside & (biased < kv_len), other=0.0).to(tl.float32)
            if USE_EXP2:
                bias = bias * 1.4426950408889634
            x = x + bias
        if MASKED:
            key = first_key + tl.arange(0, BLOCK_N)
            if IS_CAUSAL or WINDOW:
                visible = (key[None, :] <= last_key[:, None]) & (key[None, :] < kv_len)
            else:
                visible = key[None, :] < kv_len
            if WINDOW:
                visible = visible & (key[None, :] >= first_seen[:, None])
            x = tl.where(visible, x * qk_scale, float("-inf"))
            if FP8:
                m_new = tl.maximum(m, _lowered(tl.max(x, axis=1), USE_EXP2=USE_EXP2))
            else:
                m_new = tl.maximum(m, tl.max(x, axis=1))
            # A query that has seen no key keeps m = -inf: subtract 0 instead, so that p and alpha are 0 and not NaN.
            m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
            x = x - m_safe[:, None]
        else:
            # Scaling the maximum instead of x leaves one fused multiply-add an element. It takes qk_scale >= 0.
            if FP8:
                m_new = tl.maximum(m, _lowered(tl.max(x, axis=1) * qk_scale, USE_EXP2=USE_EXP2))
            else:
                m_new = tl.maximum(m, tl.max(x, axis=1) * qk_scale)
            m_safe = m_new
            x = x * qk_scale - m_safe[:, None]
        if USE_EXP2:
            p = tl.exp2(x)
            alpha = tl.exp2(m - m_safe)
        else:
            p = tl.exp(x)
            alpha = tl.exp(m - m_safe)
        l = l * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None]
        if OVERLAP_QK and SPLIT_DIM:
            ahead = _logits_of_parts(
                q, q_rest, k_desc, k_rest_desc, batch, kv_head, first_key + BLOCK_N,
                BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, REST_PADDED=REST_PADDED, DOT_PRECISION=DOT_PRECISION,
            )  # fmt: skip
        elif OVERLAP_QK:
            # The next tile's q.k is issued beside this tile's p.v. After the last tile it is of no use (beyond kv_len
            # it is of zeros).
            ahead = _logits(
                q, k_desc, batch, kv_head, first_key + BLOCK_N,
                BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, DOT_PRECISION=DOT_PRECISION,
            )  # fmt: skip
        v = v_desc.load([batch, kv_head, first_key, 0]).reshape(BLOCK_N, V_DIM_PADDED if OWN_V_DIM else HEAD_DIM)
        if FP8 and DOT_PRECISION == "bf16":
            acc = tl.dot(p.to(tl.bfloat16), v.to(tl.bfloat16), acc)
        elif FP8:
            # Tensor cores sum products of fp8 with 14 bits: those of a tile, which then join acc in fp32.
            acc = tl.dot(p.to(tl.float8e4nv), v, acc, max_num_imprecise_acc=BLOCK_N)
        else:
            acc = tl.dot(p.to(v.dtype), v, acc, input_precision=DOT_PRECISION)
        m = m_new
    return acc, l, m, ahead


@triton.jit
def _one_tile(
    work,  # which (tile of queries, batch and head)
    q_desc,
    k_desc,
    v_desc,
    out_desc,
    lse_ptr,
    lse_stride_batch,
    lse_stride_head,
    lse_stride_row,
    batch_heads,
    heads,
    group,
    tiles_m,
    q_len,
    kv_len,
    qk_scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    KV_STAGES: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    TILE_ORDER: tl.constexpr,
    OVERLAP_QK: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr,
    ALIBI: tl.constexpr,
    BIAS: tl.constexpr,
    OWN_V_DIM: tl.constexpr,
    SPLIT_DIM: tl.constexpr,
    FP8: tl.constexpr,
    window_left=None,  # where WINDOW: how many keys before its own place a query sees, and how many after it
    window_right=None,
    softcap=None,  # where SOFTCAP; then qk_scale is 2 / softcap times what it is elsewhere
    sinks_ptr=None,  # [heads], where SINKS: each head's logit without a key, which joins the sum of exponentials alone
    slopes_ptr=None,  # [heads], where ALIBI
    bias_ptr=None,  # [batch, heads, q_len, kv_len], unit stride along kv_len, where BIAS
    bias_stride_batch=None,
    bias_stride_head=None,
    bias_stride_row=None,
    V_DIM_PADDED: tl.constexpr = None,
    q_rest_desc=None,  # where SPLIT_DIM: of the same tensors, in blocks of REST_PADDED
    k_rest_desc=None,
    REST_PADDED: tl.constexpr = None,
    q_scale_ptr=None,  # [1] fp32, where FP8, as the next two: what q, k and v are multiplied by
    k_scale_ptr=None,
    v_scale_ptr=None,
):
    """Attend BLOCK_M queries of one head to all keys that they see."""
    LN2: tl.constexpr = 0.6931471805599453
    if FP8:
        qk_scale = qk_scale * (tl.load(q_scale_ptr) * tl.load(k_scale_ptr))
    if TILE_ORDER == "ascending":
        tile_m = work % tiles_m
        batch_head = work // tiles_m
    elif TILE_ORDER == "descending":
        tile_m = tiles_m - 1 - work % tiles_m
        batch_head = work // tiles_m
    else:
        # longest_first: the last tiles of all heads, which see most keys, then the last but one.
        tile_m = tiles_m - 1 - work // batch_heads
        batch_head = work % batch_heads
    batch = batch_head // heads
    head = batch_head % heads
    kv_head = head // group
    query = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)

    # Bottom-right aligned: query i sees the keys up to i + kv_len - q_len.
    diagonal = kv_len - q_len
    last_key = query + diagonal
    if ALIBI:
        place = last_key
        slope = tl.load(slopes_ptr + head).to(tl.float32)
        if USE_EXP2:
            slope = slope * 1.4426950408889634
    if BIAS:
        # Where a logit is -inf a tile may hold none that counts: all tiles are taken as those with a mask are.
        bias_rows = bias_ptr + batch.to(tl.int64) * bias_stride_batch + head.to(tl.int64) * bias_stride_head
        bias_rows = bias_rows + query.to(tl.int64)[:, None] * bias_stride_row
        rows_inside = (query < q_len)[:, None]
    if WINDOW:
        # The window moves with the query, so that tiles of keys at both its ends need a mask.
        first_seen = last_key - window_left
        last_key = last_key + window_right
        past_last = tl.minimum((tile_m + 1) * BLOCK_M, q_len) + diagonal
        begin = tl.maximum(tile_m * BLOCK_M + diagonal - window_left, 0) // BLOCK_N * BLOCK_N
        whole_from = tl.cdiv(tl.maximum(past_last - 1 - window_left, 0), BLOCK_N) * BLOCK_N
        unmasked = tl.minimum(tile_m * BLOCK_M + diagonal + window_right + 1, kv_len)
        end = tl.minimum(past_last + window_right, kv_len)
    elif IS_CAUSAL:
        unmasked = tl.minimum(tile_m * BLOCK_M + diagonal + 1, kv_len)
        end = tl.minimum(tl.minimum((tile_m + 1) * BLOCK_M, q_len) + diagonal, kv_len)
    else:
        unmasked = kv_len
        end = kv_len
    # Whole tiles of keys that every query sees; then those that some query sees, or that are cut off.
    unmasked = tl.maximum(unmasked, 0) // BLOCK_N * BLOCK_N
    if WINDOW:
        unmasked = tl.maximum(unmasked, whole_from)

    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    if SINKS:
        # As if a key with this logit and a value of 0 had been seen first.
        sink = tl.load(sinks_ptr + head).to(tl.float32)
        if USE_EXP2:
            sink = sink * 1.4426950408889634
        if FP8:
            m = tl.zeros([BLOCK_M], tl.float32) + _lowered(sink, USE_EXP2=USE_EXP2)
            l = l + 256.0
        else:
            m = tl.zeros([BLOCK_M], tl.float32) + sink
            l = l + 1.0
    acc = tl.zeros([BLOCK_M, V_DIM_PADDED if OWN_V_DIM else HEAD_DIM], tl.float32)
    q = q_desc.load([batch, head, tile_m * BLOCK_M, 0]).reshape(BLOCK_M, HEAD_DIM)
    if SPLIT_DIM:
        q_rest = q_rest_desc.load([batch, head, tile_m * BLOCK_M, HEAD_DIM]).reshape(BLOCK_M, REST_PADDED)
    if OVERLAP_QK and SPLIT_DIM:
        ahead = _logits_of_parts(
            q, q_rest, k_desc, k_rest_desc, batch, kv_head, begin if WINDOW else 0,
            BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, REST_PADDED=REST_PADDED, DOT_PRECISION=DOT_PRECISION,
        )  # fmt: skip
    elif OVERLAP_QK and WINDOW:
        ahead = _logits(
            q, k_desc, batch, kv_head, begin, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, DOT_PRECISION=DOT_PRECISION
        )
    elif OVERLAP_QK:
        ahead = _logits(q, k_desc, batch, kv_head, 0, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, DOT_PRECISION=DOT_PRECISION)
    else:
        ahead = 0.0
    if WINDOW:
        acc, l, m, ahead = _attend(
            acc, l, m, ahead, q, k_desc, v_desc, batch, kv_head, last_key, kv_len, begin,
            tl.minimum(whole_from, end), 1.0 if SOFTCAP or ALIBI or BIAS else qk_scale,
            BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, KV_STAGES=KV_STAGES, MASKED=True, IS_CAUSAL=IS_CAUSAL,
            USE_EXP2=USE_EXP2, OVERLAP_QK=OVERLAP_QK, DOT_PRECISION=DOT_PRECISION,
            WINDOW=WINDOW, first_seen=first_seen,
            SOFTCAP=SOFTCAP, logit_scale=qk_scale if SOFTCAP or ALIBI or BIAS else None, softcap=softcap,
            ALIBI=ALIBI, slope=slope if ALIBI else None, place=place if ALIBI else None,
            BIAS=BIAS, bias_rows=bias_rows if BIAS else None, rows_inside=rows_inside if BIAS else None,
            OWN_V_DIM=OWN_V_DIM, V_DIM_PADDED=V_DIM_PADDED, SPLIT_DIM=SPLIT_DIM,
            q_rest=q_rest if SPLIT_DIM else None, k_rest_desc=k_rest_desc, REST_PADDED=REST_PADDED, FP8=FP8,
        )  # fmt: skip
    acc, l, m, ahead = _attend(
        acc, l, m, ahead, q, k_desc, v_desc, batch, kv_head, last_key, kv_len, (
            whole_from if WINDOW else 0
        ), unmasked, (
            1.0 if SOFTCAP or ALIBI or BIAS else qk_scale
        ),
        BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, KV_STAGES=KV_STAGES, MASKED=BIAS, IS_CAUSAL=IS_CAUSAL,
        USE_EXP2=USE_EXP2, OVERLAP_QK=OVERLAP_QK, DOT_PRECISION=DOT_PRECISION,
        WINDOW=WINDOW, first_seen=first_seen if WINDOW else None,
        SOFTCAP=SOFTCAP, logit_scale=qk_scale if SOFTCAP or ALIBI or BIAS else None, softcap=softcap,
        ALIBI=ALIBI, slope=slope if ALIBI else None, place=place if ALIBI else None,
        BIAS=BIAS, bias_rows=bias_rows if BIAS else None, rows_inside=rows_inside if BIAS else None,
        OWN_V_DIM=OWN_V_DIM, V_DIM_PADDED=V_DIM_PADDED, SPLIT_DIM=SPLIT_DIM,
        q_rest=q_rest if SPLIT_DIM else None, k_rest_desc=k_rest_desc, REST_PADDED=REST_PADDED, FP8=FP8,
    )  # fmt: skip
    acc, l, m, ahead = _attend(
        acc, l, m, ahead, q, k_desc, v_desc, batch, kv_head, last_key, kv_len, unmasked, end, (
            1.0 if SOFTCAP or ALIBI or BIAS else qk_scale
        ),
        BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, KV_STAGES=KV_STAGES, MASKED=True, IS_CAUSAL=IS_CAUSAL,
        USE_EXP2=USE_EXP2, OVERLAP_QK=OVERLAP_QK, DOT_PRECISION=DOT_PRECISION,
        WINDOW=WINDOW, first_seen=first_seen if WINDOW else None,
        SOFTCAP=SOFTCAP, logit_scale=qk_scale if SOFTCAP or ALIBI or BIAS else None, softcap=softcap,
        ALIBI=ALIBI, slope=slope if ALIBI else None, place=place if ALIBI else None,
        BIAS=BIAS, bias_rows=bias_rows if BIAS else None, rows_inside=rows_inside if BIAS else None,
        OWN_V_DIM=OWN_V_DIM, V_DIM_PADDED=V_DIM_PADDED, SPLIT_DIM=SPLIT_DIM,
        q_rest=q_rest if SPLIT_DIM else None, k_rest_desc=k_rest_desc, REST_PADDED=REST_PADDED, FP8=FP8,
    )  # fmt: skip

    # Only a query without any visible key has l = 0: its output is 0 and its log-sum-exp -inf.
    l_safe = tl.where(l == 0.0, 1.0, l)
    if FP8:
        out = (acc / l_safe[:, None] * tl.load(v_scale_ptr)).to(tl.bfloat16)
        out = out.reshape(1, 1, BLOCK_M, V_DIM_PADDED if OWN_V_DIM else HEAD_DIM)
    else:
        out = (acc / l_safe[:, None]).to(q.dtype).reshape(1, 1, BLOCK_M, V_DIM_PADDED if OWN_V_DIM else HEAD_DIM)
    if USE_EXP2:
        lse = (m + tl.log2(l_safe)) * LN2
    else:
        lse = m + tl.log(l_safe)
    out_desc.store([batch, head, tile_m * BLOCK_M, 0], out)
    lse_head = lse_ptr + batch.to(tl.int64) * lse_stride_batch + head.to(tl.int64) * lse_stride_head
    tl.store(lse_head + query.to(tl.int64) * lse_stride_row, lse, mask=query < q_len)


@triton.jit(do_not_specialize=["batch_heads", "heads", "group", "tiles_m", "q_len", "kv_len"])
def attention_fwd_kernel(
    q_desc,  # [batch, heads, q_len, HEAD_DIM] in blocks of [1, 1, BLOCK_M, HEAD_DIM]
    k_desc,  # [batch, heads / group, kv_len, HEAD_DIM] in blocks of [1, 1, BLOCK_N, HEAD_DIM]
    v_desc,  # [batch, heads / group, kv_len, HEAD_DIM] in blocks of [1, 1, BLOCK_N, HEAD_DIM]
    out_desc,  # [batch, heads, q_len, HEAD_DIM] in blocks of [1, 1, BLOCK_M, HEAD_DIM]
    lse_ptr,  # [batch, heads, q_len] fp32, natural logarithm of the sum of exponentials
    lse_stride_batch,
    lse_stride_head,
    lse_stride_row,
    batch_heads,
    heads,
    group,  # query heads for each key/value head
    tiles_m,  # tiles of queries in a head
    q_len,
    kv_len,
    qk_scale,  # at least 0; times log2(e) where USE_EXP2
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    KV_STAGES: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    TILE_ORDER: tl.constexpr,
    PERSISTENT: tl.constexpr,
    OVERLAP_QK: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr,
    ALIBI: tl.constexpr,
    BIAS: tl.constexpr,
    OWN_V_DIM: tl.constexpr,
    SPLIT_DIM: tl.constexpr,
    FP8: tl.constexpr,
    window_left=None,
    window_right=None,
    softcap=None,
    sinks_ptr=None,
    slopes_ptr=None,
    bias_ptr=None,
    bias_stride_batch=None,
    bias_stride_head=None,
    bias_stride_row=None,
    V_DIM_PADDED: tl.constexpr = None,  # where OWN_V_DIM: of v and out, in the place of HEAD_DIM
    q_rest_desc=None,  # where SPLIT_DIM: of the tensors of q_desc and k_desc, from HEAD_DIM on in blocks of REST_PADDED
    k_rest_desc=None,
    REST_PADDED: tl.constexpr = None,
    q_scale_ptr=None,
    k_scale_ptr=None,
    v_scale_ptr=None,
):
    """One program attends BLOCK_M queries of one head, or of several one after the other (where PERSISTENT)."""
    if PERSISTENT:
        for work in tl.range(tl.program_id(0), tiles_m * batch_heads, tl.num_programs(0)):
            _one_tile(
                work, q_desc, k_desc, v_desc, out_desc, lse_ptr, lse_stride_batch, lse_stride_head, lse_stride_row,
                batch_heads, heads, group, tiles_m, q_len, kv_len, qk_scale, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
                HEAD_DIM=HEAD_DIM, KV_STAGES=KV_STAGES, IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2, TILE_ORDER=TILE_ORDER,
                OVERLAP_QK=OVERLAP_QK, DOT_PRECISION=DOT_PRECISION,
                WINDOW=WINDOW, window_left=window_left, window_right=window_right, SOFTCAP=SOFTCAP, softcap=softcap,
            SINKS=SINKS, sinks_ptr=sinks_ptr, ALIBI=ALIBI, slopes_ptr=slopes_ptr, BIAS=BIAS, bias_ptr=bias_ptr,
            bias_stride_batch=bias_stride_batch, bias_stride_head=bias_stride_head, bias_stride_row=bias_stride_row,
            OWN_V_DIM=OWN_V_DIM, V_DIM_PADDED=V_DIM_PADDED, SPLIT_DIM=SPLIT_DIM, q_rest_desc=q_rest_desc,
            k_rest_desc=k_rest_desc, REST_PADDED=REST_PADDED,
            FP8=FP8, q_scale_ptr=q_scale_ptr, k_scale_ptr=k_scale_ptr, v_scale_ptr=v_scale_ptr,
            )  # fmt: skip
    else:
        _one_tile(
            tl.program_id(0), q_desc, k_desc, v_desc, out_desc, lse_ptr, lse_stride_batch, lse_stride_head,
            lse_stride_row, batch_heads, heads, group, tiles_m, q_len, kv_len, qk_scale, BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, KV_STAGES=KV_STAGES, IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2,
            TILE_ORDER=TILE_ORDER, OVERLAP_QK=OVERLAP_QK, DOT_PRECISION=DOT_PRECISION,
            WINDOW=WINDOW, window_left=window_left, window_right=window_right, SOFTCAP=SOFTCAP, softcap=softcap,
            SINKS=SINKS, sinks_ptr=sinks_ptr, ALIBI=ALIBI, slopes_ptr=slopes_ptr, BIAS=BIAS, bias_ptr=bias_ptr,
            bias_stride_batch=bias_stride_batch, bias_stride_head=bias_stride_head, bias_stride_row=bias_stride_row,
            OWN_V_DIM=OWN_V_DIM, V_DIM_PADDED=V_DIM_PADDED, SPLIT_DIM=SPLIT_DIM, q_rest_desc=q_rest_desc,
            k_rest_desc=k_rest_desc, REST_PADDED=REST_PADDED,
            FP8=FP8, q_scale_ptr=q_scale_ptr, k_scale_ptr=k_scale_ptr, v_scale_ptr=v_scale_ptr,
        )  # fmt: skip


def _reach(window, kv_len):
    """How many keys a window has to one side, as the kernel takes it: more than there are where it has no end (-1)."""
    most = 2**30
    if kv_len > most:
        raise ValueError(f"a window is taken over at most {most} keys, but got {kv_len}")
    return most if window < 0 else min(window, most)


def launch(
    q,
    k,
    v,
    out,
    lse,
    window_left=None,  # where WINDOW: how many keys before its own place a query sees; -1: all
    window_right=None,  # where WINDOW: how many after it
    softcap=None,  # where SOFTCAP: the logits are softcap tanh(scale q.k / softcap)
    sinks=None,  # [heads], contiguous, where SINKS: a logit that joins the sum of exponentials, and the log-sum-exp
    slopes=None,  # [heads], contiguous, where ALIBI: a logit loses slope times the distance of its key from the place
    bias=None,  # [batch or 1, heads or 1, q_len, kv_len], unit stride along kv_len, where BIAS: added to the logits
    q_scale=None,  # [1] fp32, positive, where FP8, as the next two: q, k and v are multiplied by their scales
    k_scale=None,
    v_scale=None,
    *,
    scale,
    IS_CAUSAL,
    USE_EXP2,
    TILE_ORDER,
    PERSISTENT,
    OVERLAP_QK,
    DOT_PRECISION,
    WINDOW,
    SOFTCAP,
    SINKS,
    ALIBI,
    BIAS,
    OWN_V_DIM,
    SPLIT_DIM,
    FP8,
    BLOCK_M,
    BLOCK_N,
    KV_STAGES,
    NUM_PROGRAMS,
    num_warps,
):
    """Write softmax(scale q.k) v into ``out`` and the log-sum-exp into ``lse``.

    q, out [batch, heads, q_len, head_dim]; k, v [batch, kv_heads, kv_len, head_dim]; lse [batch, heads, q_len] fp32.
    head_dim is a power of two with unit stride; q, k, v and out start, and their other strides are, at multiples of 16
    bytes. ``scale`` is at least 0. ``NUM_PROGRAMS`` matters where PERSISTENT.
    """
    LOG2E = 1.4426950408889634
    if SOFTCAP:
        scale = 2.0 * scale / softcap  # tanh(y) is taken from exp(2 y)
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    tiles_m = triton.cdiv(q_len, BLOCK_M)
    tiles = tiles_m * batch * heads
    if SPLIT_DIM:
        # The largest power of two below head_dim, and what remains: less of a tile is padding.
        whole = triton.next_power_of_2(head_dim) // 2
        rest = max(16, triton.next_power_of_2(head_dim - whole))
        head_dim = whole
    elif OWN_V_DIM:
        head_dim = triton.next_power_of_2(head_dim)  # beyond its own a tile reads zeros, and writes nothing
    if OWN_V_DIM:
        v_dim = triton.next_power_of_2(v.shape[3])

        def of_dim(x, block, dim):
            return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, block, dim])

    def rows(x, block):
        return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, block, head_dim])

    attention_fwd_kernel[(min(tiles, NUM_PROGRAMS) if PERSISTENT else tiles,)](
        rows(q, BLOCK_M),
        rows(k, BLOCK_N),
        of_dim(v, BLOCK_N, v_dim) if OWN_V_DIM else rows(v, BLOCK_N),
        of_dim(out, BLOCK_M, v_dim) if OWN_V_DIM else rows(out, BLOCK_M),
        lse,
        lse.stride(0),
        lse.stride(1),
        lse.stride(2),
        batch * heads,
        heads,
        heads // kv_heads,
        tiles_m,
        q_len,
        kv_len,
        scale * LOG2E if USE_EXP2 else scale,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        HEAD_DIM=head_dim,
        KV_STAGES=KV_STAGES,
        IS_CAUSAL=IS_CAUSAL,
        USE_EXP2=USE_EXP2,
        TILE_ORDER=TILE_ORDER,
        PERSISTENT=PERSISTENT,
        OVERLAP_QK=OVERLAP_QK,
        DOT_PRECISION=DOT_PRECISION,
        WINDOW=WINDOW,
        SOFTCAP=SOFTCAP,
        SINKS=SINKS,
        sinks_ptr=sinks if SINKS else None,
        ALIBI=ALIBI,
        slopes_ptr=slopes if ALIBI else None,
        OWN_V_DIM=OWN_V_DIM,
        V_DIM_PADDED=v_dim if OWN_V_DIM else None,
        SPLIT_DIM=SPLIT_DIM,
        q_rest_desc=of_dim(q, BLOCK_M, rest) if SPLIT_DIM else None,
        k_rest_desc=of_dim(k, BLOCK_N, rest) if SPLIT_DIM else None,
        REST_PADDED=rest if SPLIT_DIM else None,
        BIAS=BIAS,
        bias_ptr=bias if BIAS else None,
        bias_stride_batch=(bias.stride(0) if bias.shape[0] == batch else 0) if BIAS else None,
        bias_stride_head=(bias.stride(1) if bias.shape[1] == heads else 0) if BIAS else None,
        bias_stride_row=bias.stride(2) if BIAS else None,
        softcap=(softcap * LOG2E if USE_EXP2 else softcap) if SOFTCAP else None,
        window_left=_reach(window_left, kv_len) if WINDOW else None,
        window_right=(0 if IS_CAUSAL else _reach(window_right, kv_len)) if WINDOW else None,
        FP8=FP8,
        q_scale_ptr=q_scale if FP8 else None,
        k_scale_ptr=k_scale if FP8 else None,
        v_scale_ptr=v_scale if FP8 else None,
        num_warps=num_warps,
        num_stages=KV_STAGES,
    )
