"""Bugs of addresses, heads and the launch."""

from __future__ import annotations

from tests.mutation.attention_templates import LSE, OUT, SHAPE, attention
from tests.mutation.rewriting import Change

ADDRESSES = (
    attention(
        "padded_lanes_loaded",
        "lanes beyond head_dim hold the next rows",
        (
            Change("(query < q_len)[:, None] & (dim < HEAD_DIM)", "(query < q_len)[:, None]", which=0),
            Change(OUT, "tl.store(any_p, out, mask=inside & (dim < HEAD_DIM))"),
            Change("(key < kv_len)[:, None] & (dim < HEAD_DIM)", "(key < kv_len)[:, None]"),
            Change("tl.load(k_tile, mask=dim < HEAD_DIM, other=0.0)", "tl.load(k_tile)"),
        ),
        ("pointer",),
    ),
    attention(
        "padded_lanes_of_the_keys_loaded",
        "the keys' lanes beyond head_dim hold the next rows, and NaN past the last",
        (
            Change(
                "tl.load(k_tile, mask=inside, other=0.0)", "tl.load(k_tile, mask=(key < kv_len)[:, None], other=0.0)"
            ),
            Change("tl.load(k_tile, mask=dim < HEAD_DIM, other=0.0)", "tl.load(k_tile)"),
        ),
        ("pointer",),
    ),
    attention(
        "padded_lanes_of_the_values_loaded",
        "the values' lanes beyond head_dim hold the next rows",
        (
            Change(
                "tl.load(v_tile, mask=inside, other=0.0)", "tl.load(v_tile, mask=(key < kv_len)[:, None], other=0.0)"
            ),
            Change("tl.load(v_tile, mask=dim < HEAD_DIM, other=0.0)", "tl.load(v_tile)"),
        ),
        ("pointer",),
        equivalent="they reach columns of the output that are not stored; a read past the end shows in no output",
    ),
    attention(
        "padded_lanes_stored",
        "the output's lanes beyond head_dim are written over the next rows",
        Change(OUT, "tl.store(any_p, out, mask=(query < q_len)[:, None])"),
        ("pointer",),
    ),
    attention(
        "values_past_the_end_loaded",
        "values past the last key are read: 0 times NaN",
        Change("tl.load(v_tile, mask=inside, other=0.0)", "tl.load(v_tile, mask=dim < HEAD_DIM, other=0.0)"),
        ("pointer",),
    ),
    attention(
        "keys_past_the_end_loaded",
        "keys past the last one are read",
        Change("tl.load(k_tile, mask=inside, other=0.0)", "tl.load(k_tile, mask=dim < HEAD_DIM, other=0.0)"),
        ("pointer",),
        equivalent="their logits are replaced by -inf; a read past the end shows in no output",
    ),
    attention(
        "queries_past_the_end_loaded",
        "queries past the last one are read",
        Change(
            "tl.load(any_q, mask=inside, other=0.0)",
            "tl.load(any_q, mask=dim < HEAD_DIM, other=0.0)",
            function="attention_fwd_kernel",
        ),
        ("pointer",),
        equivalent="their outputs are not stored; a read past the end shows in no output",
    ),
    attention(
        "outputs_past_the_end_stored",
        "the output of queries past the last one is written",
        Change(OUT, "tl.store(any_p, out, mask=dim < HEAD_DIM)"),
        ("pointer",),
    ),
    attention(
        "lse_not_masked",
        "the log-sum-exp of queries past the last one is written",
        Change(LSE, "tl.store(any_p, lse)"),
    ),
    attention(
        "lse_one_too_many",
        "one log-sum-exp past the end is written",
        Change(LSE, "tl.store(any_p, lse, mask=query < q_len + 1)"),
    ),
    attention(
        "last_lse_not_stored",
        "the last log-sum-exp is never written",
        Change(LSE, "tl.store(any_p, lse, mask=query < q_len - 1)"),
    ),
    attention(
        "lse_masked_by_the_keys",
        "the log-sum-exp is written for as many queries as there are keys",
        Change(LSE, "tl.store(any_p, lse, mask=query < kv_len)"),
    ),
    attention(
        "last_output_not_stored",
        "the last query's output is never written",
        Change(OUT, "tl.store(any_p, out, mask=inside & (query < q_len - 1)[:, None])"),
        ("pointer",),
    ),
    attention(
        "lse_of_the_first_head",
        "the log-sum-exp of every head is written at the first one's place",
        Change("lse_head + any_r * lse_stride_row", "lse_ptr + any_r * lse_stride_row"),
    ),
    attention(
        "outputs_swapped",
        "outputs are written to their neighbours' places",
        Change(
            "out_head + row[:, None] * any_s",
            "out_head + (row - row % 2 + (row + 1) % 2)[:, None] * any_s",
        ),
        ("pointer",),
    ),
    attention(
        "heads_by_modulo",
        "query heads go round the key/value heads",
        Change("head // group", "head % (heads // group)"),
    ),
    attention(
        "heads_not_grouped", "each query head has a key/value head of its own number", Change("head // group", "head")
    ),
    attention(
        "keys_of_the_first_batch",
        "every batch reads the first one's keys",
        Change("k_ptr + batch * any_s + any_h", "k_ptr + any_h"),
        ("pointer",),
        also={
            "descriptor": Change(
                "k_desc.load([batch, kv_head, first_key, 0])", "k_desc.load([batch * 0, kv_head, first_key, 0])"
            )
        },
    ),
    attention(
        "values_of_the_first_head",
        "every head reads the first one's values",
        Change("v_ptr + any_b + kv_head * v_stride_head", "v_ptr + any_b"),
        ("pointer",),
        also={
            "descriptor": Change(
                "v_desc.load([batch, kv_head, first_key, 0])", "v_desc.load([batch, kv_head * 0, first_key, 0])"
            )
        },
    ),
)

