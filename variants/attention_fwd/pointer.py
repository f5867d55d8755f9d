"""Attention forward with ordinary masked loads: every GPU that Triton compiles for, any head_dim, any strides.

One program owns BLOCK_M queries of one head and keeps for each of them the running maximum m, the running sum l and the
unnormalised output acc. For each tile of BLOCK_N keys, with x = q.k scaled:
m_new = max(m, max(x)); alpha = exp(m - m_new); p = exp(x - m_new); l = l*alpha + sum(p); acc = acc*alpha + p.v.
Tiles of keys that every query of the block sees take no mask and run in a loop of their own.
"""

import triton
import triton.language as tl


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
def _kept(seed, cutoff, batch, head, query, first_key, BLOCK_N: tl.constexpr):
    """Which weights of a tile stay [BLOCK_M, BLOCK_N]: those whose 16 bits are at least ``cutoff``.

    Of Philox4x32-10 with the key ``seed`` and the counter (key // 8, query, head, batch), the low half of word
    (key % 8) // 2 for an even key and the high one for an odd key: the same in tiles of any size.
    """
    group = first_key // 8 + tl.arange(0, BLOCK_N // 8)
    a, b, c, d = tl.philox(seed, group[None, :], query[:, None], head, batch)
    low = tl.join(tl.join(a & 0xFFFF, c & 0xFFFF), tl.join(b & 0xFFFF, d & 0xFFFF))
    high = tl.join(tl.join(a >> 16, c >> 16), tl.join(b >> 16, d >> 16))
    return tl.join(low, high).reshape(query.shape[0], BLOCK_N) >= cutoff


