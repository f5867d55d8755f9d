"""Attention forward in warpgroups with tasks of their own (Gluon; sm_90): one loads, the others compute.

A program owns 64 * CONSUMERS queries of one head. Its producer, one warp, has tiles of K and V copied (TMA) into rings
of KV_STAGES buffers each. Each consumer, a warpgroup, keeps for its 64 queries the running maximum m, the running sum l
and the unnormalised output o, and walks over the tiles of BLOCK_N keys from the last one to the first, so that those
that need a mask come first. The products are asynchronous: a tile's q.k is issued before p.v of the tile before, and
its softmax is taken while that p.v runs. Where PING_PONG, one consumer issues its products while another is at its
softmax.

Everything between them goes through barriers in shared memory. A ring's ``full`` barrier says that a tile has arrived;
``done`` that every consumer has read K of this tile and V of the one before it, which are read in that order. Where
EARLY_RELEASE, K has its barrier ``done`` at once after q.k and V one of its own, which waits more and holds K less.

Descriptors have all four dimensions, so that a tile beyond q_len or kv_len reads zeros and writes nothing. head_dim is
64 or 128; strides are multiples of 16 bytes, and 1 along head_dim; 16-bit dtypes.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# Triton 3.6 has the longer names.
_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global


@gluon.constexpr_function
def _meeting_text(kind, place):
    """PTX: two warpgroups meet at a barrier. The compiler takes the numbers below 8 for itself."""
    return f"{kind} {8 + place}, 256; mov.b32 $0, $1;"


@gluon.jit
def _meet(KIND: gl.constexpr, PLACE: gl.constexpr):
    """Meet the other consumer at a place: "bar.sync" waits for it, "bar.arrive" does not."""
    gl.inline_asm_elementwise(_meeting_text(KIND, PLACE), "=r,r", [gl.to_tensor(0)], gl.int32, False, 1)


@gluon.jit
def _barriers(NUMBER: gl.constexpr, ARRIVALS: gl.constexpr):
    barriers = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NUMBER):
        mbarrier.init(barriers.index(i), count=ARRIVALS)
    return barriers


@gluon.jit
def _place_of(work, sizes, PLAN: gl.constexpr, IS_CAUSAL: gl.constexpr):
    """Which tile of queries ``work`` is: (batch, head, head of k and v, first query, how many tiles of keys).

    HEAD_GROUP heads go together, so that the cache holds their keys and values; of causal tiles the longest first.
    """
    CONSUMERS: gl.constexpr = PLAN[0]
    BLOCK_N: gl.constexpr = PLAN[1]
    HEAD_GROUP: gl.constexpr = PLAN[5]
    tiles_m, batch_heads, heads, group, q_len, kv_len = sizes
    first_head = work // (HEAD_GROUP * tiles_m) * HEAD_GROUP
    together = gl.minimum(batch_heads - first_head, HEAD_GROUP)
    rest = work % (HEAD_GROUP * tiles_m)
    batch_head = first_head + rest % together
    if IS_CAUSAL:
        tile_m = tiles_m - 1 - rest // together
    else:
        tile_m = rest // together
    first_query = tile_m * (64 * CONSUMERS)
    # Bottom-right aligned: query i sees the keys up to i + kv_len - q_len.
    if IS_CAUSAL:
        end = gl.minimum(gl.minimum(first_query + 64 * CONSUMERS, q_len) + kv_len - q_len, kv_len)
    else:
        end = kv_len
    # One tile at least, which is masked whole where the queries see no key.
    tiles_n = gl.maximum(gl.cdiv(end, BLOCK_N), 1)
    head = batch_head % heads
    return batch_head // heads, head, head // group, first_query, tiles_n


@gluon.jit
def _masked(x, first_key, last_key, kv_len, IS_CAUSAL: gl.constexpr):
    """q.k [64, BLOCK_N] fp32 of the keys from ``first_key``, -inf beyond the last key that each query [64] sees."""
    column = gl.arange(0, x.shape[1], layout=gl.SliceLayout(0, x.type.layout))
    if IS_CAUSAL:
        visible = column[None, :] <= (gl.minimum(last_key, kv_len - 1) - first_key)[:, None]
    else:
        visible = (column < kv_len - first_key)[None, :]
    return gl.where(visible, x, float("-inf"))


@gluon.jit
def _softmax(x, m, qk_scale):
    """Of q.k [64, BLOCK_N] fp32, not scaled, and the running maximum m [64], scaled: the weights p, the new m, p's sums
    [64, 4] in four parts a row, and what everything before is to be multiplied by."""
    # Four threads have a row's columns, two of every eight each. Maxima of parts do not wait for one another.
    grouped = x.reshape([x.shape[0], x.shape[1] // 32, 4, 4, 2])
    highest = gl.max(gl.max(gl.max(gl.max(grouped, axis=4), axis=2), axis=1), axis=1)
    # Scaling the maximum instead of x leaves one fused multiply-add an element. It takes qk_scale > 0.
    m_new = gl.maximum(m, gl.convert_layout(highest, m.type.layout) * qk_scale)
    # A query that has seen no key keeps m = -inf: subtract 0 instead, so that p and alpha are 0 and not NaN.
    m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)
    p = gl.exp2(x * qk_scale - m_safe[:, None])
    alpha = gl.exp2(m - m_safe)
    # The sums of the four threads come together after the last tile.
    parts = gl.sum(gl.sum(p.reshape([p.shape[0], p.shape[1] // 8, 4, 2]), axis=3), axis=1)
    return p, m_new, parts, alpha


@gluon.jit
def _consumer(
    WHO: gl.constexpr, shared, sizes, outputs, qk_scale, PLAN: gl.constexpr,
    IS_CAUSAL: gl.constexpr, PING_PONG: gl.constexpr, EARLY_RELEASE: gl.constexpr,
):  # fmt: skip
    """Attend the 64 queries that are this warpgroup's, of one tile of queries after the other."""
    LN2: gl.constexpr = 0.6931471805599453
    CONSUMERS: gl.constexpr = PLAN[0]
    BLOCK_N: gl.constexpr = PLAN[1]
    HEAD_DIM: gl.constexpr = PLAN[2]
    KV_STAGES: gl.constexpr = PLAN[3]
    Q_STAGES: gl.constexpr = PLAN[4]
    X: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, OUT, 2)
    ROW: gl.constexpr = gl.SliceLayout(1, X)
    q_buffers, k_buffers, v_buffers, q_full, q_done, k_full, v_full, done, v_done = shared
    tiles_m, batch_heads, _, _, q_len, kv_len = sizes
    out_desc, lse_ptr, lse_batch, lse_heads, lse_row = outputs
    if PING_PONG and WHO == CONSUMERS - 1:
        _meet("bar.arrive", 0)
    number = 0  # of the tile of keys, counted on from one tile of queries to the next
    for work in range(gl.program_id(0), tiles_m * batch_heads, gl.num_programs(0)):
        batch, head, _, first_query, tiles_n = _place_of(work, sizes, PLAN, IS_CAUSAL=IS_CAUSAL)
        turn = work // gl.num_programs(0)
        first_query += 64 * WHO
        query = first_query + gl.arange(0, 64, layout=ROW)
        last_key = query + (kv_len - q_len)
        if IS_CAUSAL:
            unmasked = gl.minimum(first_query + kv_len - q_len + 1, kv_len)
        else:
            unmasked = kv_len
        unmasked = gl.maximum(unmasked, 0) // BLOCK_N  # whole tiles of keys that every query sees

        q_slot = turn % Q_STAGES * CONSUMERS + WHO
        q = q_buffers.index(q_slot).reshape([64, HEAD_DIM])
        nothing = gl.full([64, BLOCK_N], 0.0, gl.float32, layout=X)
        o = gl.full([64, HEAD_DIM], 0.0, gl.float32, layout=OUT)
        m = gl.full([64], float("-inf"), gl.float32, layout=ROW)

        slot = number % KV_STAGES
        mbarrier.wait(q_full.index(q_slot), turn // Q_STAGES & 1)
        mbarrier.wait(k_full.index(slot), number // KV_STAGES & 1)
        k = k_buffers.index(slot).reshape([BLOCK_N, HEAD_DIM]).permute((1, 0))
        x = warpgroup_mma(q, k, nothing, use_acc=False, is_async=True)
        x = warpgroup_mma_wait(num_outstanding=0, deps=(x,))
        mbarrier.arrive(done.index(slot), count=1)
        x = _masked(x, (tiles_n - 1) * BLOCK_N, last_key, kv_len, IS_CAUSAL=IS_CAUSAL)
        x, m, l, alpha = _softmax(x, m, qk_scale)
        p = gl.convert_layout(x.to(out_desc.dtype), P)
        mbarrier.wait(v_full.index(slot), number // KV_STAGES & 1)
        number += 1

        for tile_n in range(tiles_n - 2, -1, -1):
            before = slot
            slot = number % KV_STAGES
            mbarrier.wait(k_full.index(slot), number // KV_STAGES & 1)
            if PING_PONG:
                _meet("bar.sync", WHO)
            k = k_buffers.index(slot).reshape([BLOCK_N, HEAD_DIM]).permute((1, 0))
            x = warpgroup_mma(q, k, nothing, use_acc=False, is_async=True)
            o = warpgroup_mma(p, v_buffers.index(before).reshape([BLOCK_N, HEAD_DIM]), o, is_async=True)
            if PING_PONG:
                _meet("bar.arrive", (WHO + 1) % CONSUMERS)
            x = warpgroup_mma_wait(num_outstanding=1, deps=(x,))
            if EARLY_RELEASE:
                mbarrier.arrive(done.index(slot), count=1)
            if IS_CAUSAL:
                if tile_n >= unmasked:
                    x = _masked(x, tile_n * BLOCK_N, last_key, kv_len, IS_CAUSAL=IS_CAUSAL)
            x, m, parts, alpha = _softmax(x, m, qk_scale)
            l = l * gl.convert_layout(alpha, gl.SliceLayout(1, l.type.layout))[:, None] + parts
            # V of this tile is for the next round. Waiting here keeps the compiler from waiting for p.v, which is
            # below, before the softmax.
            mbarrier.wait(v_full.index(slot), number // KV_STAGES & 1)
            o = warpgroup_mma_wait(num_outstanding=0, deps=(o,))
            if EARLY_RELEASE:
                mbarrier.arrive(v_done.index(before), count=1)
            else:
                mbarrier.arrive(done.index(slot), count=1)
            o = o * gl.convert_layout(alpha, gl.SliceLayout(1, OUT))[:, None]
            p = gl.convert_layout(x.to(out_desc.dtype), P)
            number += 1

        slot = (number - 1) % KV_STAGES
        o = warpgroup_mma(p, v_buffers.index(slot).reshape([BLOCK_N, HEAD_DIM]), o, is_async=True)
        # Only a query without any visible key has l = 0: its output is 0 and its log-sum-exp -inf.
        row_sum = gl.convert_layout(gl.sum(l, axis=1), ROW)
        row_sum = gl.where(row_sum == 0.0, 1.0, row_sum)
        lse_head = lse_ptr + batch.to(gl.int64) * lse_batch + head.to(gl.int64) * lse_heads
        gl.store(lse_head + query.to(gl.int64) * lse_row, (m + gl.log2(row_sum)) * LN2, mask=query < q_len)
        o = warpgroup_mma_wait(num_outstanding=0, deps=(o,))
        if EARLY_RELEASE:
            mbarrier.arrive(v_done.index(slot), count=1)
        o = o * gl.convert_layout(1.0 / row_sum, gl.SliceLayout(1, OUT))[:, None]
        q.store(o.to(out_desc.dtype))  # q has been read for the last time
        fence_async_shared()
        _store(out_desc, [batch, head, first_query, 0], q_buffers.index(q_slot))
        tma.store_wait(pendings=0)
        mbarrier.arrive(q_done.index(q_slot), count=1)
    if PING_PONG and WHO == 0:
        _meet("bar.sync", 0)


@gluon.jit
def _producer(shared, sizes, inputs, PLAN: gl.constexpr, IS_CAUSAL: gl.constexpr, EARLY_RELEASE: gl.constexpr):
    """Have q, k and v copied in the order in which the consumers read them: K, q, then K of a tile and V before it."""
    CONSUMERS: gl.constexpr = PLAN[0]
    BLOCK_N: gl.constexpr = PLAN[1]
    KV_STAGES: gl.constexpr = PLAN[3]
    Q_STAGES: gl.constexpr = PLAN[4]
    q_buffers, k_buffers, v_buffers, q_full, q_done, k_full, v_full, done, v_done = shared
    tiles_m, batch_heads, _, _, _, _ = sizes
    q_desc, k_desc, v_desc = inputs
    number = 0
    for work in range(gl.program_id(0), tiles_m * batch_heads, gl.num_programs(0)):
        batch, head, kv_head, first_query, tiles_n = _place_of(work, sizes, PLAN, IS_CAUSAL=IS_CAUSAL)
        turn = work // gl.num_programs(0)
        for step in range(0, tiles_n + 1):
            slot = number % KV_STAGES
            if step < tiles_n:
                mbarrier.wait(done.index(slot), (number // KV_STAGES & 1) ^ 1)
                mbarrier.expect(k_full.index(slot), k_desc.block_type.nbytes)
                key = (tiles_n - 1 - step) * BLOCK_N
                _load(k_desc, [batch, kv_head, key, 0], k_full.index(slot), k_buffers.index(slot))
            if step == 0:
                for who in gl.static_range(CONSUMERS):
                    q_slot = turn % Q_STAGES * CONSUMERS + who
                    mbarrier.wait(q_done.index(q_slot), (turn // Q_STAGES & 1) ^ 1)
                    mbarrier.expect(q_full.index(q_slot), q_desc.block_type.nbytes)
                    query = first_query + 64 * who
                    _load(q_desc, [batch, head, query, 0], q_full.index(q_slot), q_buffers.index(q_slot))
            else:
                before = (number - 1) % KV_STAGES
                if EARLY_RELEASE:
                    mbarrier.wait(v_done.index(before), ((number - 1) // KV_STAGES & 1) ^ 1)
                else:
                    # What frees K's buffer frees the one of V before it. After the last K it is waited for here.
                    mbarrier.wait(done.index(slot), (number // KV_STAGES & 1) ^ 1)
                mbarrier.expect(v_full.index(before), v_desc.block_type.nbytes)
                key = (tiles_n - step) * BLOCK_N
                _load(v_desc, [batch, kv_head, key, 0], v_full.index(before), v_buffers.index(before))
            number += 1
        number -= 1


@gluon.jit(do_not_specialize=["lse_batch", "lse_heads", "tiles_m", "batch_heads", "heads", "group", "q_len", "kv_len"])
def attention_fwd_kernel(
    q_desc,  # [batch, heads, q_len, HEAD_DIM] in blocks of [1, 1, 64, HEAD_DIM]
    k_desc,  # [batch, heads / group, kv_len, HEAD_DIM] in blocks of [1, 1, BLOCK_N, HEAD_DIM]
    v_desc,  # [batch, heads / group, kv_len, HEAD_DIM] in blocks of [1, 1, BLOCK_N, HEAD_DIM]
    out_desc,  # [batch, heads, q_len, HEAD_DIM] in blocks of [1, 1, 64, HEAD_DIM]
    lse_ptr,  # [batch, heads, q_len] fp32, natural logarithm of the sum of exponentials
    lse_batch,  # strides of lse
    lse_heads,
    lse_row,
    tiles_m,  # tiles of 64 * CONSUMERS queries in a head
    batch_heads,
    heads,
    group,  # query heads for each key/value head
    q_len,
    kv_len,
    qk_scale,  # more than 0; times log2(e)
    CONSUMERS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    KV_STAGES: gl.constexpr,
    Q_STAGES: gl.constexpr,
    HEAD_GROUP: gl.constexpr,
    IS_CAUSAL: gl.constexpr,
    PING_PONG: gl.constexpr,
    EARLY_RELEASE: gl.constexpr,
):
    """One program attends a tile of queries of one head, or several one after the other where there are fewer."""
    Q_SLOTS: gl.constexpr = Q_STAGES * CONSUMERS
    q_buffers = gl.allocate_shared_memory(q_desc.dtype, [Q_SLOTS, 1, 1, 64, HEAD_DIM], q_desc.layout)
    k_buffers = gl.allocate_shared_memory(k_desc.dtype, [KV_STAGES, 1, 1, BLOCK_N, HEAD_DIM], k_desc.layout)
    v_buffers = gl.allocate_shared_memory(v_desc.dtype, [KV_STAGES, 1, 1, BLOCK_N, HEAD_DIM], v_desc.layout)
    q_full, q_done = _barriers(Q_SLOTS, 1), _barriers(Q_SLOTS, 1)
    k_full, v_full = _barriers(KV_STAGES, 1), _barriers(KV_STAGES, 1)
    done, v_done = _barriers(KV_STAGES, CONSUMERS), _barriers(KV_STAGES, CONSUMERS)
    fence_async_shared()
    shared = (q_buffers, k_buffers, v_buffers, q_full, q_done, k_full, v_full, done, v_done)
    sizes = (tiles_m, batch_heads, heads, group, q_len, kv_len)
    inputs = (q_desc, k_desc, v_desc)
    outputs = (out_desc, lse_ptr, lse_batch, lse_heads, lse_row)
    PLAN: gl.constexpr = (CONSUMERS, BLOCK_N, HEAD_DIM, KV_STAGES, Q_STAGES, HEAD_GROUP)
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consumer, (0, shared, sizes, outputs, qk_scale, PLAN, IS_CAUSAL, PING_PONG, EARLY_RELEASE)),
                (_consumer, (1, shared, sizes, outputs, qk_scale, PLAN, IS_CAUSAL, PING_PONG, EARLY_RELEASE)),
                (_producer, (shared, sizes, inputs, PLAN, IS_CAUSAL, EARLY_RELEASE)),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (_consumer, (0, shared, sizes, outputs, qk_scale, PLAN, IS_CAUSAL, PING_PONG, EARLY_RELEASE)),
                (_consumer, (1, shared, sizes, outputs, qk_scale, PLAN, IS_CAUSAL, PING_PONG, EARLY_RELEASE)),
                (_consumer, (2, shared, sizes, outputs, qk_scale, PLAN, IS_CAUSAL, PING_PONG, EARLY_RELEASE)),
                (_producer, (shared, sizes, inputs, PLAN, IS_CAUSAL, EARLY_RELEASE)),
            ],
            [4, 4, 1],
            [160, 160, 32],
        )


def launch(
    q,
    k,
    v,
    out,
    lse,
    *,
    scale,
    IS_CAUSAL,
    PING_PONG,
    EARLY_RELEASE,
    PERSISTENT,
    CONSUMERS,
    BLOCK_N,
    KV_STAGES,
    Q_STAGES,
    HEAD_GROUP,
    NUM_PROGRAMS,
):
    """Write softmax(scale q.k) v into ``out`` and the log-sum-exp into ``lse``.

    q, out [batch, heads, q_len, head_dim]; k, v [batch, kv_heads, kv_len, head_dim], 16-bit; lse [batch, heads, q_len]
    fp32. head_dim is 64 or 128 with unit stride; q, k, v and out start, and their other strides are, at multiples of 16
    bytes. ``scale`` is at least 0. CONSUMERS is 2 or 3, KV_STAGES at least 2. ``NUM_PROGRAMS`` matters where
    PERSISTENT.
    """
    LOG2E = 1.4426950408889634
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    tiles_m = triton.cdiv(q_len, 64 * CONSUMERS)
    tiles = tiles_m * batch * heads
    dtype = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}.get(q.dtype)
    if dtype is None or head_dim not in (64, 128):
        raise ValueError(f"this kernel takes fp16 and bf16, and a head_dim of 64 or 128, not {q.dtype} and {head_dim}")

    def rows(x, block):
        shape = [1, 1, block, head_dim]
        layout = gl.NVMMASharedLayout.get_default_for(shape, dtype)
        return TensorDescriptor(x, list(x.shape), list(x.stride()), shape, layout)

    attention_fwd_kernel[(min(tiles, NUM_PROGRAMS) if PERSISTENT else tiles,)](
        rows(q, 64),
        rows(k, BLOCK_N),
        rows(v, BLOCK_N),
        rows(out, 64),
        lse,
        *lse.stride(),
        tiles_m,
        batch * heads,
        heads,
        heads // kv_heads,
        q_len,
        kv_len,
        max(scale * LOG2E, 1e-30),  # a masked logit is -inf also where the scale is 0
        CONSUMERS=CONSUMERS,
        BLOCK_N=BLOCK_N,
        HEAD_DIM=head_dim,
        KV_STAGES=KV_STAGES,
        Q_STAGES=Q_STAGES,
        HEAD_GROUP=HEAD_GROUP,
        IS_CAUSAL=IS_CAUSAL,
        PING_PONG=PING_PONG,
        EARLY_RELEASE=EARLY_RELEASE,
        num_warps=4,
    )
