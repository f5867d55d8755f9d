"""Bugs of the running maximum, sum and output."""

from __future__ import annotations

from tests.mutation.attention_templates import BASE_E, FIRST_L, FIRST_M, GUARD, MASK, PV, SCALE, SUM, attention
from tests.mutation.rewriting import Change


def carried(*names: str) -> tuple[Change, ...]:
    """The states ``names`` of a persistent program are set up once, and go on from one query tile to the next."""
    zeros = "tl.zeros([BLOCK_M, V_DIM_PADDED if OWN_V_DIM else HEAD_DIM], tl.float32)"
    first = {"m": FIRST_M, "l": FIRST_L, "acc": zeros}
    state = ", ".join(names)
    return (
        *(Change(f"{name} = {first[name]}", "", function="_one_tile") for name in names),
        Change("", f"work, {state} = work", function="_one_tile"),
        Change(
            "tl.store(any_p, lse, **any_more)",
            f"tl.store(any_p, lse, **any_more)\nreturn ({state},)",
            function="_one_tile",
        ),
        Change(
            "_one_tile(work, **any_more)",
            f"{state}, = _one_tile((work, {state}), **any_more)",
            function="attention_fwd_kernel",
        ),
        Change("", "\n".join(f"{name} = {first[name]}" for name in names), function="attention_fwd_kernel"),
    )


