"""Attention of a few new tokens over a cache of keys and values, one program for all keys of a sequence.

For batches that fill the GPU; ``split`` is for smaller ones. One program owns the query heads of one key/value head
(their q_len queries each are the rows of one tile) and keeps for each row the running maximum m, the running sum l and
the unnormalised output acc. For each tile of BLOCK_N keys, with x = q.k scaled: m_new = max(m, max(x));
alpha = exp(m - m_new); p = exp(x - m_new); l = l*alpha + sum(p); acc = acc*alpha + p.v.

Keys and values beyond a sequence's length are never loaded.
"""

import triton
import triton.language as tl


@triton.jit
def _find(
    table_ptr,  # [pages of this sequence] int32, where PAGE_SIZE > 0
    sequence,  # which sequence, where PAGE_SIZE is 0
    first_key,
    seq_len,
    BLOCK_N: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
):
    """Which block of the cache the keys from ``first_key`` lie in (one, or [BLOCK_N]), and where [BLOCK_N]; int64."""
    key = first_key + tl.arange(0, BLOCK_N)
    if PAGE_SIZE > 0:
        if PAGE_SIZE % BLOCK_N == 0:
            # The tile lies in one page.
            block = tl.load(table_ptr + first_key // PAGE_SIZE).to(tl.int64)
        else:
            block = tl.load(table_ptr + key // PAGE_SIZE, mask=key < seq_len, other=0).to(tl.int64)
        token = (key % PAGE_SIZE).to(tl.int64)
    else:
        block = sequence
        token = key.to(tl.int64)
    return block, token


@triton.jit
def _attend(
    acc,  # [BLOCK_M, HEAD_DIM_PADDED] fp32, unnormalised output; turned round where KEYS_FIRST
    l,  # [BLOCK_M] fp32, running sum
    m,  # [BLOCK_M] fp32, running maximum
    q,  # [BLOCK_M, HEAD_DIM_PADDED]
    k_ptr,  # keys of this head
    v_ptr,  # values of this head
    table_ptr,
    sequence,
    k_stride_block,
    k_stride_row,
    v_stride_block,
    v_stride_row,
    last_key,  # [BLOCK_M], the last key that each row sees
    seq_len,
    start,  # a multiple of BLOCK_N
    end,
    qk_scale,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    MASKED: tl.constexpr,
    KEYS_FIRST: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """Take the keys from ``start`` to ``end`` into acc, l and m."""
    KEYS: tl.constexpr = 0 if KEYS_FIRST else 1
    ROWS: tl.constexpr = 1 if KEYS_FIRST else 0
    dim = tl.arange(0, HEAD_DIM_PADDED)[None, :]
    for first_key in tl.range(start, end, BLOCK_N):
        key = first_key + tl.arange(0, BLOCK_N)
        block, token = _find(table_ptr, sequence, first_key, seq_len, BLOCK_N=BLOCK_N, PAGE_SIZE=PAGE_SIZE)
        k_tile = k_ptr + (block * k_stride_block + token * k_stride_row)[:, None] + dim
        v_tile = v_ptr + (block * v_stride_block + token * v_stride_row)[:, None] + dim
        if MASKED:
            inside = (key < seq_len)[:, None] & (dim < HEAD_DIM)
            k = tl.load(k_tile, mask=inside, other=0.0)
            v = tl.load(v_tile, mask=inside, other=0.0)
        elif HEAD_DIM == HEAD_DIM_PADDED:
            k = tl.load(k_tile)
            v = tl.load(v_tile)
        else:
            k = tl.load(k_tile, mask=dim < HEAD_DIM, other=0.0)
            v = tl.load(v_tile, mask=dim < HEAD_DIM, other=0.0)
        if KEYS_FIRST:
            x = tl.dot(k, tl.trans(q), input_precision="ieee")
        else:
            x = tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASKED:
            visible = tl.expand_dims(key, ROWS) <= tl.expand_dims(last_key, KEYS)
            x = tl.where(visible, x * qk_scale, float("-inf"))
            m_new = tl.maximum(m, tl.max(x, axis=KEYS))
            # A row that has seen no key keeps m = -inf: subtract 0 instead, so that p and alpha are 0 and not NaN.
            m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
            x = x - tl.expand_dims(m_safe, KEYS)
        else:
            # Scaling the maximum instead of x leaves one fused multiply-add an element. It takes qk_scale >= 0.
            m_new = tl.maximum(m, tl.max(x, axis=KEYS) * qk_scale)
            m_safe = m_new
            x = x * qk_scale - tl.expand_dims(m_safe, KEYS)
        if USE_EXP2:
            p = tl.exp2(x)
            alpha = tl.exp2(m - m_safe)
        else:
            p = tl.exp(x)
            alpha = tl.exp(m - m_safe)
        l = l * alpha + tl.sum(p, axis=KEYS)
        acc = acc * tl.expand_dims(alpha, KEYS)
        if KEYS_FIRST:
            acc = tl.dot(tl.trans(v), p.to(v.dtype), acc, input_precision="ieee")
        else:
            acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        m = m_new
    return acc, l, m


@triton.jit(
    do_not_specialize=[
        "lse_stride_batch",
        "lse_stride_head",
        "table_stride",
        "kv_heads",
        "group",
        "q_len",
        "row_tiles",
    ],
)
def attention_decode_kernel(
    q_ptr,  # [batch, kv_heads * group, q_len, HEAD_DIM], unit stride along HEAD_DIM, as k and v
    k_ptr,  # [batch, kv_heads, tokens, HEAD_DIM]; where PAGE_SIZE > 0 [pages, PAGE_SIZE, kv_heads, HEAD_DIM]
    v_ptr,  # as k
    seq_lens_ptr,  # [batch] int32
    table_ptr,  # [batch, pages of a sequence] int32, where PAGE_SIZE > 0
    out_ptr,  # [batch, kv_heads * group, q_len, HEAD_DIM], unit stride along HEAD_DIM
    lse_ptr,  # [batch, kv_heads * group, q_len] fp32, natural logarithm of the sum of exponentials
    q_stride_batch,
    q_stride_head,
    q_stride_row,
    k_stride_block,
    k_stride_head,
    k_stride_row,
    v_stride_block,
    v_stride_head,
    v_stride_row,
    out_stride_batch,
    out_stride_head,
    out_stride_row,
    lse_stride_batch,
    lse_stride_head,
    lse_stride_row,
    table_stride,
    kv_heads,
    group,  # query heads for each key/value head
    q_len,
    row_tiles,  # tiles of BLOCK_M rows that group * q_len rows take
    qk_scale,  # at least 0; times log2(e) where USE_EXP2
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    KEYS_FIRST: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """One program takes all keys of a sequence, for the queries of one key/value head."""
    LN2: tl.constexpr = 0.6931471805599453
    work = tl.program_id(0)
    # Programs that read the same keys are neighbours.
    row_tile = work % row_tiles
    batch_head = work // row_tiles
    kv_head = batch_head % kv_heads
    batch = (batch_head // kv_heads).to(tl.int64)
    seq_len = tl.load(seq_lens_ptr + batch)
    row = row_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    query = row % q_len
    head = (kv_head * group + row // q_len).to(tl.int64)
    real = row < group * q_len
    dim = tl.arange(0, HEAD_DIM_PADDED)[None, :]
    q_row = q_ptr + batch * q_stride_batch + head * q_stride_head + query * q_stride_row
    q = tl.load(q_row[:, None] + dim, mask=real[:, None] & (dim < HEAD_DIM), other=0.0)
    k_head = k_ptr + kv_head.to(tl.int64) * k_stride_head
    v_head = v_ptr + kv_head.to(tl.int64) * v_stride_head

    # The queries are the sequence's last tokens: query i sees the keys up to i + seq_len - q_len.
    diagonal = seq_len - q_len
    last_key = query + diagonal
    # Whole tiles of keys that every query sees; then those that some query sees, or that are cut off.
    unmasked = tl.maximum(diagonal + 1, 0) // BLOCK_N * BLOCK_N

    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.full([BLOCK_M], 0.0, tl.float32)
    if KEYS_FIRST:
        acc = tl.full([HEAD_DIM_PADDED, BLOCK_M], 0.0, tl.float32)
    else:
        acc = tl.full([BLOCK_M, HEAD_DIM_PADDED], 0.0, tl.float32)
    table = table_ptr
    if PAGE_SIZE > 0:
        table = table_ptr + batch * table_stride
    acc, l, m = _attend(
        acc, l, m, q, k_head, v_head, table, batch, k_stride_block, k_stride_row, v_stride_block, v_stride_row,
        last_key, seq_len, 0, unmasked, qk_scale, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM,
        HEAD_DIM_PADDED=HEAD_DIM_PADDED, PAGE_SIZE=PAGE_SIZE, MASKED=False, KEYS_FIRST=KEYS_FIRST,
        USE_EXP2=USE_EXP2,
    )  # fmt: skip
    acc, l, m = _attend(
        acc, l, m, q, k_head, v_head, table, batch, k_stride_block, k_stride_row, v_stride_block, v_stride_row,
        last_key, seq_len, unmasked, seq_len, qk_scale, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM,
        HEAD_DIM_PADDED=HEAD_DIM_PADDED, PAGE_SIZE=PAGE_SIZE, MASKED=True, KEYS_FIRST=KEYS_FIRST,
        USE_EXP2=USE_EXP2,
    )  # fmt: skip

    if KEYS_FIRST:
        acc = tl.trans(acc)
    # Only a query without any visible key has l = 0: its output is 0 and its log-sum-exp -inf.
    l_safe = tl.where(l == 0.0, 1.0, l)
    out = (acc / l_safe[:, None]).to(out_ptr.dtype.element_ty)
    if USE_EXP2:
        lse = (m + tl.log2(l_safe)) * LN2
    else:
        lse = m + tl.log(l_safe)
    out_row = out_ptr + batch * out_stride_batch + head * out_stride_head + query * out_stride_row
    tl.store(out_row[:, None] + dim, out, mask=real[:, None] & (dim < HEAD_DIM))
    tl.store(lse_ptr + batch * lse_stride_batch + head * lse_stride_head + query * lse_stride_row, lse, mask=real)


def launch(
    q,
    k,
    v,
    seq_lens,
    out,
    lse,
    block_table=None,
    *,
    scale,
    KEYS_FIRST,
    USE_EXP2,
    BLOCK_M,
    BLOCK_N,
    num_warps,
    num_stages,
):
    """Write softmax(scale q.k) v over each sequence's first seq_lens tokens into ``out``, the log-sum-exp into ``lse``.

    q, out [batch, heads, q_len, head_dim]; lse [batch, heads, q_len] fp32; seq_lens [batch] int32. k, v [batch,
    kv_heads, tokens, head_dim]; with a block_table [batch, pages of a sequence] int32 [pages, page_size, kv_heads,
    head_dim]. Any strides, but 1 along head_dim and block_table's rows. ``scale`` is at least 0; BLOCK_M is a
    power of two.
    """
    LOG2E = 1.4426950408889634
    batch, heads, q_len, head_dim = q.shape
    paged = block_table is not None
    tokens, by_head = (1, 2) if paged else (2, 1)
    kv_heads = k.shape[by_head]
    group = heads // kv_heads
    row_tiles = triton.cdiv(group * q_len, BLOCK_M)
    padded = triton.next_power_of_2(head_dim)
    attention_decode_kernel[(batch * kv_heads * row_tiles,)](
        q,
        k,
        v,
        seq_lens,
        block_table,
        out,
        lse,
        q.stride(0),
        q.stride(1),
        q.stride(2),
        k.stride(0),
        k.stride(by_head),
        k.stride(tokens),
        v.stride(0),
        v.stride(by_head),
        v.stride(tokens),
        out.stride(0),
        out.stride(1),
        out.stride(2),
        lse.stride(0),
        lse.stride(1),
        lse.stride(2),
        block_table.stride(0) if paged else 0,
        kv_heads,
        group,
        q_len,
        row_tiles,
        scale * LOG2E if USE_EXP2 else scale,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        HEAD_DIM=head_dim,
        HEAD_DIM_PADDED=padded,
        PAGE_SIZE=k.shape[1] if paged else 0,
        KEYS_FIRST=KEYS_FIRST,
        USE_EXP2=USE_EXP2,
        num_warps=num_warps,
        num_stages=num_stages,
    )
