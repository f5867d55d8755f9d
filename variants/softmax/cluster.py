"""Row softmax by a cluster of programs: CLUSTER multiprocessors hold a row together and exchange (m, l) directly.

Each block of the cluster reads its BLOCK_COLS columns once and holds them, in registers, in shared memory or half in
each; it sends the maximum m and the sum l of them to the shared memory of all the others, and when it has theirs it
writes exp(x - M) / L of its part. A row is read once, however long it is, and no block waits on
global memory.

For 16-bit dtypes and devices with clusters (sm_90). The exchange is PTX, and so are the loads and stores of 16 bytes
that hold a part in shared memory; rows that these do not fit (a length that is not CLUSTER * BLOCK_COLS, an odd stride)
take plain loads. It cannot run in the interpreter, which has no clusters.
"""

import triton
import triton.language as tl


@triton.jit
def _max_bf16(a, b):
    """The larger of each of two bf16 in a word."""
    return tl.inline_asm_elementwise(
        "max.bf16x2 $0, $1, $2;", constraints="=r,r,r", args=[a, b], dtype=tl.uint32, is_pure=True, pack=1
    )


@triton.jit
def _max_fp16(a, b):
    """The larger of each of two fp16 in a word."""
    return tl.inline_asm_elementwise(
        "max.f16x2 $0, $1, $2;", constraints="=r,r,r", args=[a, b], dtype=tl.uint32, is_pure=True, pack=1
    )


@triton.jit
def _larger(a, b, DTYPE: tl.constexpr):
    """The larger of each of two ``DTYPE`` in a word."""
    if DTYPE.is_bf16():
        largest = _max_bf16(a, b)
    else:
        largest = _max_fp16(a, b)
    return largest


@triton.jit
def _low(words, DTYPE: tl.constexpr):
    """The first of two ``DTYPE`` in a word, as fp32."""
    if DTYPE.is_bf16():
        # A bf16 is the upper half of an fp32.
        value = (words << 16).to(tl.float32, bitcast=True)
    else:
        value = (words & 0xFFFF).to(tl.uint16).to(DTYPE, bitcast=True).to(tl.float32)
    return value


@triton.jit
def _high(words, DTYPE: tl.constexpr):
    """The second of two ``DTYPE`` in a word, as fp32."""
    if DTYPE.is_bf16():
        value = (words & 0xFFFF0000).to(tl.float32, bitcast=True)
    else:
        value = (words >> 16).to(tl.uint16).to(DTYPE, bitcast=True).to(tl.float32)
    return value


@triton.jit
def _hold(words, after, zero):
    """``words``, but the compiler cannot unpack them before it has ``after`` (fp32): it must not keep them unpacked.

    ``zero`` is 0, which the compiler cannot know.
    """
    return words + (after.to(tl.int32, bitcast=True) & zero).to(tl.uint32)


@triton.jit
def _exponentials(words, m, DTYPE: tl.constexpr):
    """exp(x - m) of both x of each word, added."""
    LOG2E: tl.constexpr = 1.4426950408889634
    return tl.exp2((_low(words, DTYPE) - m) * LOG2E) + tl.exp2((_high(words, DTYPE) - m) * LOG2E)


@triton.jit
def _softmax(words, m, log_l, DTYPE: tl.constexpr):
    """exp(x - m) / l of both x of each word, as two of ``DTYPE`` in a word. ``log_l`` is in base 2."""
    LOG2E: tl.constexpr = 1.4426950408889634
    low = tl.exp2((_low(words, DTYPE) - m) * LOG2E - log_l)
    high = tl.exp2((_high(words, DTYPE) - m) * LOG2E - log_l)
    if DTYPE.is_bf16():
        both = tl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;",
            constraints="=r,r,r",
            args=[low, high],
            dtype=tl.uint32,
            is_pure=True,
            pack=1,
        )
    else:
        both = tl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;",
            constraints="=r,r,r",
            args=[low, high],
            dtype=tl.uint32,
            is_pure=True,
            pack=1,
        )
    return both


