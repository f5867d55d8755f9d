"""Bugs of attention_fwd's template in Gluon, which runs on a GPU alone (tests/gpu). None lets it wait for ever."""

from __future__ import annotations

from typing import Any

from tests.mutation.attention_templates import DEAD, GUARD, attention
from tests.mutation.mutant import Changes, Mutant
from tests.mutation.rewriting import Change

_RESCALED = "gl.convert_layout(alpha, gl.SliceLayout(1, OUT))[:, None]"


def gluon(name: str, breaks: str, changes: Changes, **more: Any) -> Mutant:
    """A mutant of the template in Gluon."""
    return attention(name, breaks, changes, ("gluon",), dtypes=("bf16",), **more)


GLUON = (
    gluon(
        "acc_not_rescaled",
        "the accumulator keeps the scale of an older maximum",
        Change(f"o = o * {_RESCALED}", ""),
        classic=True,
    ),
    gluon(
        "l_not_rescaled",
        "the running sum keeps the scale of an older maximum",
        Change("l * any_alpha + parts", "l + parts"),
        classic=True,
    ),
    gluon(
        "alpha_in_base_e",
        "the weights are in base 2, the rescaling is in base e",
        Change("alpha = gl.exp2(m - m_safe)", "alpha = gl.exp(m - m_safe)"),
        classic=True,
    ),
    gluon(
        "weights_in_base_e",
        "the rescaling is in base 2, the weights are in base e",
        Change("p = gl.exp2(any_x)", "p = gl.exp(any_x)"),
        classic=True,
    ),
    gluon(
        "log2e_not_folded",
        "exp2 of logits that were never multiplied by log2(e)",
        Change("scale * LOG2E", "scale"),
        classic=True,
    ),
    gluon(
        "lse_in_base_2",
        "the log-sum-exp is stored in base 2",
        Change("(any_m + gl.log2(any_l)) * LN2", "any_m + gl.log2(any_l)"),
    ),
    gluon(
        "block_maximum_not_carried",
        "each tile has a maximum of its own",
        Change("gl.maximum(m, any_x)", "any_x", function="_softmax"),
        classic=True,
    ),
    gluon("not_divided", "the output is not divided by the sum", Change("1.0 / row_sum", "row_sum * 0.0 + 1.0")),
    gluon(
        "dead_rows_divided",
        "a query that sees no key divides by nothing",
        Change(DEAD.replace("tl.", "gl.").replace("l == ", "row_sum == ").replace(", l)", ", row_sum)"), "row_sum"),
        causal=True,
    ),
    gluon(
        "no_guard_on_an_empty_tile",
        "-inf - -inf where a query sees no key of its first tile",
        Change(GUARD.replace("tl.", "gl."), "m_new"),
        causal=True,
        classic=True,
    ),
    gluon(
        "diagonal_hides_itself",
        "a query does not see the key at its own place",
        Change("column[None, :] <= any_last", "column[None, :] < any_last"),
        causal=True,
    ),
    gluon(
        "diagonal_from_the_top",
        "query 0 sees key 0, whatever the lengths are",
        Change("query + (kv_len - q_len)", "query"),
        causal=True,
    ),
    gluon(
        "mask_ends_a_tile_early",
        "the tile on the diagonal counts as seen whole",
        Change("gl.maximum(unmasked, 0) // BLOCK_N", "gl.maximum(unmasked, 0) // BLOCK_N + 1"),
        causal=True,
    ),
    gluon("tail_not_masked", "keys past the end count as 0", Change("column < kv_len - first_key", "column < kv_len")),
    gluon(
        "v_of_the_next_tile",
        "the weights of a tile meet the values of the next one",
        Change("v_buffers.index(before)", "v_buffers.index(slot)", function="_consumer"),
    ),
    gluon("heads_not_grouped", "every query head reads keys of its own number", Change("head // group", "head")),
    gluon(
        "one_warpgroups_queries", "every consumer takes the first one's queries", Change("first_query += 64 * WHO", "")
    ),
)
"""All of them; ``tests/gpu`` checks that each is rejected."""
