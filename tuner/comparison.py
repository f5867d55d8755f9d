"""Comparing outputs with their reference: the worst element over its bound, and the root-mean-square check.

Everything is computed on the outputs' device and read back in one transfer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tuner.diagnosis import describe
from tuner.operators.reference import OutputReference
from tuner.operators.variation import NONE, Variation


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
        self._got = reference.select(variation.undo({name: output})[name]).double().contiguous()
        want = reference.expected
        error = (self._got - want).abs()
        # The same value is exact, infinities included, and NaN where NaN belongs. Any other NaN makes the ratio NaN.
        same = self._got == want
        if reference.has_nan:
            same |= self._got.isnan() & want.isnan()
        self._ratio = torch.where(same, 0.0, error / reference.bound)
        worst = self._ratio.view(-1).argmax()[None]  # NaN counts as the largest
        self.figures = [t.reshape(-1).gather(0, worst) for t in (self._ratio, error, reference.bound)]
        self.figures.append(worst.double())
        if generic and reference.variance is not None:
            finite = torch.isfinite(error)
            total = torch.where(finite, reference.variance, 0.0).sum()
            self.figures.append((torch.where(finite, error**2, 0.0).sum() / total)[None])
        self.values: list[float] = []

    @property
    def right(self) -> bool:
        """Whether every element is within its bound and the rms check holds; after ``read_back``."""
        return all(value <= 1.0 for value in (self.values[0], *self.values[4:]))

    def verdict(self) -> Verdict:
        """What was found; after ``read_back``."""
        ratio, error, bound, worst, *squares = self.values
        if math.isnan(ratio):
            ratio, error = math.inf, math.inf
        where = self._reference.locate(_unravel(int(worst), tuple(self._ratio.shape)))
        where = self._variation.place(self._name, where, self._shape)
        rms = math.sqrt(squares[0]) if squares else 0.0
        reason = ""
        if ratio > 1.0:
            seen = [self._got, self._reference.expected, ~(self._ratio <= 1.0)]
            if self._reference.index is None:
                seen = [self._variation.moved(self._name, t) for t in seen]
            pattern = describe(*seen)
            reason = f"{self._name}: {pattern}; worst {ratio:.3g} times its bound at {where}"
        elif not rms <= 1.0:
            reason = f"{self._name}: root-mean-square error {rms:.3g} times what roundings in its formats give"
        return Verdict(self._name, ratio, error, bound, where, rms, reason)


def read_back(counts: list[torch.Tensor], comparisons: list[Comparison]) -> list[float]:
    """The values of ``counts`` (scalars), and to each comparison its own, in one transfer from the device."""
    figures = [figure for comparison in comparisons for figure in comparison.figures]
    values: list[float] = torch.cat([*(count.double()[None] for count in counts), *figures]).tolist()
    at = len(counts)
    for comparison in comparisons:
        comparison.values = values[at : at + len(comparison.figures)]
        at += len(comparison.figures)
    return values[: len(counts)]


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    position: list[int] = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        position.append(at)
    return tuple(reversed(position))
