"""The grouped product of a mixture of experts as an operator of one's own.

Each token goes to ``topk`` experts. ``pairs`` lists the (token, choice) pairs as token * topk + choice, those of one
expert after those of another; ``starts`` says where each expert's pairs begin. The output has a row for each pair, the
token times its expert's weights::

    tuner tune examples/moe/moe.py:moe_up --shape tokens=256,topk=2,experts=8,hidden=4096,intermediate=3584 --dtype bf16
    tuner export --format vllm_moe -o configs --operator examples/moe/moe.py:moe_up --seed
"""

import torch
import triton
import triton.language as tl

import tuner


# tiles_m follows from several sizes. Not specialised on it, small problems of the check run the binary that is timed.
@triton.jit(do_not_specialize=["tiles_m"])
def expert_products_kernel(
    a_ptr,
    w_ptr,
    pairs_ptr,
    starts_ptr,
    out_ptr,
    topk,
    experts,
    width,
    hidden,
    tiles_m,
    EXPERTS: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """One program makes BLOCK_SIZE_M pairs of one expert times BLOCK_SIZE_N of its rows of weights."""
    # Programs that follow one another share rows of weights: GROUP_SIZE_M tiles of pairs before the next tile of rows.
    program, tiles_n = tl.program_id(0), tl.cdiv(width, BLOCK_SIZE_N)
    first = program // (GROUP_SIZE_M * tiles_n) * GROUP_SIZE_M
    together = min(tiles_m - first, GROUP_SIZE_M)
    place = program % (GROUP_SIZE_M * tiles_n)
    tile_m, tile_n = first + place % together, place // together

    # Which expert the tile is of: every expert begins a tile of its own, so there are more tiles than pairs would fill.
    expert = tl.arange(0, EXPERTS)
    begin = tl.load(starts_ptr + expert, mask=expert < experts, other=0)
    end = tl.load(starts_ptr + expert + 1, mask=expert < experts, other=0)
    tiles = (end - begin + BLOCK_SIZE_M - 1) // BLOCK_SIZE_M
    mine = tl.sum((tl.cumsum(tiles, 0) <= tile_m).to(tl.int32), 0)
    if mine >= experts:
        return
    before = tl.sum(tl.where(expert < mine, tiles, 0), 0)
    row = tl.load(starts_ptr + mine) + (tile_m - before) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    has_row = row < tl.load(starts_ptr + mine + 1)
    pair = tl.load(pairs_ptr + row, mask=has_row, other=0)

    col = tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    a_rows = a_ptr + (pair // topk).to(tl.int64)[:, None] * hidden
    w_rows = w_ptr + (mine.to(tl.int64) * width + col)[None, :] * hidden
    acc = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), tl.float32)
    for at in range(0, hidden, BLOCK_SIZE_K):
        k = at + tl.arange(0, BLOCK_SIZE_K)
        a = tl.load(a_rows + k[None, :], mask=has_row[:, None] & (k[None, :] < hidden), other=0.0)
        w = tl.load(w_rows + k[:, None], mask=(col[None, :] < width) & (k[:, None] < hidden), other=0.0)
        acc = tl.dot(a, w, acc)
    out = out_ptr + pair.to(tl.int64)[:, None] * width + col[None, :]
    tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=has_row[:, None] & (col[None, :] < width))


def launch(
    a, w, pairs, starts, out, *, EXPERTS, BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M, num_warps, num_stages
):
    """a [tokens, hidden], w [experts, width, hidden], pairs [tokens * topk], starts [experts + 1]; out [pairs, ...]."""
    experts, width, hidden = w.shape
    total = pairs.shape[0]
    tiles_m = total // BLOCK_SIZE_M + min(experts, total)  # the most that the pairs can take, however they fall
    grid = (tiles_m * triton.cdiv(width, BLOCK_SIZE_N),)
    expert_products_kernel[grid](
        a,
        w,
        pairs,
        starts,
        out,
        total // a.shape[0],
        experts,
        width,
        hidden,
        tiles_m,
        EXPERTS=EXPERTS,
        BLOCK_SIZE_M=BLOCK_SIZE_M,
        BLOCK_SIZE_N=BLOCK_SIZE_N,
        BLOCK_SIZE_K=BLOCK_SIZE_K,
        GROUP_SIZE_M=GROUP_SIZE_M,
        num_warps=num_warps,
        num_stages=num_stages,
    )


def by_expert(a, w, pairs, starts):
    """One expert after the other: its pairs times its weights."""
    out = a.new_zeros(pairs.shape[0], w.shape[1])
    topk = pairs.shape[0] // a.shape[0]
    for expert in range(w.shape[0]):
        chosen = pairs[starts[expert] : starts[expert + 1]].long()
        out[chosen] = a[chosen // topk] @ w[expert].T
    return out


def bound(units, a, w, pairs, starts):
    """The error of a sum of products is relative to the sum of their magnitudes."""
    return units.summed(a.shape[1]) * by_expert(a.abs(), w.abs(), pairs, starts)


def route(inputs, scores):
    """Send every token to the ``topk`` experts with the largest of ``scores`` [tokens, experts]."""
    pairs, starts = inputs["pairs"], inputs["starts"]
    chosen = scores.topk(pairs.shape[0] // scores.shape[0], dim=1).indices.flatten()
    pairs.copy_(chosen.argsort(stable=True))
    starts[0] = 0
    starts[1:].copy_(chosen.bincount(minlength=scores.shape[1]).cumsum(0))


def draw(inputs, sizes, generator):
    """Every expert is as likely as any other."""
    route(inputs, torch.rand(sizes["tokens"], sizes["experts"], generator=generator))


def crowded(inputs):
    """Every token goes to the last experts, and none to the others."""
    tokens, experts = inputs["a"].shape[0], inputs["w"].shape[0]
    route(inputs, torch.arange(experts).float().expand(tokens, experts))


def work(sizes):
    """Two operations for each product; of the weights, those of experts that get a token are read."""
    pairs, width = sizes["tokens"] * sizes["topk"], 2 * sizes["intermediate"]
    experts = min(sizes["experts"], pairs)
    moved = 2 * (sizes["tokens"] * sizes["hidden"] + experts * width * sizes["hidden"] + pairs * width)
    return tuner.Work(flops=2.0 * pairs * width * sizes["hidden"], bytes_moved=moved)


moe_up = tuner.OwnOperator(
    name="moe_up",
    summary="each token times the gate and up weights of its experts",
    sizes={
        "tokens": tuner.Size(256, "tokens of the batch"),
        "topk": tuner.Size(2, "experts that a token goes to", fixed=True),
        "experts": tuner.Size(8, "experts", fixed=True),
        "hidden": tuner.Size(4096, "width of a token, over which the products are summed"),
        "intermediate": tuner.Size(3584, "width inside an expert; the weights hold gate and up, twice as many rows"),
    },
    inputs={
        "a": ("tokens", "hidden"),
        "w": ("experts", "2 * intermediate", "hidden"),
        "pairs": tuner.TensorSpec(("tokens * topk",), "int32"),
        "starts": tuner.TensorSpec(("experts + 1",), "int32"),
    },
    outputs={"out": ("tokens * topk", "2 * intermediate")},
    requires=("topk <= experts",),
    reduced="hidden",
    dtypes=("bf16", "fp16"),
    reference=by_expert,
    bound=bound,
    draw=draw,
    families={"crowded": crowded},
    work=work,
    space="moe.yaml",
)