@triton.jit
def _attend(
    acc,  # [BLOCK_M, HEAD_DIM_PADDED] fp32, unnormalised output
    l,  # [BLOCK_M] fp32, running sum
    m,  # [BLOCK_M] fp32, running maximum
    q,  # [BLOCK_M, HEAD_DIM_PADDED]
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
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    ALIBI: tl.constexpr,
    BIAS: tl.constexpr,
    OWN_V_DIM: tl.constexpr,
    SPLIT_DIM: tl.constexpr,
    FP8: tl.constexpr,
    DROPOUT: tl.constexpr,
    first_seen=None,  # [BLOCK_M], the first key that each query sees, where WINDOW
    logit_scale=None,  # where the logits are more than scaled, and qk_scale is 1
    softcap=None,  # where SOFTCAP
    slope=None,  # where ALIBI: what a logit loses for each key between it and the query's own place
    place=None,  # [BLOCK_M], the key at each query's own place, where ALIBI
    bias_rows=None,  # [BLOCK_M, 1], where each query's bias starts, where BIAS
    rows_inside=None,  # [BLOCK_M, 1], which of them there are
    V_DIM: tl.constexpr = None,  # where OWN_V_DIM: elements of a value, and of a row of acc
    V_DIM_PADDED: tl.constexpr = None,
    q_rest=None,  # [BLOCK_M, REST_PADDED], where SPLIT_DIM: what q has from HEAD_DIM_PADDED on
    REST_PADDED: tl.constexpr = None,
    seed=None,  # where DROPOUT, as the next ones: what decides which weights stay
    cutoff=None,
    batch=None,
    head=None,
    query=None,  # [BLOCK_M]
):
    """Take the keys from ``start`` to ``end`` into acc, l and m."""
    dim = tl.arange(0, HEAD_DIM_PADDED)[None, :]
    if OWN_V_DIM:
        v_dim = tl.arange(0, V_DIM_PADDED)[None, :]
    if SPLIT_DIM:
        rest = HEAD_DIM_PADDED + tl.arange(0, REST_PADDED)[None, :]
    for first_key in tl.range(start, end, BLOCK_N):
        key = first_key + tl.arange(0, BLOCK_N)
        k_tile = k_ptr + key.to(tl.int64)[:, None] * k_stride_row + dim
        v_tile = v_ptr + key.to(tl.int64)[:, None] * v_stride_row + (v_dim if OWN_V_DIM else dim)
        if MASKED:
            inside = (key < kv_len)[:, None] & (dim < HEAD_DIM)
            k = tl.load(k_tile, mask=inside, other=0.0)
        elif HEAD_DIM == HEAD_DIM_PADDED or SPLIT_DIM:
            k = tl.load(k_tile)
        else:
            k = tl.load(k_tile, mask=dim < HEAD_DIM, other=0.0)
        x = tl.dot(q, tl.trans(k), input_precision="ieee" if DOT_PRECISION == "bf16" else DOT_PRECISION)
        if SPLIT_DIM:
            rest_tile = k_ptr + key.to(tl.int64)[:, None] * k_stride_row + rest
            if MASKED:
                k_rest = tl.load(rest_tile, mask=(key < kv_len)[:, None] & (rest < HEAD_DIM), other=0.0)
            elif HEAD_DIM == HEAD_DIM_PADDED + REST_PADDED:
                k_rest = tl.load(rest_tile)
            else:
                k_rest = tl.load(rest_tile, mask=rest < HEAD_DIM, other=0.0)
            x = tl.dot(q_rest, tl.trans(k_rest), x, input_precision=DOT_PRECISION)
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
        if DROPOUT:
            # After the row's sum, which is of all weights; those that stay are scaled in the end.
            p = tl.where(_kept(seed, cutoff, batch, head, query, first_key, BLOCK_N=BLOCK_N), p, 0.0)
        acc = acc * alpha[:, None]
        if OWN_V_DIM:
            if MASKED:
                v = tl.load(v_tile, mask=(key < kv_len)[:, None] & (v_dim < V_DIM), other=0.0)
            elif V_DIM == V_DIM_PADDED:
                v = tl.load(v_tile)
            else:
                v = tl.load(v_tile, mask=v_dim < V_DIM, other=0.0)
        elif MASKED:
            v = tl.load(v_tile, mask=inside, other=0.0)
        elif HEAD_DIM == HEAD_DIM_PADDED:
            v = tl.load(v_tile)
        else:
            v = tl.load(v_tile, mask=dim < HEAD_DIM, other=0.0)
        if FP8 and DOT_PRECISION == "bf16":
            acc = tl.dot(p.to(tl.bfloat16), v.to(tl.bfloat16), acc)
        elif FP8:
            # Tensor cores sum products of fp8 with 14 bits: those of a tile, which then join acc in fp32.
            acc = tl.dot(p.to(tl.float8e4nv), v, acc, max_num_imprecise_acc=BLOCK_N)
        else:
            acc = tl.dot(p.to(v.dtype), v, acc, input_precision=DOT_PRECISION)
        m = m_new
    return acc, l, m


