"""Bugs of what is computed for each element, and of its precision."""

from __future__ import annotations

from tests.mutation.rewriting import Change
from tests.mutation.softmax_templates import BLOCK, EXP2, HALF, INF, NARROW, RECOMPUTE, ROW_MAX, TILED, softmax

VALUES = (
    softmax(
        "no_maximum",
        "exponentials of the logits themselves",
        Change(ROW_MAX, "m = tl.max(tl.where(logits > 0.0, 0.0, 0.0), **any_more)"),
        BLOCK,
        also=dict.fromkeys(TILED, Change("m_new = tl.maximum(m, logits)", "m_new = tl.where(logits > 0.0, 0.0, 0.0)")),
    ),
    softmax(
        "maximum_of_the_magnitudes",
        "the largest magnitude where the largest value belongs",
        Change(ROW_MAX, f"m = tl.max(tl.where(logits == {INF}, logits, tl.abs(logits)), **any_more)"),
        BLOCK,
    ),
    softmax(
        "maximum_of_half_the_row",
        "the maximum over the first half of the columns",
        Change(ROW_MAX, f"m = tl.max(tl.where(col < (cols + 1) // 2, logits, {INF}), **any_more)"),
        BLOCK,
    ),
    softmax(
        "maximum_of_all_rows",
        "one maximum for all rows of the block: all weights of a much lower row underflow",
        Change("tl.max(logits, **any_more)", "tl.max(tl.max(logits, **any_more), axis=0, keep_dims=True)"),
        ("several_rows",),
    ),
    softmax(
        "sum_of_all_rows",
        "one sum for all rows of the block",
        Change("tl.sum(p, **any_more)", "tl.sum(tl.sum(p, **any_more), axis=0, keep_dims=True)"),
        ("several_rows",),
    ),
    softmax(
        "not_divided",
        "the weights are written without their sum",
        Change("p * (1.0 / l)", "p"),
        BLOCK,
        also=dict.fromkeys(TILED, Change("scale = 1.0 / l_row", "scale = 1.0 + 0.0 * l_row")),
    ),
    softmax(
        "base_2_throughout",
        "exp2 of logits that were never multiplied by log2(e)",
        Change("tl.exp2(any_d * LOG2E)", "tl.exp2(any_d)"),
        config=EXP2,
    ),
    softmax(
        "output_in_base_2",
        "the sum has log2(e) in its weights, the output has not",
        Change("tl.exp2((x.to(tl.float32) - m_row) * LOG2E)", "tl.exp2(x.to(tl.float32) - m_row)"),
        TILED,
        config=EXP2,
        classic=True,
    ),
    softmax(
        "natural_log_under_exp2",
        "the recomputed exponential subtracts the logarithm of the wrong base",
        Change("tl.log2(l)", "tl.log(l)"),
        ("whole_row", "persistent"),
        config=f"{EXP2},{RECOMPUTE}",
        classic=True,
    ),
    softmax(
        "base_2_log_under_exp",
        "the recomputed exponential subtracts the logarithm of the wrong base",
        Change("tl.log(l)", "tl.log2(l)"),
        ("whole_row", "persistent"),
        config=RECOMPUTE,
        classic=True,
    ),
    softmax(
        "recomputed_without_the_maximum",
        "the recomputed exponential forgets the maximum",
        Change("any_x - m - tl.log(l)", "any_x - tl.log(l)"),
        ("whole_row", "persistent"),
        config=RECOMPUTE,
    ),
    softmax(
        "halves_swapped",
        "the two 16-bit halves of a word change places",
        Change("low.to(tl.uint32) | (high.to(tl.uint32) << 16)", "high.to(tl.uint32) | (low.to(tl.uint32) << 16)"),
        ("whole_row", "persistent"),
        config=RECOMPUTE,
        dtypes=HALF,
    ),
    softmax(
        "upper_half_not_masked",
        "the lower half stays in the low bits of the upper one",
        Change("pairs & 0xFFFF0000", "pairs"),
        ("whole_row", "persistent"),
        config=RECOMPUTE,
        dtypes=("bf16",),
    ),
    softmax(
        "sum_in_bf16",
        "the sum is rounded to bf16",
        Change("l = tl.sum(p, **any_more)", "l = tl.sum(p, **any_more).to(tl.bfloat16).to(tl.float32)"),
        BLOCK,
        also=dict.fromkeys(TILED, Change("m = m_new", "m = m_new\nl = l.to(tl.bfloat16).to(tl.float32)")),
    ),
    softmax(
        "sum_in_fp16",
        "the sum is rounded to fp16",
        Change("l = tl.sum(p, **any_more)", "l = tl.sum(p, **any_more).to(tl.float16).to(tl.float32)"),
        BLOCK,
        also=dict.fromkeys(TILED, Change("m = m_new", "m = m_new\nl = l.to(tl.float16).to(tl.float32)")),
        dtypes=("fp32",),
    ),
    softmax(
        "weights_in_bf16",
        "the sum is taken of weights that were rounded to bf16",
        Change("l = tl.sum(p, **any_more)", "l = tl.sum(p.to(tl.bfloat16).to(tl.float32), **any_more)"),
        BLOCK,
        also=dict.fromkeys(
            TILED, Change("tl.exp(logits - m_safe)", "tl.exp(logits - m_safe).to(tl.bfloat16).to(tl.float32)")
        ),
    ),
    softmax(
        "difference_in_bf16",
        "what is exponentiated is rounded to bf16",
        Change("tl.exp(logits - m)", "tl.exp((logits - m).to(tl.bfloat16).to(tl.float32))"),
        BLOCK,
        also=dict.fromkeys(
            TILED,
            Change(
                "tl.exp(x.to(tl.float32) - m_row)", "tl.exp((x.to(tl.float32) - m_row).to(tl.bfloat16).to(tl.float32))"
            ),
        ),
    ),
    softmax(
        "difference_in_fp16",
        "what is exponentiated is rounded to fp16",
        Change("tl.exp(logits - m)", "tl.exp((logits - m).to(tl.float16).to(tl.float32))"),
        BLOCK,
    ),
    softmax(
        "small_outputs_flushed",
        "what is below 1e-7 is written as 0",
        Change(NARROW, "tl.where(any_y < 1.0e-7, 0.0, any_y).to(out_ptr.dtype.element_ty)"),
        dtypes=("bf16", "fp32"),
    ),
    softmax(
        "output_cut_off",
        "the output is cut off, not rounded",
        Change(NARROW, 'any_y.to(out_ptr.dtype.element_ty, fp_downcast_rounding="rtz")'),
        dtypes=HALF,
    ),
    softmax(
        "output_through_bf16",
        "the output is rounded to bf16 on its way",
        Change(NARROW, "any_y.to(tl.bfloat16).to(out_ptr.dtype.element_ty)"),
        dtypes=("fp16", "fp32"),
    ),
    softmax(
        "output_through_fp16",
        "the output is rounded to fp16 on its way",
        Change(NARROW, "any_y.to(tl.float16).to(out_ptr.dtype.element_ty)"),
        dtypes=("bf16", "fp32"),
    ),
    softmax(
        "zeros",
        "the output is zero",
        Change(NARROW, "(any_y * 0.0).to(out_ptr.dtype.element_ty)"),
    ),
    softmax(
        "uniform",
        "every weight is 1 / cols",
        Change(NARROW, "(any_y * 0.0 + 1.0 / cols).to(out_ptr.dtype.element_ty)"),
    ),
    softmax(
        "one_column_wrong_by_3_percent",
        "one element of a row is wrong by 3 percent",
        Change(NARROW, "(any_y * tl.where(col == 5, 1.03, 1.0)).to(out_ptr.dtype.element_ty)"),
    ),
    softmax(
        "everything_wrong_by_1_percent",
        "every element is too large by 1 percent",
        Change(NARROW, "(any_y * 1.01).to(out_ptr.dtype.element_ty)"),
    ),
)
