"""Attention over packed sequences with tensor descriptors (the copy engine TMA; sm_90 and newer).

As ``searched``, with keys and values by descriptors: the grid has as many programs a head as there can be tiles of
queries in all, and each looks for its own. Sequence s has the numbers from cu_seqlens_q[s] // BLOCK_M + s on, which are
as many as it has tiles, or one more; with LONGEST_FIRST a first kernel ranks the sequences by their keys, and the tiles
are numbered in that order without gaps, the last ones of a sequence first.

One program owns BLOCK_M queries of one head and keeps for each of them the running maximum m, the running sum l and the
unnormalised output acc. For each tile of BLOCK_N keys, with x = q.k scaled: m_new = max(m, max(x)); alpha = exp(m -
m_new); p = exp(x - m_new); l = l*alpha + sum(p); acc = acc*alpha + p.v. Tiles of keys that every query of the block
sees take no mask and run in a loop of their own.

A tile of keys is loaded whole, the next sequence's where its own one ends: such logits are masked, and such values set
to 0. head_dim is a power of two; strides of k and v are multiples of 16 bytes, and 1 along head_dim.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _attend(
    acc,  # [BLOCK_M, HEAD_DIM] fp32, unnormalised output
    l,  # [BLOCK_M] fp32, running sum
    m,  # [BLOCK_M] fp32, running maximum
    q,  # [BLOCK_M, HEAD_DIM]
    k_desc,
    v_desc,
    kv_start,  # the sequence's first key among all
    kv_head,
    last_key,  # [BLOCK_M], the last key that each query sees
    kv_len,
    start,  # a multiple of BLOCK_N
    end,
    qk_scale,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    MASKED: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
):
    """Take the keys from ``start`` to ``end`` into acc, l and m."""
    for first_key in tl.range(start, end, BLOCK_N):
        k = k_desc.load([kv_start + first_key, kv_head, 0]).reshape(BLOCK_N, HEAD_DIM)
        x = tl.dot(q, k.T, input_precision="ieee")
        if MASKED:
            key = first_key + tl.arange(0, BLOCK_N)
            if IS_CAUSAL:
                visible = (key[None, :] <= last_key[:, None]) & (key[None, :] < kv_len)
            else:
                visible = key[None, :] < kv_len
            x = tl.where(visible, x * qk_scale, float("-inf"))
            m_new = tl.maximum(m, tl.max(x, axis=1))
            # A query that has seen no key keeps m = -inf: subtract 0 instead, so that p and alpha are 0 and not NaN.
            m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
            x = x - m_safe[:, None]
        else:
            # Scaling the maximum instead of x leaves one fused multiply-add an element. It takes qk_scale >= 0.
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
        v = v_desc.load([kv_start + first_key, kv_head, 0]).reshape(BLOCK_N, HEAD_DIM)
        if MASKED:
            # The keys after the last one are another sequence's, and may hold what times 0 is NaN.
            v = tl.where((key < kv_len)[:, None], v, 0.0)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        m = m_new
    return acc, l, m


@triton.jit(do_not_specialize=["batch"])
def attention_varlen_rank_kernel(
    cu_q_ptr,  # [batch + 1] int32
    cu_kv_ptr,  # [batch + 1] int32
    order_ptr,  # [2, batch] int32: by rank, which sequence, and the tiles of those up to it
    batch,
    BLOCK_M: tl.constexpr,
    RANKED: tl.constexpr,
):
    """One program ranks RANKED sequences: those with more keys come first, and those before of as many."""
    own = tl.program_id(0) * RANKED + tl.arange(0, RANKED)
    keys = tl.load(cu_kv_ptr + own + 1, mask=own < batch, other=0) - tl.load(cu_kv_ptr + own, mask=own < batch, other=0)
    rank = tl.zeros([RANKED], tl.int32)
    end = tl.zeros([RANKED], tl.int32)
    for first in tl.range(0, batch, RANKED):
        at = first + tl.arange(0, RANKED)
        real = at < batch
        others_keys = tl.load(cu_kv_ptr + at + 1, mask=real, other=0) - tl.load(cu_kv_ptr + at, mask=real, other=0)
        q_len = tl.load(cu_q_ptr + at + 1, mask=real, other=0) - tl.load(cu_q_ptr + at, mask=real, other=0)
        tiles = (q_len + BLOCK_M - 1) // BLOCK_M
        longer = others_keys[None, :] > keys[:, None]
        as_long = (others_keys[None, :] == keys[:, None]) & (at[None, :] <= own[:, None])
        first_of_both = (longer | as_long) & real[None, :]
        rank += tl.sum(first_of_both.to(tl.int32), axis=1)
        end += tl.sum(tl.where(first_of_both, tiles[None, :], 0), axis=1)
    # Each sequence was counted itself.
    tl.store(order_ptr + rank - 1, own, mask=own < batch)
    tl.store(order_ptr + batch + rank - 1, end, mask=own < batch)


@triton.jit
def _place(
    number,
    cu_q_ptr,
    order_ptr,
    batch,
    BLOCK_M: tl.constexpr,
    SEARCHED: tl.constexpr,
    LONGEST_FIRST: tl.constexpr,
):
    """Which sequence, and which of its tiles, the ``number`` means; the sequence is ``batch`` where there is none."""
    before = 0
    for first in tl.range(0, batch, SEARCHED):
        at = first + tl.arange(0, SEARCHED)
        real = at < batch
        if LONGEST_FIRST:
            end = tl.load(order_ptr + batch + at, mask=real, other=0)
        else:
            end = tl.load(cu_q_ptr + at + 1, mask=real, other=0) // BLOCK_M + at + 1
        before += tl.sum((real & (end <= number)).to(tl.int32), axis=0)
    sequence = before
    tile_m = 0
    if before < batch:
        if LONGEST_FIRST:
            sequence = tl.load(order_ptr + before)
            # The last tile has the first number.
            tile_m = tl.load(order_ptr + batch + before) - 1 - number
        else:
            tile_m = number - tl.load(cu_q_ptr + before) // BLOCK_M - before
    return sequence, tile_m


@triton.jit(do_not_specialize=["lse_stride_head", "batch", "heads", "group"])
def attention_varlen_kernel(
    q_ptr,  # [total_q, heads, HEAD_DIM], unit stride along HEAD_DIM, as out
    k_desc,  # [total_kv, heads / group, HEAD_DIM] in blocks of [BLOCK_N, 1, HEAD_DIM]
    v_desc,  # as k
    cu_q_ptr,  # [batch + 1] int32, where each sequence's queries begin
    cu_kv_ptr,  # [batch + 1] int32, where each sequence's keys begin
    out_ptr,  # [total_q, heads, HEAD_DIM]
    lse_ptr,  # [heads, total_q] fp32, natural logarithm of the sum of exponentials
    order_ptr,  # [2, batch] int32, of the first kernel, where LONGEST_FIRST
    q_stride_token,
    q_stride_head,
    out_stride_token,
    out_stride_head,
    lse_stride_head,
    batch,
    heads,
    group,  # query heads for each key/value head
    qk_scale,  # at least 0; times log2(e) where USE_EXP2
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    USE_EXP2: tl.constexpr,
    LONGEST_FIRST: tl.constexpr,
    SEARCHED: tl.constexpr,
):
    """One program attends BLOCK_M queries of one sequence and head to all keys that they see."""
    LN2: tl.constexpr = 0.6931471805599453
    work = tl.program_id(0)
    head = (work % heads).to(tl.int64)
    sequence, tile_m = _place(
        work // heads, cu_q_ptr, order_ptr, batch, BLOCK_M=BLOCK_M, SEARCHED=SEARCHED, LONGEST_FIRST=LONGEST_FIRST
    )
    real = sequence < batch
    q_start = tl.load(cu_q_ptr + sequence, mask=real, other=0)
    q_len = tl.load(cu_q_ptr + sequence + 1, mask=real, other=0) - q_start
    kv_start = tl.load(cu_kv_ptr + sequence, mask=real, other=0)
    kv_len = tl.load(cu_kv_ptr + sequence + 1, mask=real, other=0) - kv_start
    if tile_m * BLOCK_M < q_len:
        kv_head = work % heads // group
        query = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        token = q_start.to(tl.int64) + query
        dim = tl.arange(0, HEAD_DIM)[None, :]
        inside = (query < q_len)[:, None]
        q_row = q_ptr + token * q_stride_token + head * q_stride_head
        q = tl.load(q_row[:, None] + dim, mask=inside, other=0.0)

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

        m = tl.full([BLOCK_M], float("-inf"), tl.float32)
        l = tl.zeros([BLOCK_M], tl.float32)
        acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
        acc, l, m = _attend(
            acc, l, m, q, k_desc, v_desc, kv_start, kv_head, last_key, kv_len, 0, unmasked, qk_scale,
            BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, MASKED=False, IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2,
        )  # fmt: skip
        acc, l, m = _attend(
            acc, l, m, q, k_desc, v_desc, kv_start, kv_head, last_key, kv_len, unmasked, end, qk_scale,
            BLOCK_N=BLOCK_N, HEAD_DIM=HEAD_DIM, MASKED=True, IS_CAUSAL=IS_CAUSAL, USE_EXP2=USE_EXP2,
        )  # fmt: skip

        # Only a query without any visible key has l = 0: its output is 0 and its log-sum-exp -inf.
        l_safe = tl.where(l == 0.0, 1.0, l)
        out = (acc / l_safe[:, None]).to(out_ptr.dtype.element_ty)
        if USE_EXP2:
            lse = (m + tl.log2(l_safe)) * LN2
        else:
            lse = m + tl.log(l_safe)
        out_row = out_ptr + token * out_stride_token + head * out_stride_head
        tl.store(out_row[:, None] + dim, out, mask=inside)
        tl.store(lse_ptr + head * lse_stride_head + token, lse, mask=query < q_len)


def launch(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_kv,
    out,
    lse,
    *,
    scale,
    max_len,
    IS_CAUSAL,
    USE_EXP2,
    LONGEST_FIRST,
    BLOCK_M,
    BLOCK_N,
    SEARCHED,
    num_warps,
    num_stages,
):
    """Write softmax(scale q.k) v of each sequence into ``out`` and the log-sum-exp into ``lse``.

    q, out [total_q, heads, head_dim]; k, v [total_kv, kv_heads, head_dim]; cu_seqlens_q, cu_seqlens_kv [batch + 1]
    int32, where the sequences begin and, last, the end; lse [heads, total_q] fp32. head_dim is a power of two with
    unit stride; k and v start, and their other strides are, at multiples of 16 bytes; lse has unit stride along its
    tokens. No sequence has more than ``max_len`` queries. ``scale`` is at least 0.
    """
    LOG2E = 1.4426950408889634
    heads, head_dim = q.shape[1:]
    batch = cu_seqlens_q.shape[0] - 1
    # Of the sequences' last tiles each may be cut off.
    numbers = q.shape[0] // BLOCK_M + batch
    order = None
    RANKED = 64
    if LONGEST_FIRST:
        numbers = min(numbers, triton.cdiv(max_len, BLOCK_M) * batch)
        order = torch.empty((2, batch), dtype=torch.int32, device=q.device)
        attention_varlen_rank_kernel[(triton.cdiv(batch, RANKED),)](
            cu_seqlens_q, cu_seqlens_kv, order, batch, BLOCK_M=BLOCK_M, RANKED=RANKED, num_warps=4
        )

    def in_tiles(x):
        return TensorDescriptor(x, list(x.shape), list(x.stride()), [BLOCK_N, 1, head_dim])

    attention_varlen_kernel[(numbers * heads,)](
        q,
        in_tiles(k),
        in_tiles(v),
        cu_seqlens_q,
        cu_seqlens_kv,
        out,
        lse,
        order,
        q.stride(0),
        q.stride(1),
        out.stride(0),
        out.stride(1),
        lse.stride(0),
        batch,
        heads,
        heads // k.shape[1],
        scale * LOG2E if USE_EXP2 else scale,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        HEAD_DIM=head_dim,
        IS_CAUSAL=IS_CAUSAL,
        USE_EXP2=USE_EXP2,
        LONGEST_FIRST=LONGEST_FIRST,
        SEARCHED=SEARCHED,
        num_warps=num_warps,
        num_stages=num_stages,
    )