@triton.jit(do_not_specialize=["batch_heads", "heads", "group", "tiles_m", "q_len", "kv_len"])
def attention_fwd_kernel(
    q_ptr,  # [batch, heads, q_len, HEAD_DIM], unit stride along HEAD_DIM, as the next three
    k_ptr,  # [batch, heads / group, kv_len, HEAD_DIM]
    v_ptr,  # [batch, heads / group, kv_len, HEAD_DIM]
    out_ptr,  # [batch, heads, q_len, HEAD_DIM]
    lse_ptr,  # [batch, heads, q_len] fp32, natural logarithm of the sum of exponentials
    q_stride_batch,
    q_stride_head,
    q_stride_row,
    k_stride_batch,
    k_stride_head,
    k_stride_row,
    v_stride_batch,
    v_stride_head,
    v_stride_row,
    out_stride_batch,
    out_stride_head,
    out_stride_row,
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
    HEAD_DIM_PADDED: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    TILE_ORDER: tl.constexpr,
    DOT_PRECISION: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr,
    ALIBI: tl.constexpr,
    BIAS: tl.constexpr,
    OWN_V_DIM: tl.constexpr,
    SPLIT_DIM: tl.constexpr,
    FP8: tl.constexpr,
    DROPOUT: tl.constexpr,
    window_left=None,  # where WINDOW: how many keys before its own place a query sees, and how many after it
    window_right=None,
    softcap=None,  # where SOFTCAP; then qk_scale is 2 / softcap times what it is elsewhere
    sinks_ptr=None,  # [heads], where SINKS: each head's logit without a key, which joins the sum of exponentials alone
    slopes_ptr=None,  # [heads], where ALIBI
    bias_ptr=None,  # [batch, heads, q_len, kv_len], unit stride along kv_len, where BIAS
    bias_stride_batch=None,
    bias_stride_head=None,
    bias_stride_row=None,
    dropout_seed_ptr=None,  # [1] int64, where DROPOUT
    dropout_cutoff=None,  # of 2^16, how many numbers take a weight away
    dropout_scale=None,  # of those that stay
    V_DIM: tl.constexpr = None,  # where OWN_V_DIM: elements of a value and of an output, which have HEAD_DIM elsewhere
    V_DIM_PADDED: tl.constexpr = None,
    REST_PADDED: tl.constexpr = None,  # where SPLIT_DIM: q and k are taken in parts of HEAD_DIM_PADDED and so many
    q_scale_ptr=None,  # [1] fp32, where FP8, as the next two: what q, k and v are multiplied by
    k_scale_ptr=None,
    v_scale_ptr=None,
):
    """One program attends BLOCK_M queries of one head to all keys that they see."""
    LN2: tl.constexpr = 0.6931471805599453
    if FP8:
        qk_scale = qk_scale * (tl.load(q_scale_ptr) * tl.load(k_scale_ptr))
    work = tl.program_id(0)
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
    batch = (batch_head // heads).to(tl.int64)
    head = batch_head % heads
    kv_head = (head // group).to(tl.int64)
    head = head.to(tl.int64)
    q_head = q_ptr + batch * q_stride_batch + head * q_stride_head
    k_head = k_ptr + batch * k_stride_batch + kv_head * k_stride_head
    v_head = v_ptr + batch * v_stride_batch + kv_head * v_stride_head
    out_head = out_ptr + batch * out_stride_batch + head * out_stride_head
    lse_head = lse_ptr + batch * lse_stride_batch + head * lse_stride_head

    query = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    row = query.to(tl.int64)
    dim = tl.arange(0, HEAD_DIM_PADDED)[None, :]
    inside = (query < q_len)[:, None] & (dim < HEAD_DIM)
    q = tl.load(q_head + row[:, None] * q_stride_row + dim, mask=inside, other=0.0)
    if SPLIT_DIM:
        rest = HEAD_DIM_PADDED + tl.arange(0, REST_PADDED)[None, :]
        inside_rest = (query < q_len)[:, None] & (rest < HEAD_DIM)
        q_rest = tl.load(q_head + row[:, None] * q_stride_row + rest, mask=inside_rest, other=0.0)

    # Bottom-right aligned: query i sees the keys up to i + kv_len - q_len.
    diagonal = kv_len - q_len
    if DROPOUT:
        seed = tl.load(dropout_seed_ptr)
        # It comes as a number of fp32, on which nothing is specialised.
        cutoff = (tl.zeros([1, 1], tl.float32) + dropout_cutoff).to(tl.uint32)
        dropout_batch, dropout_head = batch.to(tl.int32), head.to(tl.int32)
    last_key = query + diagonal
    if ALIBI:
        place = last_key
        slope = tl.load(slopes_ptr + head).to(tl.float32)
        if USE_EXP2:
            slope = slope * 1.4426950408889634
    if BIAS:
        # Where a logit is -inf a tile may hold none that counts: all tiles are taken as those with a mask are.
        bias_rows = bias_ptr + batch * bias_stride_batch + head * bias_stride_head
        bias_rows = bias_rows + row[:, None] * bias_stride_row
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
    acc = tl.zeros([BLOCK_M, V_DIM_PADDED if OWN_V_DIM else HEAD_DIM_PADDED], tl.float32)
    if WINDOW:
        acc, l, m = _attend(
            acc, l, m, q, k_head, v_head, k_stride_row, v_stride_row, last_key, kv_len, begin,
            tl.minimum(whole_from, end), 1.0 if SOFTCAP or ALIBI or BIAS else qk_scale,
            BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, MASKED=True, IS_CAUSAL=IS_CAUSAL,
            USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION, WINDOW=WINDOW, first_seen=first_seen,
            SOFTCAP=SOFTCAP, logit_scale=qk_scale if SOFTCAP or ALIBI or BIAS else None, softcap=softcap,
            ALIBI=ALIBI, slope=slope if ALIBI else None, place=place if ALIBI else None,
            BIAS=BIAS, bias_rows=bias_rows if BIAS else None, rows_inside=rows_inside if BIAS else None,
            OWN_V_DIM=OWN_V_DIM, V_DIM=V_DIM, V_DIM_PADDED=V_DIM_PADDED,
            DROPOUT=DROPOUT, seed=seed if DROPOUT else None, cutoff=cutoff if DROPOUT else None,
            batch=dropout_batch if DROPOUT else None, head=dropout_head if DROPOUT else None,
            query=query if DROPOUT else None,
            SPLIT_DIM=SPLIT_DIM, q_rest=q_rest if SPLIT_DIM else None, REST_PADDED=REST_PADDED, FP8=FP8,
        )  # fmt: skip
    acc, l, m = _attend(
        acc, l, m, q, k_head, v_head, k_stride_row, v_stride_row, last_key, kv_len, (
            whole_from if WINDOW else 0
        ), unmasked, (
            1.0 if SOFTCAP or ALIBI or BIAS else qk_scale
        ),
        BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, MASKED=BIAS, IS_CAUSAL=IS_CAUSAL,
        USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION,
        WINDOW=WINDOW, first_seen=first_seen if WINDOW else None,
        SOFTCAP=SOFTCAP, logit_scale=qk_scale if SOFTCAP or ALIBI or BIAS else None, softcap=softcap,
        ALIBI=ALIBI, slope=slope if ALIBI else None, place=place if ALIBI else None,
        BIAS=BIAS, bias_rows=bias_rows if BIAS else None, rows_inside=rows_inside if BIAS else None,
        OWN_V_DIM=OWN_V_DIM, V_DIM=V_DIM, V_DIM_PADDED=V_DIM_PADDED,
        DROPOUT=DROPOUT, seed=seed if DROPOUT else None, cutoff=cutoff if DROPOUT else None,
        batch=dropout_batch if DROPOUT else None, head=dropout_head if DROPOUT else None,
        query=query if DROPOUT else None,
        SPLIT_DIM=SPLIT_DIM, q_rest=q_rest if SPLIT_DIM else None, REST_PADDED=REST_PADDED, FP8=FP8,
    )  # fmt: skip
    acc, l, m = _attend(
        acc, l, m, q, k_head, v_head, k_stride_row, v_stride_row, last_key, kv_len, unmasked, end, (
            1.0 if SOFTCAP or ALIBI or BIAS else qk_scale
        ),
        BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, HEAD_DIM_PADDED=HEAD_DIM_PADDED, MASKED=True, IS_CAUSAL=IS_CAUSAL,
        USE_EXP2=USE_EXP2, DOT_PRECISION=DOT_PRECISION,
        WINDOW=WINDOW, first_seen=first_seen if WINDOW else None,
        SOFTCAP=SOFTCAP, logit_scale=qk_scale if SOFTCAP or ALIBI or BIAS else None, softcap=softcap,
        ALIBI=ALIBI, slope=slope if ALIBI else None, place=place if ALIBI else None,
        BIAS=BIAS, bias_rows=bias_rows if BIAS else None, rows_inside=rows_inside if BIAS else None,
        OWN_V_DIM=OWN_V_DIM, V_DIM=V_DIM, V_DIM_PADDED=V_DIM_PADDED,
        DROPOUT=DROPOUT, seed=seed if DROPOUT else None, cutoff=cutoff if DROPOUT else None,
        batch=dropout_batch if DROPOUT else None, head=dropout_head if DROPOUT else None,
        query=query if DROPOUT else None,
        SPLIT_DIM=SPLIT_DIM, q_rest=q_rest if SPLIT_DIM else None, REST_PADDED=REST_PADDED, FP8=FP8,
    )  # fmt: skip

    # Only a query without any visible key has l = 0: its output is 0 and its log-sum-exp -inf.
    l_safe = tl.where(l == 0.0, 1.0, l)
    if DROPOUT:
        acc = acc * dropout_scale
    if FP8:
        out = (acc / l_safe[:, None] * tl.load(v_scale_ptr)).to(out_ptr.dtype.element_ty)
    else:
        out = (acc / l_safe[:, None]).to(out_ptr.dtype.element_ty)
    if USE_EXP2:
        lse = (m + tl.log2(l_safe)) * LN2
    else:
        lse = m + tl.log(l_safe)
    if OWN_V_DIM:
        dim = tl.arange(0, V_DIM_PADDED)[None, :]
        inside = (query < q_len)[:, None] & (dim < V_DIM)
    tl.store(out_head + row[:, None] * out_stride_row + dim, out, mask=inside)
    tl.store(lse_head + row * lse_stride_row, lse, mask=query < q_len)


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
    dropout_p=None,  # where DROPOUT: the chance of each weight to go, from 0 to below 1
    dropout_seed=None,  # [1] int64: which ones do, with their batch, head, query and key alone (see _kept)
    q_scale=None,  # [1] fp32, positive, where FP8, as the next two: q, k and v are multiplied by their scales
    k_scale=None,
    v_scale=None,
    *,
    scale,
    IS_CAUSAL,
    USE_EXP2,
    TILE_ORDER,
    DOT_PRECISION,
    WINDOW,
    SOFTCAP,
    SINKS,
    ALIBI,
    BIAS,
    OWN_V_DIM,
    SPLIT_DIM,
    DROPOUT,
    FP8,
    BLOCK_M,
    BLOCK_N,
    num_warps,
    num_stages,
):
    """Write softmax(scale q.k) v into ``out`` and the log-sum-exp into ``lse``.

    q, out [batch, heads, q_len, head_dim]; k, v [batch, kv_heads, kv_len, head_dim]; lse [batch, heads, q_len] fp32.
    Any strides, but 1 along head_dim. ``scale`` is at least 0.
    """
    LOG2E = 1.4426950408889634
    if SOFTCAP:
        scale = 2.0 * scale / softcap  # tanh(y) is taken from exp(2 y)
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    if SPLIT_DIM:
        # The largest power of two below head_dim, and what remains: less of a tile is padding.
        whole = triton.next_power_of_2(head_dim) // 2
    if DROPOUT and not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p must be at least 0 and below 1, but got {dropout_p}")
    tiles_m = triton.cdiv(q_len, BLOCK_M)
    attention_fwd_kernel[(tiles_m * batch * heads,)](
        q,
        k,
        v,
        out,
        lse,
        q.stride(0),
        q.stride(1),
        q.stride(2),
        k.stride(0),
        k.stride(1),
        k.stride(2),
        v.stride(0),
        v.stride(1),
        v.stride(2),
        out.stride(0),
        out.stride(1),
        out.stride(2),
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
        HEAD_DIM_PADDED=whole if SPLIT_DIM else triton.next_power_of_2(head_dim),
        IS_CAUSAL=IS_CAUSAL,
        USE_EXP2=USE_EXP2,
        TILE_ORDER=TILE_ORDER,
        DOT_PRECISION=DOT_PRECISION,
        WINDOW=WINDOW,
        SOFTCAP=SOFTCAP,
        SINKS=SINKS,
        sinks_ptr=sinks if SINKS else None,
        ALIBI=ALIBI,
        slopes_ptr=slopes if ALIBI else None,
        OWN_V_DIM=OWN_V_DIM,
        V_DIM=v.shape[3] if OWN_V_DIM else None,
        V_DIM_PADDED=triton.next_power_of_2(v.shape[3]) if OWN_V_DIM else None,
        SPLIT_DIM=SPLIT_DIM,
        REST_PADDED=max(16, triton.next_power_of_2(head_dim - whole)) if SPLIT_DIM else None,
        DROPOUT=DROPOUT,
        dropout_seed_ptr=dropout_seed if DROPOUT else None,
        dropout_cutoff=float(round(dropout_p * 65536)) if DROPOUT else None,
        dropout_scale=1.0 / (1.0 - dropout_p) if DROPOUT else None,
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
        num_stages=num_stages,
    )