RECURRENCE = (
    attention(
        "acc_not_rescaled",
        "the accumulator keeps the scale of an older maximum",
        Change("acc * alpha[:, None]", "acc"),
        classic=True,
    ),
    attention(
        "l_not_rescaled",
        "the running sum keeps the scale of an older maximum",
        Change("l * alpha + any_s", "l + any_s"),
        classic=True,
    ),
    attention(
        "alpha_in_base_e",
        "the weights are in base 2, the rescaling is in base e",
        Change("alpha = tl.exp2(m - m_safe)", "alpha = tl.exp(m - m_safe)"),
        classic=True,
    ),
    attention(
        "weights_in_base_e",
        "the rescaling is in base 2, the weights are in base e",
        Change("p = tl.exp2(x)", "p = tl.exp(x)"),
        classic=True,
    ),
    attention(
        "log2e_not_folded",
        "exp2 of logits that were never multiplied by log2(e)",
        Change(SCALE, "scale"),
        classic=True,
    ),
    attention(
        "log2e_folded_twice",
        "exp of logits that were multiplied by log2(e)",
        Change(SCALE, "scale * LOG2E"),
        config=BASE_E,
        classic=True,
    ),
    attention(
        "block_maximum_not_carried",
        "the maximum is the last tile's alone, so that alpha may exceed 1 and overflow",
        Change("tl.maximum(m, any_x)", "any_x"),
        classic=True,
    ),
    attention(
        "block_maximum_not_carried_into_masked_tiles",
        "the maximum of the tiles without a mask is forgotten in those with one",
        Change("tl.maximum(m, tl.max(x, axis=1))", "tl.max(x, axis=1)"),
        causal=True,
    ),
    attention(
        "no_guard_on_an_empty_tile",
        "-inf - -inf for a query that has seen no key yet",
        Change(GUARD, "m_new"),
        causal=True,
        classic=True,
    ),
    attention(
        "no_guard_on_an_empty_tile_where_none_is",
        "the same without a causal mask",
        Change(GUARD, "m_new"),
        equivalent="without a causal mask every query sees a key of every tile",
    ),
    attention(
        "guard_kept_as_the_maximum",
        "the 0 that guards an empty query stays its maximum",
        Change("m = m_new", "m = m_safe"),
        causal=True,
    ),
    attention(
        "masked_with_a_sentinel",
        "invisible keys count as -1e4, which outweighs keys below it",
        Change(MASK, "tl.where(visible, x * qk_scale, -1.0e4)"),
        classic=True,
    ),
    attention(
        "masked_with_a_sentinel_where_causal",
        "invisible keys count as -1e6, and queries that see no key average the values",
        Change(MASK, "tl.where(visible, x * qk_scale, -1.0e6)"),
        causal=True,
        classic=True,
    ),
    attention(
        "masked_with_the_lowest_number",
        "queries that see no key average the values",
        Change(MASK, "tl.where(visible, x * qk_scale, -3.4028234663852886e38)"),
        causal=True,
    ),
    attention(
        "masked_with_the_lowest_number_where_no_query_is_empty",
        "the same without a causal mask",
        Change(MASK, "tl.where(visible, x * qk_scale, -3.4028234663852886e38)"),
        equivalent="every query sees a key, whose logit is finite and far above the lowest number",
    ),
    attention(
        "state_carried_into_the_next_tile",
        "maximum, sum and accumulator are not reset between the query tiles of one program",
        carried("m", "l", "acc"),
        ("descriptor",),
        config="PERSISTENT=true",
        classic=True,
    ),
    attention(
        "maximum_carried_into_the_next_tile",
        "the maximum alone is not reset: all weights of a much lower query underflow",
        carried("m"),
        ("descriptor",),
        config="PERSISTENT=true",
        classic=True,
    ),
    attention(
        "accumulator_carried_into_the_next_tile",
        "the accumulator alone is not reset: 0 times what is left of it is no 0 after a query that is not finite",
        carried("acc"),
        ("descriptor",),
        config="PERSISTENT=true",
    ),
    attention(
        "sum_starts_at_one",
        "the sum starts at 1",
        Change(FIRST_L, "tl.full([BLOCK_M], 1.0, tl.float32)"),
        equivalent="the maximum starts at -inf, so that the first rescaling multiplies the 1 by 0; a query without a "
        "key has an output of 0 / 1",
    ),
    attention(
        "acc_rescaled_twice",
        "the accumulator is rescaled by the square of alpha",
        Change("acc * alpha[:, None]", "acc * alpha[:, None] * alpha[:, None]"),
    ),
    attention(
        "sum_not_carried",
        "the sum is the last tile's alone",
        Change(SUM, "l = tl.sum(p, axis=1)"),
    ),
    attention(
        "acc_not_carried",
        "the output is the last tile's alone",
        Change(PV, "acc = tl.dot(p.to(v.dtype), v, **any_more)"),
    ),
    attention(
        "maximum_lost_between_the_loops",
        "the tiles with a mask start from a fresh maximum",
        Change("_attend(acc, l, m, **any_more)", f"_attend(acc, l, {FIRST_M}, **any_more)", which=2),
    ),
    attention(
        "sum_lost_between_the_loops",
        "the tiles with a mask start from a fresh sum",
        Change("_attend(acc, l, m, **any_more)", f"_attend(acc, {FIRST_L}, m, **any_more)", which=2),
    ),
    attention(
        "weights_by_the_old_maximum",
        "the weights are taken before the maximum is brought up to date",
        Change("x - m_safe[:, None]", "x - tl.maximum(m, -1.0e30)[:, None]"),
    ),
    attention(
        "maximum_starts_at_zero",
        "queries whose logits all lie below -104 underflow",
        Change(FIRST_M, FIRST_L),
    ),
    attention(
        "maximum_starts_at_zero_and_sum_at_one",
        "a phantom key with a logit of 0 and a value of 0",
        (Change(FIRST_L, "tl.full([BLOCK_M], 1.0, tl.float32)"), Change(FIRST_M, FIRST_L)),
    ),
    attention(
        "maximum_starts_at_a_sentinel",
        "queries whose logits all lie below the finite stand-in for -inf underflow",
        Change(FIRST_M, "tl.full([BLOCK_M], -5.0e4, tl.float32)"),
    ),
    attention(
        "no_maximum",
        "exponentials of the logits themselves",
        Change("tl.maximum(m, any_x)", "tl.where(any_x > m, 0.0, 0.0)"),
    ),
    attention(
        "maximum_of_the_whole_tile",
        "one maximum for all queries of a tile: all weights of a much lower query underflow",
        Change("tl.max(x, axis=1)", "tl.maximum(tl.max(x, axis=1), tl.max(tl.max(x, axis=1), axis=0))"),
    ),
    attention(
        "maximum_not_scaled",
        "the maximum of q.k before it is scaled",
        Change("tl.max(x, axis=1) * qk_scale", "tl.max(x, axis=1)"),
    ),
)
