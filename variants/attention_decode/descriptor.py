"""Attention of a few new tokens over a cache in splits, with tensor descriptors (the copy engine TMA; sm_90 and newer).

As ``split``, with tensor descriptors in the place of pointers: one program of the first kernel takes one split of a
sequence's keys, for the queries of one key/value head, and leaves m, l and acc; the second merges the splits of a row.
For each tile of BLOCK_N keys, with x = q.k scaled: m_new = max(m, max(x)); alpha = exp(m - m_new); p = exp(x - m_new);
l = l*alpha + sum(p); acc = acc*alpha + p.v. The merge: M = max m, L = sum l exp(m - M), out = sum acc exp(m - M) / L.

A tile of the cache is loaded whole. What it holds beyond the sequence's length may be anything: such logits are masked
and such values set to 0. head_dim is a power of two; a page holds a whole number of tiles; strides are multiples of 16
bytes, and 1 along head_dim.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _tile(
    desc,
    page,  # the sequence, where PAGE_SIZE is 0
    kv_head,
    first_key,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
):
    """[BLOCK_N, HEAD_DIM] of the cache from ``first_key``."""
    if PAGE_SIZE > 0:
        tile = desc.load([page, first_key % PAGE_SIZE, kv_head, 0])
    else:
        tile = desc.load([page, kv_head, first_key, 0])
    return tile.reshape(BLOCK_N, HEAD_DIM)


@triton.jit
def _attend(
    acc,  # [BLOCK_M, HEAD_DIM] fp32, unnormalised output; turned round where KEYS_FIRST
    l,  # [BLOCK_M] fp32, running sum
    m,  # [BLOCK_M] fp32, running maximum
    q,  # [BLOCK_M, HEAD_DIM]
    k_desc,
    v_desc,
    table_ptr,  # [pages of this sequence] int32, where PAGE_SIZE > 0
    batch,
    kv_head,
    last_key,  # [BLOCK_M], the last key that each row sees
    seq_len,
    start,  # a multiple of BLOCK_N
    end,
    qk_scale,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    MASKED: tl.constexpr,
    KEYS_FIRST: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """Take the keys from ``start`` to ``end`` into acc, l and m."""
    KEYS: tl.constexpr = 0 if KEYS_FIRST else 1
    ROWS: tl.constexpr = 1 if KEYS_FIRST else 0
    for first_key in tl.range(start, end, BLOCK_N):
        page = batch
        if PAGE_SIZE > 0:
            page = tl.load(table_ptr + first_key // PAGE_SIZE)
        k = _tile(k_desc, page, kv_head, first_key, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, PAGE_SIZE=PAGE_SIZE)
        v = _tile(v_desc, page, kv_head, first_key, BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, PAGE_SIZE=PAGE_SIZE)
        if KEYS_FIRST:
            x = tl.dot(k, tl.trans(q), input_precision="ieee")
        else:
            x = tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASKED:
            key = first_key + tl.arange(0, BLOCK_N)
            v = tl.where((key < seq_len)[:, None], v, 0.0)
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


@triton.jit(do_not_specialize=["table_stride", "kv_heads", "group", "q_len", "row_tiles"])
def attention_decode_descriptor_kernel(
    q_ptr,  # [batch, kv_heads * group, q_len, HEAD_DIM], unit stride along HEAD_DIM
    k_desc,  # the cache's four dimensions in blocks of BLOCK_N tokens of one head
    v_desc,  # as k
    seq_lens_ptr,  # [batch] int32
    table_ptr,  # [batch, pages of a sequence] int32, where PAGE_SIZE > 0
    part_acc_ptr,  # [batch * kv_heads * group * q_len, SPLITS, HEAD_DIM] fp32
    part_ml_ptr,  # [batch * kv_heads * group * q_len, SPLITS, 2] fp32: m and l
    q_stride_batch,
    q_stride_head,
    q_stride_row,
    table_stride,
    kv_heads,
    group,  # query heads for each key/value head
    q_len,
    row_tiles,  # tiles of BLOCK_M rows that group * q_len rows take
    qk_scale,  # at least 0; times log2(e) where USE_EXP2
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    KEYS_FIRST: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """One program takes one split of a sequence's keys, for the queries of one key/value head."""
    work = tl.program_id(0)
    # Programs that read the same keys are neighbours.
    row_tile = work % row_tiles
    split = work // row_tiles % SPLITS
    batch_head = work // row_tiles // SPLITS
    kv_head = batch_head % kv_heads
    batch = batch_head // kv_heads
    seq_len = tl.load(seq_lens_ptr + batch)
    # Whole tiles, the same number for all splits but the last ones. The merge knows by it which of them are empty.
    split_keys = (seq_len + SPLITS * BLOCK_N - 1) // (SPLITS * BLOCK_N) * BLOCK_N
    start = split * split_keys
    if start < seq_len:
        row = row_tile * BLOCK_M + tl.arange(0, BLOCK_M)
        query = row % q_len
        head = (kv_head * group + row // q_len).to(tl.int64)
        real = row < group * q_len
        dim = tl.arange(0, HEAD_DIM)[None, :]
        q_row = q_ptr + batch.to(tl.int64) * q_stride_batch + head * q_stride_head + query * q_stride_row
        q = tl.load(q_row[:, None] + dim, mask=real[:, None], other=0.0)

        # The queries are the sequence's last tokens: query i sees the keys up to i + seq_len - q_len.
        diagonal = seq_len - q_len
        last_key = query + diagonal
        end = tl.minimum(start + split_keys, seq_len)
        # Whole tiles of keys that every query sees; then those that some query sees, or that are cut off.
        unmasked = tl.maximum(tl.minimum(diagonal + 1, end) // BLOCK_N * BLOCK_N, start)

        m = tl.full([BLOCK_M], float("-inf"), tl.float32)
        l = tl.full([BLOCK_M], 0.0, tl.float32)
        if KEYS_FIRST:
            acc = tl.full([HEAD_DIM, BLOCK_M], 0.0, tl.float32)
        else:
            acc = tl.full([BLOCK_M, HEAD_DIM], 0.0, tl.float32)
        table = table_ptr
        if PAGE_SIZE > 0:
            table = table_ptr + batch.to(tl.int64) * table_stride
        acc, l, m = _attend(
            acc, l, m, q, k_desc, v_desc, table, batch, kv_head, last_key, seq_len, start, unmasked, qk_scale,
            BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, PAGE_SIZE=PAGE_SIZE, MASKED=False, KEYS_FIRST=KEYS_FIRST,
            USE_EXP2=USE_EXP2,
        )  # fmt: skip
        acc, l, m = _attend(
            acc, l, m, q, k_desc, v_desc, table, batch, kv_head, last_key, seq_len, unmasked, end, qk_scale,
            BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, PAGE_SIZE=PAGE_SIZE, MASKED=True, KEYS_FIRST=KEYS_FIRST,
            USE_EXP2=USE_EXP2,
        )  # fmt: skip

        if KEYS_FIRST:
            acc = tl.trans(acc)
        place = ((batch.to(tl.int64) * kv_heads * group + head) * q_len + query) * SPLITS + split
        tl.store(part_acc_ptr + place[:, None] * HEAD_DIM + dim, acc, mask=real[:, None])
        tl.store(part_ml_ptr + place * 2, m, mask=real)
        tl.store(part_ml_ptr + place * 2 + 1, l, mask=real)


@triton.jit(do_not_specialize=["out_stride_batch", "lse_stride_batch", "lse_stride_head", "heads", "q_len"])
def attention_decode_merge_kernel(
    part_acc_ptr,  # [batch * heads * q_len, SPLITS, HEAD_DIM] fp32
    part_ml_ptr,  # [batch * heads * q_len, SPLITS, 2] fp32: m and l
    seq_lens_ptr,  # [batch] int32
    out_ptr,  # [batch, heads, q_len, HEAD_DIM], unit stride along HEAD_DIM
    lse_ptr,  # [batch, heads, q_len] fp32, natural logarithm of the sum of exponentials
    out_stride_batch,
    out_stride_head,
    out_stride_row,
    lse_stride_batch,
    lse_stride_head,
    lse_stride_row,
    heads,
    q_len,
    SPLITS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """One program merges the splits of one row, BLOCK_D elements of its output."""
    LN2: tl.constexpr = 0.6931471805599453
    row = tl.program_id(0).to(tl.int64)
    query = row % q_len
    head = row // q_len % heads
    batch = row // q_len // heads
    seq_len = tl.load(seq_lens_ptr + batch)
    split = tl.arange(0, SPLITS)
    split_keys = (seq_len + SPLITS * BLOCK_N - 1) // (SPLITS * BLOCK_N) * BLOCK_N
    filled = split * split_keys < seq_len
    part = row * SPLITS + split
    m = tl.load(part_ml_ptr + part * 2, mask=filled, other=float("-inf"))
    l = tl.load(part_ml_ptr + part * 2 + 1, mask=filled, other=0.0)
    m_row = tl.max(m, axis=0)
    # Where no split has seen a key -inf - -inf would be NaN.
    m_safe = tl.where(m_row == float("-inf"), 0.0, m_row)
    if USE_EXP2:
        weight = tl.exp2(m - m_safe)
    else:
        weight = tl.exp(m - m_safe)
    l_row = tl.sum(l * weight, axis=0)
    # Only a query without any visible key has l = 0: its output is 0 and its log-sum-exp -inf.
    l_safe = tl.where(l_row == 0.0, 1.0, l_row)
    dim = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    inside = filled[:, None] & (dim < HEAD_DIM)[None, :]
    acc = tl.load(part_acc_ptr + part[:, None] * HEAD_DIM + dim[None, :], mask=inside, other=0.0)
    out = tl.sum(acc * weight[:, None], axis=0) / l_safe
    out_row = out_ptr + batch * out_stride_batch + head * out_stride_head + query * out_stride_row
    tl.store(out_row + dim, out.to(out_ptr.dtype.element_ty), mask=dim < HEAD_DIM)
    if USE_EXP2:
        lse = (m_row + tl.log2(l_safe)) * LN2
    else:
        lse = m_row + tl.log(l_safe)
    if tl.program_id(1) == 0:
        tl.store(lse_ptr + batch * lse_stride_batch + head * lse_stride_head + query * lse_stride_row, lse)


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
    SPLITS,
    num_warps,
    num_stages,
):
    """Write softmax(scale q.k) v over each sequence's first seq_lens tokens into ``out``, the log-sum-exp into ``lse``.

    q, out [batch, heads, q_len, head_dim]; lse [batch, heads, q_len] fp32; seq_lens [batch] int32. k, v [batch,
    kv_heads, tokens, head_dim]; with a block_table [batch, pages of a sequence] int32 [pages, page_size, kv_heads,
    head_dim]. q and out may have any strides, but 1 along head_dim. ``scale`` is at least 0; BLOCK_M and
    SPLITS are powers of two.
    """
    LOG2E = 1.4426950408889634
    batch, heads, q_len, head_dim = q.shape
    paged = block_table is not None
    kv_heads = k.shape[2 if paged else 1]
    group = heads // kv_heads
    row_tiles = triton.cdiv(group * q_len, BLOCK_M)
    rows = batch * heads * q_len
    part_acc = torch.empty((rows, SPLITS, head_dim), dtype=torch.float32, device=q.device)
    part_ml = torch.empty((rows, SPLITS, 2), dtype=torch.float32, device=q.device)
    block = [1, BLOCK_N, 1, head_dim] if paged else [1, 1, BLOCK_N, head_dim]

    def in_tiles(cache):
        return TensorDescriptor(cache, list(cache.shape), list(cache.stride()), block)

    attention_decode_descriptor_kernel[(batch * kv_heads * SPLITS * row_tiles,)](
        q,
        in_tiles(k),
        in_tiles(v),
        seq_lens,
        block_table,
        part_acc,
        part_ml,
        q.stride(0),
        q.stride(1),
        q.stride(2),
        block_table.stride(0) if paged else 0,
        kv_heads,
        group,
        q_len,
        row_tiles,
        scale * LOG2E if USE_EXP2 else scale,
        SPLITS=SPLITS,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        HEAD_DIM=head_dim,
        PAGE_SIZE=k.shape[1] if paged else 0,
        KEYS_FIRST=KEYS_FIRST,
        USE_EXP2=USE_EXP2,
        num_warps=num_warps,
        num_stages=num_stages,
    )
    block_d = min(head_dim, 64)
    attention_decode_merge_kernel[(rows, triton.cdiv(head_dim, block_d))](
        part_acc,
        part_ml,
        seq_lens,
        out,
        lse,
        out.stride(0),
        out.stride(1),
        out.stride(2),
        lse.stride(0),
        lse.stride(1),
        lse.stride(2),
        heads,
        q_len,
        SPLITS=SPLITS,
        BLOCK_N=BLOCK_N,
        BLOCK_D=block_d,
        HEAD_DIM=head_dim,
        USE_EXP2=USE_EXP2,
        num_warps=4,
    )