@triton.jit
def _shared(number, BYTES: tl.constexpr):
    """The address of ``BYTES`` of shared memory of this block. Call it once; ``number`` is any int32."""
    if BYTES == 8192:
        address = tl.inline_asm_elementwise(
            "{ .shared .align 16 .b8 held[8192]; mov.u32 $0, held; }",
            constraints="=r,r",
            args=[number],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    elif BYTES == 16384:
        address = tl.inline_asm_elementwise(
            "{ .shared .align 16 .b8 held[16384]; mov.u32 $0, held; }",
            constraints="=r,r",
            args=[number],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.static_assert(BYTES == 32768)
        address = tl.inline_asm_elementwise(
            "{ .shared .align 16 .b8 held[32768]; mov.u32 $0, held; }",
            constraints="=r,r",
            args=[number],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    return address


@triton.jit
def _fetch(place, source):
    """Start copying 16 bytes from each address ``source`` to ``place`` in shared memory; gives ``place``."""
    return tl.inline_asm_elementwise(
        "{ cp.async.cg.shared.global [$1], [$2], 16; mov.u32 $0, $1; }",
        constraints="=r,r,l",
        args=[place, source],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _wait_for_fetches(number):
    """Wait for all that this thread has fetched. ``number`` is any int32."""
    return tl.inline_asm_elementwise(
        "{ cp.async.wait_all; mov.u32 $0, $1; }",
        constraints="=r,r",
        args=[number],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _get(place):
    """The four words at each ``place`` in shared memory. A thread sees what it fetched itself."""
    return tl.inline_asm_elementwise(
        "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];",
        constraints="=r,=r,=r,=r,r",
        args=[place],
        dtype=(tl.uint32, tl.uint32, tl.uint32, tl.uint32),
        is_pure=False,
        pack=1,
    )


@triton.jit
def _read(source):
    """The four words at each address ``source``."""
    return tl.inline_asm_elementwise(
        "ld.global.v4.b32 {$0, $1, $2, $3}, [$4];",
        constraints="=r,=r,=r,=r,l",
        args=[source],
        dtype=(tl.uint32, tl.uint32, tl.uint32, tl.uint32),
        is_pure=False,
        pack=1,
    )


@triton.jit
def _pin(word):
    """``word``. Triton 3.6, to have the words in another layout, clones what gives several, and then takes the first of
    each clone; it does not look behind this."""
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", constraints="=r,r", args=[word], dtype=tl.uint32, is_pure=False, pack=1
    )


@triton.jit
def _write(target, a, b, c, d):
    """Store four words at each address ``target``."""
    tl.inline_asm_elementwise(
        "{ st.global.v4.b32 [$1], {$2, $3, $4, $5}; mov.u32 $0, $2; }",
        constraints="=r,l,r,r,r,r",
        args=[target, a, b, c, d],
        dtype=tl.uint32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _begin(number, bytes):
    """Ready shared memory of this block to receive ``bytes`` of pairs, tell the cluster so, and give its address.

    It starts with the mbarrier that counts the bytes; the pairs follow 16 bytes on. ``number`` is any int32.
    """
    return tl.inline_asm_elementwise(
        """
        {
            .reg .pred first;
            .reg .b32 thread;
            .shared .align 16 .b8 pairs[144];
            mov.u32 $0, pairs;
            mov.u32 thread, %tid.x;
            setp.eq.u32 first, thread, 0;
            @first mbarrier.init.shared::cta.b64 [$0], 1;
            @first mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $2;
            @first fence.mbarrier_init.release.cluster;
            barrier.cluster.arrive.relaxed.aligned;
        }
        """,
        constraints="=r,r,r",
        args=[number, bytes],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _exchange(m, l, pairs, CLUSTER: tl.constexpr):
    """The row's (M, L) from the (m, l) of each block's part, in every block; each [CLUSTER] fp32, in base e.

    Each block sends its pair to all blocks, and waits for as many. A store that the receiver's mbarrier counts needs no
    fence; a barrier of the cluster would, and to wait for it costs about 7 % of the whole kernel on an H200. Where M is
    -inf, or a part has a NaN, L is NaN.
    """
    return tl.inline_asm_elementwise(
        """
        {
            .reg .pred go, done;
            .reg .b32 thread, rank, number, place, there, bar;
            .reg .f32 m, l, scale;
            barrier.cluster.wait.aligned;
            mov.u32 thread, %tid.x;
            mov.u32 rank, %cluster_ctarank;
            mad.lo.u32 place, rank, 8, $5;
            add.u32 place, place, 16;
            setp.lt.u32 go, thread, $4;
            mapa.shared::cluster.u32 there, place, thread;
            mapa.shared::cluster.u32 bar, $5, thread;
            @go st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {$2, $3}, [bar];
        WAIT:
            mbarrier.try_wait.parity.shared::cta.b64 done, [$5], 0;
            @!done bra WAIT;
            mov.f32 $0, 0fFF800000;
            add.u32 place, $5, 16;
            mov.u32 number, 0;
        MAXIMUM:
            ld.volatile.shared.f32 m, [place];
            max.f32 $0, $0, m;
            add.u32 place, place, 8;
            add.u32 number, number, 1;
            setp.lt.u32 go, number, $4;
            @go bra MAXIMUM;
            mov.f32 $1, 0f00000000;
            add.u32 place, $5, 16;
            mov.u32 number, 0;
        SUM:
            ld.volatile.shared.v2.f32 {m, l}, [place];
            sub.f32 scale, m, $0;
            mul.f32 scale, scale, 0f3FB8AA3B;
            ex2.approx.ftz.f32 scale, scale;
            fma.rn.f32 $1, scale, l, $1;
            add.u32 place, place, 8;
            add.u32 number, number, 1;
            setp.lt.u32 go, number, $4;
            @go bra SUM;
        }
        """,
        constraints="=&f,=&f,f,f,r,r",
        args=[m, l, tl.full([CLUSTER], CLUSTER, tl.int32), pairs],
        dtype=(tl.float32, tl.float32),
        is_pure=False,
        pack=1,
    )


@triton.jit
def _largest(words, DTYPE: tl.constexpr):
    """The maximum of each row of ``words`` [CLUSTER, N], fp32; and 0 instead of it where it is -inf."""
    if DTYPE.is_bf16():
        both = tl.reduce(words, 1, _max_bf16)
    else:
        both = tl.reduce(words, 1, _max_fp16)
    m = tl.maximum(_low(both, DTYPE), _high(both, DTYPE))
    # A part of nothing but -inf has l = 0: -inf - -inf would be NaN.
    return m, tl.where(m == float("-inf"), 0.0, m)


@triton.jit(do_not_specialize=["nothing"])
def softmax_cluster_kernel(
    x_ptr,  # [rows, cols], bf16 or fp16; rows are x_row_stride elements apart
    out_ptr,  # [rows, cols]; rows are out_row_stride elements apart
    x_row_stride,
    out_row_stride,
    cols,  # at most CLUSTER * BLOCK_COLS
    nothing,  # 0, which the compiler cannot know
    CLUSTER: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    SHARED_HALVES: tl.constexpr,  # how many halves of a part shared memory holds: 0, 1 or 2
    WHOLE_CHUNKS: tl.constexpr,  # cols == CLUSTER * BLOCK_COLS, and rows start at multiples of 16 bytes
):
    """One cluster computes row program_id; its block number i has columns i * BLOCK_COLS and on."""
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, CLUSTER)[:, None]
    pairs = _begin(nothing, 8 * CLUSTER) + tl.zeros([CLUSTER], tl.int32)
    x_row = x_ptr + row * x_row_stride
    out_row = out_ptr + row * out_row_stride
    if WHOLE_CHUNKS:
        # A chunk is 8 elements, 16 bytes, 4 words. Shared memory has the first chunks of a part, registers the others.
        CHUNKS: tl.constexpr = BLOCK_COLS // 16 if SHARED_HALVES == 1 else BLOCK_COLS // 8
        chunk = tl.arange(0, CHUNKS)[None, :]
        # Never loads; it is there because its layout, a chunk a thread, is what all that follows takes.
        at = part * BLOCK_COLS + chunk * 8
        at += tl.load(x_ptr.to(tl.pointer_type(tl.int32)) + at + nothing, mask=at < nothing, other=0)
        if SHARED_HALVES > 0:
            place = _shared(nothing, CHUNKS * 16) + chunk * 16 + (at & nothing)
            place = _fetch(place, (x_row + at).to(tl.int64))
        if SHARED_HALVES < 2:
            first = at + (CHUNKS * 8 if SHARED_HALVES == 1 else 0)
            a, b, c, d = _read((x_row + first).to(tl.int64))
            a, b, c, d = _pin(a), _pin(b), _pin(c), _pin(d)
        if SHARED_HALVES > 0:
            _wait_for_fetches(nothing)
            e, f, g, h = _get(place)
            largest = _larger(_larger(e, f, DTYPE), _larger(g, h, DTYPE), DTYPE)
        if SHARED_HALVES == 1:
            largest = _larger(largest, _larger(_larger(a, b, DTYPE), _larger(c, d, DTYPE), DTYPE), DTYPE)
        elif SHARED_HALVES == 0:
            largest = _larger(_larger(a, b, DTYPE), _larger(c, d, DTYPE), DTYPE)
        m, m_safe = _largest(largest, DTYPE)
        shift = m_safe[:, None]
        if SHARED_HALVES > 0:
            e, f, g, h = _get(place)
            p = (_exponentials(e, shift, DTYPE) + _exponentials(f, shift, DTYPE)) + (
                _exponentials(g, shift, DTYPE) + _exponentials(h, shift, DTYPE)
            )
        if SHARED_HALVES < 2:
            a = _hold(a, shift, nothing)
            b = _hold(b, shift, nothing)
            c = _hold(c, shift, nothing)
            d = _hold(d, shift, nothing)
            q = (_exponentials(a, shift, DTYPE) + _exponentials(b, shift, DTYPE)) + (
                _exponentials(c, shift, DTYPE) + _exponentials(d, shift, DTYPE)
            )
            if SHARED_HALVES == 1:
                p += q
            else:
                p = q
        m, l = _exchange(m, tl.sum(p, axis=1), pairs, CLUSTER)
        # A row of nothing but -inf has -inf - -inf here: NaN throughout, as it should.
        m = m[:, None]
        log_l = tl.log2(l)[:, None]
        if SHARED_HALVES > 0:
            e, f, g, h = _get(place)
            _write(
                (out_row + at).to(tl.int64),
                _softmax(e, m, log_l, DTYPE),
                _softmax(f, m, log_l, DTYPE),
                _softmax(g, m, log_l, DTYPE),
                _softmax(h, m, log_l, DTYPE),
            )
        if SHARED_HALVES < 2:
            _write(
                (out_row + first).to(tl.int64),
                _softmax(_hold(a, log_l, nothing), m, log_l, DTYPE),
                _softmax(_hold(b, log_l, nothing), m, log_l, DTYPE),
                _softmax(_hold(c, log_l, nothing), m, log_l, DTYPE),
                _softmax(_hold(d, log_l, nothing), m, log_l, DTYPE),
            )
    else:
        LOG2E: tl.constexpr = 1.4426950408889634
        col = part * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]
        x = tl.load(x_row + col, mask=col < cols, other=float("-inf"))
        m = tl.max(x.to(tl.float32), axis=1)
        m_safe = tl.where(m == float("-inf"), 0.0, m)
        l = tl.sum(tl.exp2((x.to(tl.float32) - m_safe[:, None]) * LOG2E), axis=1)
        m, l = _exchange(m, l, pairs, CLUSTER)
        y = tl.exp2((x.to(tl.float32) - m[:, None]) * LOG2E - tl.log2(l)[:, None])
        tl.store(out_row + col, y.to(out_ptr.dtype.element_ty), mask=col < cols)


def launch(x, out, *, CLUSTER, BLOCK_COLS, SHARED_HALVES, num_warps):
    """Write the softmax of ``x`` over its last axis into ``out``; both [rows, cols] with unit stride along cols.

    ``CLUSTER * BLOCK_COLS`` is at least cols, both powers of two. ``ValueError`` where a row is longer.
    """
    rows, cols = x.shape
    if cols > CLUSTER * BLOCK_COLS:
        raise ValueError(f"a row has {cols} columns, but this kernel holds {CLUSTER * BLOCK_COLS}; render one for it")
    whole = cols == CLUSTER * BLOCK_COLS and all(t.stride(0) % 8 == 0 and t.data_ptr() % 16 == 0 for t in (x, out))
    softmax_cluster_kernel[(rows,)](
        x,
        out,
        x.stride(0),
        out.stride(0),
        cols,
        0,
        CLUSTER=CLUSTER,
        BLOCK_COLS=BLOCK_COLS,
        SHARED_HALVES=SHARED_HALVES,
        WHOLE_CHUNKS=whole,
        num_warps=num_warps,
        num_ctas=CLUSTER,
    )
