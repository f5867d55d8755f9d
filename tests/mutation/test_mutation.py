"""The check rejects every bug that is planted in the shipped templates, and nothing that is no bug."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, chain

import pytest

from tests.mutation.catalogue import MUTANTS, honest_runs, runs
from tests.mutation.mutant import ALL_DTYPES, Run
from tests.mutation.not_run import NOT_RUN
from tests.mutation.rewriting import rewrite
from tests.mutation.running import Answer, ask
from tests.mutation.setups import SETUPS
from tests.mutation.witnesses import WITNESSES
from tuner import shipped
from tuner.operators import get
from tuner.space import load_space

pytest.importorskip("triton", reason="Triton runs on Linux only")

# Each part is a process of its own, so that the suite's workers share them.
PARTS = 6
FAMILY_PARTS = 2
CLASSICS = {
    "the accumulator is not rescaled": ("acc_not_rescaled",),
    "the sum is not rescaled": ("l_not_rescaled",),
    "mixed bases": ("alpha_in_base_e", "weights_in_base_e", "alpha_in_base_2", "weights_in_base_2"),
    "the block's maximum is not carried": ("block_maximum_not_carried",),
    "-inf - -inf on an empty tile": ("no_guard_on_an_empty_tile",),
    "a masked tile counts as a finite number": ("masked_with_a_sentinel", "tail_masked_with_a_sentinel"),
    "a stale accumulator": ("state_carried_into_the_next_tile", "state_carried_into_the_next_row"),
}
# Bugs of every template. The operators that came later share what is checked with these, and have those of their own.
LEAST = {"softmax": 30, "attention_fwd": 30}
# What the reason names, so that a person knows where to look.
REASONS = {
    "softmax/whole_row/store_not_masked/bf16": "elements were written",
    "softmax/persistent/zeros/bf16": "every element is zero",
    "softmax/online/trip_count_rounded_down/bf16": "elements were never written",
    "softmax/online/input_changed/bf16": "the input x was changed",
    "attention_fwd/pointer/one_column_wrong_by_3_percent/bf16": "column 5 of 24",
    "attention_fwd/pointer/lse_in_base_2/bf16": "log2(e)",
    "attention_fwd/pointer/other_bits_the_second_time/bf16": "gave other bits",
}
_PICKED = {run.key for run in runs(every_dtype=False)} | set(REASONS)
CHOSEN = tuple(run for run in runs(every_dtype=True) if run.key in _PICKED)


def part_of(chosen: tuple[Run, ...], part: int) -> tuple[Run, ...]:
    """Neighbours, which share references; the parts take about the same time."""
    ends = list(accumulate({"pointer": 3, "descriptor": 3, "split_row": 2}.get(run.template, 1) for run in chosen))
    return tuple(run for run, end in zip(chosen, ends, strict=True) if (end - 1) * PARTS // ends[-1] == part)


def told(answers: list[Answer]) -> str:
    return "\n".join(f"{a.key}: {a.family} at {a.problem}: {a.reason or 'right'}" for a in answers)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_bug_is_rejected_and_an_equivalent_rewrite_is_not(part):
    chosen = part_of(CHOSEN, part)
    answers = ask(chosen)
    equivalent = {run.key for run in chosen if run.mutant.equivalent}
    survivors = [a for a in answers if a.passed and a.key not in equivalent]
    refused = [a for a in answers if not a.passed and a.key in equivalent]
    assert not survivors, f"wrong, and not rejected:\n{told(survivors)}"
    assert not refused, f"said to be equivalent, and rejected:\n{told(refused)}"
    unclear = [a for a in answers if not a.passed and not (a.reason and REASONS.get(a.key, "") in a.reason)]
    assert not unclear, f"the reason does not name what a person should look for:\n{told(unclear)}"
    print("fell on:", dict(Counter(a.family for a in answers if not a.passed)))


def test_what_the_bugs_are_planted_in_is_right_without_them():
    """Where no equivalent rewrite, which must pass the whole check as well, shows it already."""
    equivalent = [run for run in CHOSEN if run.mutant.equivalent and not run.mutant.options]
    shown = {(run.mutant.operator, run.template, run.mutant.causal) for run in equivalent}
    every = honest_runs(runs(every_dtype=True))
    given = [run for run in every if not (run.mutant.config or run.mutant.shape or run.mutant.options)]
    plain = [run for run in given if run.dtype == "bf16"]
    missing = [run for run in plain if (run.mutant.operator, run.template, run.mutant.causal) not in shown]
    there = {(operator, template) for operator, setups in SETUPS.items() for template in setups}
    assert {(run.mutant.operator, run.template) for run in plain} == there and missing
    refused = [a for a in ask(missing) if not a.passed]
    assert not refused, told(refused)


def test_there_are_enough_kinds_and_none_has_two_names():
    names = Counter((m.operator, m.name) for m in MUTANTS)
    assert [name for name, count in names.items() if count > 1] == []
    bugs = Counter(m.operator for m in MUTANTS if not m.equivalent)
    assert bugs["softmax"] >= 60 and bugs["attention_fwd"] >= 60


@pytest.mark.parametrize("operator", sorted(SETUPS))
def test_every_template_that_the_interpreter_can_run_has_its_bugs(operator):
    shipped = {name for name, template in load_space(operator).templates.items() if not template.needs_gpu}
    mutated = Counter(template for m in MUTANTS if m.operator == operator for template in m.changes)
    assert set(SETUPS[operator]) == set(mutated) == shipped
    assert min(mutated.values()) >= LEAST.get(operator, 7)


@pytest.mark.parametrize("kind", CLASSICS)
def test_the_classics_are_run_in_every_dtype(kind):
    for name in CLASSICS[kind]:
        found = [run for run in CHOSEN if run.mutant.name == name]
        assert {run.dtype for run in found} == set(ALL_DTYPES), name
        assert not any(run.mutant.equivalent for run in found)


@pytest.mark.parametrize("operator", sorted(SETUPS))
def test_every_input_family_has_a_bug_that_it_is_to_catch(operator):
    assert set(WITNESSES[operator]) == set(get(operator).families(get(operator).example()))


@pytest.mark.parametrize("part", range(FAMILY_PARTS))
def test_every_input_family_catches_its_bug(part):
    """A family that catches nothing costs time in every check and proves nothing."""
    asked = [(key, family) for operator in sorted(SETUPS) for family, key in WITNESSES[operator].items()]
    asked = asked[part * len(asked) // FAMILY_PARTS : (part + 1) * len(asked) // FAMILY_PARTS]
    known = {run.key: run for run in runs(every_dtype=True)}
    answers = ask([known[key] for key, _ in asked], [[family] for _, family in asked])
    assert not any(known[key].mutant.equivalent for key, _ in asked)
    blind = [f"{f} sees no {key}" for (key, f), a in zip(asked, answers, strict=True) if not (a.fell or {}).get(f)]
    assert not blind, blind


def test_bugs_that_only_a_gpu_can_show_still_apply():
    for mutant in chain(*NOT_RUN.values()):
        for template, changes in mutant.changes.items():
            source = (shipped.variants_dir() / mutant.operator / f"{template}.py").read_text(encoding="utf-8")
            assert rewrite(source, changes) != source


def test_what_a_reason_must_name_is_asked_of_runs_that_are_made():
    assert set(REASONS) <= {run.key for run in CHOSEN if not run.mutant.equivalent}