LAUNCHES = (
    attention(
        "programs_of_one_batch",
        "one batch's programs are launched",
        Change("tiles_m * batch * heads", "tiles_m * heads"),
    ),
    attention(
        "query_tiles_rounded_down",
        "the ragged last query tile is left out",
        Change("triton.cdiv(q_len, BLOCK_M)", "q_len // BLOCK_M"),
    ),
    attention(
        "lone_last_query_lost",
        "a last query tile of one query is left out",
        Change("triton.cdiv(q_len, BLOCK_M)", "triton.cdiv(q_len - 1, BLOCK_M)"),
    ),
    attention(
        "query_tiles_by_the_keys_block",
        "query tiles are counted in blocks of keys, right only where the two agree",
        Change("triton.cdiv(q_len, BLOCK_M)", "triton.cdiv(q_len, BLOCK_N)"),
        ("pointer",),
        also={"descriptor": Change("triton.cdiv(q_len, BLOCK_M)", "triton.cdiv(q_len, 2 * BLOCK_M)")},
    ),
    attention(
        "keys_counted_by_the_queries",
        "launch() takes the number of queries for that of keys",
        Change("k.shape[2]", "q.shape[2]"),
    ),
    attention(
        "group_of_one", "launch() says that every query head has a key/value head", Change("heads // kv_heads", "1")
    ),
    attention(
        "key_head_stride_of_the_queries",
        "heads of keys are as far apart as heads of queries",
        Change("k.stride(1)", "q.stride(1)"),
        ("pointer",),
    ),
    attention(
        "key_row_stride_padded",
        "rows of keys are as far apart as the padded head_dim",
        Change("k.stride(2)", "triton.next_power_of_2(head_dim)"),
        ("pointer",),
    ),
    attention("lse_head_stride_of_rows", "log-sum-exps of heads overlap", Change("lse.stride(1)", "lse.stride(2)")),
    attention("lse_batch_stride_of_heads", "log-sum-exps of batches overlap", Change("lse.stride(0)", "lse.stride(1)")),
    attention(
        "value_strides_of_the_keys",
        "values are read with the keys' strides",
        (
            Change("v.stride(0)", "k.stride(0)"),
            Change("v.stride(1)", "k.stride(1)"),
            Change("v.stride(2)", "k.stride(2)"),
        ),
        ("pointer",),
    ),
    attention("input_changed", "launch() scales q in place", Change(SHAPE, f"{SHAPE}\nq.mul_(0.5)")),
    attention(
        "first_input_kept",
        "launch() computes the first values of each shape that it was given again and again",
        Change(SHAPE, f"{SHAPE}\nv = launch.__dict__.setdefault(v.shape, v.clone())"),
    ),
    attention(
        "other_bits_the_second_time",
        "every other launch rounds its scale differently, within the bound",
        Change(
            SHAPE,
            f"{SHAPE}\nlaunch.calls = getattr(launch, 'calls', 0) + 1\nscale *= 1 + launch.calls % 2 * 2.0**-23",
        ),
    ),
)
