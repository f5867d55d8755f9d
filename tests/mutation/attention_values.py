"""Bugs of what is computed, and of its precision."""

from __future__ import annotations

from tests.mutation.attention_templates import BASE_E, DIVIDED, HALF, INF, PV, QK, SCALE, SHAPE, SUM, attention
from tests.mutation.rewriting import Change

VALUES = (
    attention(
        "half_of_head_dim",
        "q.k over the first half of head_dim",
        Change(
            QK,
            "tl.dot((q * (dim < HEAD_DIM // 2)).to(q.dtype), any_k, **any_more)",
        ),
        ("pointer",),
        also={
            "descriptor": Change(
                QK,
                "tl.dot((q * (tl.arange(0, HEAD_DIM)[None, :] < HEAD_DIM // 2)).to(q.dtype), any_k, **any_more)",
            )
        },
    ),
    attention("not_scaled", "q.k without its scale", Change(SCALE, "LOG2E")),
    attention("scaled_twice", "q.k with the square of its scale", Change(SCALE, "scale * scale * LOG2E")),
    attention(
        "q_scaled_and_rounded",
        "q is scaled and rounded beforehand, which the config does not declare",
        (Change(SCALE, "1.0"), Change(SHAPE, f"{SHAPE}\nq = q * (scale * 1.4426950408889634)")),
        dtypes=HALF,
    ),
    attention("lse_in_base_2", "the log-sum-exp is left in base 2", Change("(any_m + any_l) * LN2", "any_m + any_l")),
    attention(
        "lse_half_converted",
        "only the sum's part of the log-sum-exp is brought to base e",
        Change("(any_m + any_l) * LN2", "any_m + any_l * LN2"),
    ),
    attention(
        "lse_without_the_maximum",
        "the log-sum-exp without the maximum",
        Change("lse = (any_m + any_l) * LN2", "lse = any_l * LN2"),
    ),
    attention(
        "lse_of_a_base_2_log",
        "the logarithm of the wrong base",
        Change("m + tl.log(l_safe)", "m + tl.log2(l_safe)"),
        config=BASE_E,
    ),
    attention("not_divided", "the output is not divided by the sum", Change(DIVIDED, "acc")),
    attention(
        "divided_by_one_sum",
        "every query of a tile is divided by the largest sum of the tile",
        Change(DIVIDED, "acc / tl.max(l_safe, axis=0)"),
    ),
    attention(
        "weights_in_fp8",
        "the weights are rounded to fp8 before the second product, which the config does not declare",
        Change("p.to(v.dtype)", "p.to(tl.float8e5).to(v.dtype)"),
    ),
    attention(
        "weights_in_bf16",
        "the weights are rounded to bf16 before the second product, which the config does not declare",
        Change("p.to(v.dtype)", "p.to(tl.bfloat16).to(v.dtype)"),
        dtypes=("fp16", "fp32"),
    ),
    attention(
        "sum_of_rounded_weights",
        "the sum is taken of the rounded weights, which the config does not declare",
        Change("tl.sum(p, axis=1)", "tl.sum(p.to(q.dtype).to(tl.float32), axis=1)"),
        dtypes=HALF,
    ),
    attention("sum_in_bf16", "the sum is rounded to bf16", Change(SUM, f"{SUM}\nl = l.to(tl.bfloat16).to(tl.float32)")),
    attention("sum_in_fp16", "the sum is rounded to fp16", Change(SUM, f"{SUM}\nl = l.to(tl.float16).to(tl.float32)")),
    attention(
        "acc_in_bf16",
        "the accumulator is rounded to bf16 in every tile",
        Change(PV, f"{PV}\nacc = acc.to(tl.bfloat16).to(tl.float32)"),
    ),
    attention(
        "acc_in_fp16",
        "the accumulator is rounded to fp16 in every tile",
        Change(PV, f"{PV}\nacc = acc.to(tl.float16).to(tl.float32)"),
        dtypes=("fp16", "fp32"),
    ),
    attention(
        "logits_in_fp16",
        "q.k is rounded to fp16",
        Change("tl.dot(q, **any_more)", "tl.dot(q, **any_more).to(tl.float16).to(tl.float32)"),
    ),
    attention(
        "tf32_undeclared",
        "q.k of fp32 is taken in tf32, which the config does not declare",
        Change(
            "tl.dot(q, **any_more)",
            "tl.dot((q.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True), **any_more)",
        ),
        dtypes=("fp32",),
    ),
    attention("zeros", "the output is zero", Change(DIVIDED, f"{DIVIDED} * 0.0")),
    attention(
        "mean_of_the_values",
        "every visible key has the same weight",
        (
            Change("p = tl.exp2(x)", f"p = tl.where(x == {INF}, 0.0, 1.0)"),
            Change("tl.exp2(m - m_safe)", "m_safe * 0.0 + 1.0"),
        ),
    ),
    attention(
        "one_column_wrong_by_3_percent",
        "one column of the output is wrong by 3 percent",
        Change(DIVIDED, f"{DIVIDED} * tl.where(dim == 5, 1.03, 1.0)"),
        ("pointer",),
        also={"descriptor": Change(DIVIDED, f"{DIVIDED} * tl.where(tl.arange(0, HEAD_DIM)[None, :] == 5, 1.03, 1.0)")},
    ),
)
