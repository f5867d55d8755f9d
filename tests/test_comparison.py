"""Outputs compared at once say what comparisons of each say."""

from __future__ import annotations

import math
import re

import pytest
import torch

from tuner.comparison import Comparison, JoinedComparison, read_back
from tuner.operators.reference import OutputReference, Reference
from tuner.operators.variation import Variation
from tuner.reading import Reading

SHAPES = {"out": (2, 3, 5, 4), "lse": (2, 3, 5)}
VARIATION = Variation(
    {"out": (1, 2), "lse": (1, 2)}, {"out": torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)}
)


def whole(selected):
    """A reference, of all or of some rows, and outputs of the varied problem that are off by 0.01 at the most."""
    generator = torch.Generator().manual_seed(3)
    wanted = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in SHAPES.items()}
    index = tuple(torch.tensor(axis) for axis in ((0, 1, 1, 0), (2, 0, 1, 1), (4, 0, 2, 3))) if selected else None
    parts, written = {}, {}
    for name, want in wanted.items():
        expected = want[index] if selected else want
        bound = torch.full_like(expected, 0.02)
        variance = torch.full_like(expected, 0.01**2) if name == "out" else None
        parts[name] = OutputReference(expected, bound, variance, index)
        off = want + 0.01 * torch.rand(want.shape, generator=generator)
        off = off * VARIATION.signs[name] if name in VARIATION.signs else off
        written[name] = VARIATION.moved(name, off).float()
    return Reference(parts), written


def both(reference, written, generic=True):
    joined = JoinedComparison(reference, written, generic=generic, variation=VARIATION)
    each = [
        Comparison(name, reference.outputs[name], tensor, generic=generic, variation=VARIATION)
        for name, tensor in written.items()
    ]
    Reading.fetch([joined.reading])
    read_back([], each)
    return joined, each


@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize("worst", ["out", "lse"])
def test_the_worst_element_is_that_of_the_output_it_belongs_to(selected, worst):
    reference, written = whole(selected)
    place = (0, 2, 4) if selected else (0, 2, 0)
    at, sign = (1, 1, place[2]), 1.0  # where that element was written
    expected = reference.outputs[worst].expected[0 if selected else place]
    if worst == "out":
        at, sign, expected = (*at, 2), -1.0, expected[2]
    written[worst][at] = sign * (expected + 0.015)
    joined, each = both(reference, written)
    verdict = joined.verdict()
    assert joined.right and all(comparison.right for comparison in each)
    assert verdict.output == worst and verdict.where == at
    assert verdict.ratio == pytest.approx(0.75, rel=1e-4) and verdict.error == pytest.approx(0.015, rel=1e-4)
    assert verdict.bound == 0.02
    alone = max((comparison.verdict() for comparison in each), key=lambda v: v.ratio)
    assert (alone.output, alone.where, alone.ratio, alone.error) == (
        verdict.output, verdict.where, verdict.ratio, verdict.error
    )  # fmt: skip


@pytest.mark.parametrize("name", ["out", "lse"])
@pytest.mark.parametrize("wrong", [7.0, math.nan, math.inf])
def test_one_wrong_element_of_any_output_is_enough(name, wrong):
    reference, written = whole(False)
    written[name].view(-1)[-1] = wrong
    joined, each = both(reference, written)
    assert not joined.right
    assert [v.output for v in (comparison.verdict() for comparison in each) if v.reason] == [name]


def test_a_mean_square_that_is_too_large_fails_where_every_element_is_within_its_bound():
    reference, written = whole(False)
    assert both(reference, written)[0].right
    written["out"] += 0.009 * VARIATION.signs["out"]
    joined, _ = both(reference, written)
    assert not joined.right and joined.verdict().ratio < 1.0
    assert both(reference, written, generic=False)[0].right


def test_the_same_infinity_and_nan_are_right_only_where_they_belong():
    expected = torch.tensor([math.inf, math.nan, -math.inf, 1.0], dtype=torch.float64)
    bound = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    none = Variation({}, {})
    for got, right in (
        ([math.inf, math.nan, -math.inf, 1.0], True),
        ([-math.inf, math.nan, -math.inf, 1.0], False),
        ([math.inf, 0.0, -math.inf, 1.0], False),
        ([math.inf, math.nan, -math.inf, math.nan], False),
        ([math.inf, math.nan, -math.inf, 1.0 + 1e-6], False),
    ):
        reference = Reference({"out": OutputReference(expected, bound, has_nan=True)})
        joined = JoinedComparison(reference, {"out": torch.tensor(got)}, generic=False, variation=none)
        Reading.fetch([joined.reading])
        assert joined.right is right


@pytest.mark.parametrize("selected", [False, True])
def test_an_output_of_integers_must_be_exact(selected):
    large = 2**31 + 1  # beyond what fp32 holds
    index = (torch.tensor([0, 2]),) if selected else None
    wanted = torch.tensor([[large, 7], [0, 3], [5, 4]])
    reference = OutputReference.exact(wanted[index] if selected else wanted, index)
    for change, reason in [
        (0, ""),
        (1, "indices: 1 of . elements beyond the bound.*; off by 1 where it must be exact, at \\(0, 0\\)"),
    ]:
        written = wanted.clone()
        written[0, 0] += change
        comparison = Comparison("indices", reference, written, generic=False)
        joined = JoinedComparison(Reference({"indices": reference}), {"indices": written}, generic=False)
        read_back([], [comparison])
        Reading.fetch([joined.reading])
        assert comparison.right == joined.right == (not change)
        assert re.fullmatch(reason, comparison.verdict().reason), comparison.verdict().reason
