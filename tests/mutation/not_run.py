"""Bugs that only a GPU can show. They are not run here; that they still apply to the templates is tested."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutation.attention_templates import attention
from tests.mutation.cross_entropy_bwd_mutants import gradient
from tests.mutation.cross_entropy_mutants import cross_entropy
from tests.mutation.gluon_bugs import GLUON
from tests.mutation.mutant import Mutant, mutant
from tests.mutation.rewriting import Change
from tests.mutation.softmax_templates import LOAD, softmax

_TOO_LARGE = "shows in a tensor of more than 2^31 elements; the interpreter is given such of some templates alone"
_WAITS = "the programs of the template wait for one another, and the interpreter runs them one after the other"
_GLUON = "the interpreter runs no Gluon; tests/gpu has them checked on a GPU"
_EXACT = "the interpreter takes every product in fp32, whatever it is told"
_COOPERATIVE = ("cooperative",)
# Templates of the other operators over rows whose programs walk over them.
_WALKING = {
    "log_softmax": ("whole_row", "online"),
    "logsumexp": ("whole_row", "online"),
    "softmax_bwd": ("two_pass",),
}

NOT_RUN: Mapping[str, tuple[Mutant, ...]] = {
    _TOO_LARGE: (
        softmax(
            "row_offset_in_32_bits",
            "a row's place overflows",
            Change("tl.cast(row, tl.int64) * any_s", "row * any_s"),
            ("persistent", "online"),
            also={
                "several_rows": Change("row.to(tl.int64) * any_s", "row * any_s"),
                "split_row": Change("row.to(tl.int64) * any_s", "row * any_s"),
            },
        ),
        cross_entropy(
            "row_offset_in_32_bits",
            "a row's place overflows",
            Change("tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
            ("whole_row", "online"),
            also={"split_row": Change("row.to(tl.int64) * row_stride", "row * row_stride")},
        ),
        gradient(
            "row_offset_in_32_bits",
            "a row's place overflows",
            also={"row_loop": Change("tl.cast(number, tl.int64)", "number")},
        ),
        mutant(
            "softmax_topk",
            "row_offset_in_32_bits",
            "a row's place overflows",
            Change("tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
            ("whole_row", "online"),
            also={"split_row": Change("row.to(tl.int64) * any_s", "row * any_s")},
        ),
        *(
            mutant(
                operator,
                "row_offset_in_32_bits",
                "a row's place overflows",
                Change("tl.cast(row, tl.int64) * any_s", "row * any_s"),
                templates,
            )
            for operator, templates in _WALKING.items()
        ),
        attention(
            "head_offset_in_32_bits",
            "a head's place overflows",
            (Change("(batch_head // heads).to(tl.int64)", "batch_head // heads"), Change("head.to(tl.int64)", "head")),
            ("pointer",),
        ),
        attention(
            "key_offset_in_32_bits",
            "a key's place in its head overflows",
            Change("key.to(tl.int64)[:, None] * any_s", "key[:, None] * any_s"),
            ("pointer",),
        ),
    ),
    _EXACT: (
        attention(
            "tf32_by_the_hardware",
            "products of fp32 are taken in tf32, which the config does not declare",
            Change(
                'tl.dot(any_a, any_b, input_precision="ieee" if DOT_PRECISION == "bf16" else DOT_PRECISION)',
                'tl.dot(any_a, any_b, input_precision="tf32")',
            ),
            dtypes=("fp32",),
        ),
    ),
    _GLUON: GLUON,
    _WAITS: (
        softmax(
            "parts_added_without_their_maxima",
            "the parts' sums are added as if they had one maximum",
            Change("l * tl.exp(m - m_row)", "l"),
            _COOPERATIVE,
            classic=True,
        ),
        softmax(
            "parts_added_in_base_2",
            "the parts' sums are brought to one maximum without log2(e)",
            Change("l * tl.exp2((m - m_row) * LOG2E)", "l * tl.exp2(m - m_row)"),
            _COOPERATIVE,
            config="USE_EXP2=true",
            classic=True,
        ),
        softmax(
            "tail_loaded_as_zero",
            "columns past the end count as 0",
            Change(LOAD, "tl.load(any_p, mask=any_m, other=0.0, **any_more)"),
            _COOPERATIVE,
        ),
        mutant(
            "log_softmax",
            "parts_added_without_their_maxima",
            "the parts' sums are added as if they had one maximum",
            Change("l * tl.exp(m - m_row)", "l"),
            _COOPERATIVE,
        ),
        mutant(
            "softmax_bwd",
            "largest_of_the_sums",
            "the largest of the parts' sums is taken for their sum",
            Change("tl.sum(totals, axis=0)", "tl.max(totals, axis=0)"),
            _COOPERATIVE,
        ),
    ),
}
"""By the reason why they are not run."""
