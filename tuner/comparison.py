"""Comparing outputs with their reference: the worst element over its bound, and the root-mean-square check.

Everything is computed on the outputs' device and read back in one transfer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tuner.diagnosis import describe
from tuner.operators.reference import OutputReference, Reference
from tuner.operators.variation import NONE, Variation
from tuner.reading import Reading


@dataclass(frozen=True)
class Verdict:
    """One output's comparison, of which ``reason`` is empty where it is right.

    ``ratio``, ``error``, ``bound`` and ``where`` are of the element with the largest ratio; ``rms_ratio`` is the root
    of the summed squared errors over the summed variances, 0 where that check does not apply.
    """

    output: str
    ratio: float
    error: float
    bound: float
    where: tuple[int, ...]
    rms_ratio: float
    reason: str


class Comparison:
    """One output against its reference. What it finds stays on the device until ``read_back`` fetches it.

    ``variation`` is how the inputs differed from the reference's; places are told in the output as it was written.
    """

    def __init__(
        self,
        name: str,
        reference: OutputReference,
        output: torch.Tensor,
        *,
        generic: bool,
        variation: Variation = NONE,
    ) -> None:
        self._name, self._reference, self._variation = name, reference, variation
        self._shape = tuple(output.shape)
        self._got = torch.empty_like(reference.expected, memory_format=torch.contiguous_format)
        variation.undo(name, output, self._got, reference.index)
        error, self._ratio = _distance(self._got, reference)
        squares = _mean_square(error, reference) if generic else []
        self.reading = Reading([*_worst(error, self._ratio, reference), *squares])

    @property
    def right(self) -> bool:
        """Whether every element is within its bound and the rms check holds; after ``read_back``."""
        return _within(self.reading.values)

    def verdict(self) -> Verdict:
        """What was found; after ``read_back``."""
        worst, ratio, error, bound, *squares = self.reading.values
        if math.isnan(ratio):
            ratio, error = math.inf, math.inf
        where = self._reference.locate_flat(int(worst))
        where = self._variation.place(self._name, where, self._shape)
        rms = math.sqrt(squares[0]) if squares else 0.0
        reason = ""
        if ratio > 1.0:
            seen = [self._got, self._reference.expected, ~(self._ratio <= 1.0)]
            if self._reference.index is None:
                seen = [self._variation.moved(self._name, t) for t in seen]
            pattern = describe(*seen)
            much = f"worst {ratio:.3g} times its bound" if bound else f"off by {error:.3g} where it must be exact,"
            reason = f"{self._name}: {pattern}; {much} at {where}"
        elif not rms <= 1.0:
            reason = f"{self._name}: root-mean-square error {rms:.3g} times what roundings in its formats give"
        return Verdict(self._name, ratio, error, bound, where, rms, reason)


class JoinedComparison:
    """All outputs of one launch against their references at once, with a third of the operations of one each.

    It says whether they are right, and where the largest ratio is; what is wrong, a ``Comparison`` of each says.
    """

    def __init__(
        self,
        reference: Reference,
        outputs: Mapping[str, torch.Tensor],
        *,
        generic: bool,
        variation: Variation = NONE,
    ) -> None:
        self._reference, self._variation = reference, variation
        self._shapes = {name: tuple(output.shape) for name, output in outputs.items()}
        joined = reference.joined
        got = torch.empty_like(joined.expected)
        for name, part in reference.parts(got).items():
            variation.undo(name, outputs[name], part, reference.outputs[name].index)
        error, ratio = _distance(got, joined)
        squares: list[torch.Tensor] = []
        if generic:
            parts = reference.parts(error)
            squares = [one for name, of in reference.outputs.items() for one in _mean_square(parts[name], of)]
        self.reading = Reading([*_worst(error, ratio, joined), *squares])

    @property
    def right(self) -> bool:
        """Whether every element is within its bound and the rms check holds; once it is read back."""
        return _within(self.reading.values)

    def verdict(self) -> Verdict:
        """Of outputs that are right: the element with the largest ratio; once it is read back."""
        worst, ratio, error, bound, *squares = self.reading.values
        name, where = self._reference.locate(int(worst))
        where = self._variation.place(name, where, self._shapes[name])
        return Verdict(name, ratio, error, bound, where, math.sqrt(max(squares, default=0.0)), "")


def read_back(counts: list[torch.Tensor], comparisons: list[Comparison]) -> list[float]:
    """The values of ``counts`` (scalars), and to each comparison its own, in one transfer from the device."""
    counted = Reading(counts)
    Reading.fetch([counted, *(comparison.reading for comparison in comparisons)])
    return counted.values


def _distance(got: torch.Tensor, reference: OutputReference) -> tuple[torch.Tensor, torch.Tensor]:
    """Each element's error, and that over its bound."""
    want = reference.expected
    error = (got - want).abs_()
    # The same value is exact, infinities included, and NaN where NaN belongs. Any other NaN makes the ratio NaN.
    same = got == want
    if reference.has_nan:
        same |= got.isnan() & want.isnan()
    return error, (error / reference.bound).masked_fill_(same, 0.0)


def _worst(error: torch.Tensor, ratio: torch.Tensor, reference: OutputReference) -> list[torch.Tensor]:
    """Where the largest ratio is, counting all elements in their order, then ratio, error and bound there."""
    largest, worst = ratio.view(-1).max(dim=0, keepdim=True)  # NaN counts as the largest
    there = [tensor.reshape(-1).index_select(0, worst) for tensor in (error, reference.bound)]
    return [worst, largest, *there]


def _mean_square(error: torch.Tensor, reference: OutputReference) -> list[torch.Tensor]:
    """The summed squares of the errors over their summed variances, where the reference has them."""
    if reference.variance is None:
        return []
    finite = torch.isfinite(error)
    total = torch.where(finite, reference.variance, 0.0).sum()
    return [torch.where(finite, error, 0.0).square_().sum() / total]


def _within(values: list[float]) -> bool:
    _, ratio, _, _, *squares = values
    return all(value <= 1.0 for value in (ratio, *squares))
