"""One set of inputs, what a launch on it must leave, and what its outputs hold before."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from tuner.autotuning.arguments import base_tensor
from tuner.autotuning.asking import Reference, wide
from tuner.autotuning.bounds import Tolerance, bounds
from tuner.autotuning.copies import Contents
from tuner.autotuning.untouched import bits, overlap
from tuner.comparison import Comparison, Verdict, read_back
from tuner.operators.reference import OutputReference

_AS_BEFORE = 1e-6  # relative: the reference's own rounding in float64, if it adds in another order
_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_EXACT_BYTES = 4  # whole numbers of so many bytes are exact in float64


class Case:
    """``named`` are the arguments as a launch meets them. ``contents``: what is put into the tensors before; None for
    what the caller has. ``kept``: outputs that the kernel may read before it writes them, as the caller has said.

    ``pure`` are the outputs whose contents before the launch make no difference to the reference: they hold what is
    wrong everywhere, so that a config that writes nothing does not pass by what was there.
    """

    def __init__(
        self,
        family: str,
        reference: Reference,
        named: Mapping[str, Any],
        *,
        tolerance: Tolerance | None,
        unit: float,
        kept: Collection[str],
        contents: Contents | None = None,
    ) -> None:
        self.family, self.contents = family, contents
        self.expected = reference.outputs(named)
        self._bounds = bounds(reference, named, self.expected, tolerance, unit)
        self.pure = tuple(name for name in self.expected if name not in kept and self._is_pure(reference, named, name))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The arguments that the reference names."""
        return tuple(self.expected)

    @property
    def is_finite(self) -> bool:
        """Whether nothing that is expected is infinite or NaN."""
        return all(bool(torch.isfinite(want.double()).all()) for want in self.expected.values())

    def poison(self, named: Mapping[str, Any]) -> None:
        """Fill the pure outputs with what differs from what is expected at every element."""
        for name in self.pure:
            tensor = base_tensor(named[name])
            _fill(tensor, _wrong(self.expected[name], tensor.dtype))

    def verdicts(self, named: Mapping[str, Any]) -> list[Verdict]:
        """What a launch with these arguments left, output by output."""
        comparisons = []
        for name, want in self.expected.items():
            got = base_tensor(named[name])
            if not got.numel():
                continue
            if not got.dtype.is_floating_point and got.element_size() > _EXACT_BYTES:
                exact = want.to(got.dtype).view(torch.int64)
                got, want = got.view(torch.int64) - exact, torch.zeros_like(exact)
            wanted = want.double()
            reference = OutputReference(wanted, self._bounds[name], has_nan=bool(wanted.isnan().any()))
            comparisons.append(Comparison(name, reference, got, generic=False))
        read_back([], comparisons)
        return [self._explained(comparison.verdict(), named) for comparison in comparisons]

    def _explained(self, verdict: Verdict, named: Mapping[str, Any]) -> Verdict:
        """With how much of the output still holds what was put there."""
        if not verdict.reason or verdict.output not in self.pure:
            return verdict
        got = base_tensor(named[verdict.output])
        wrong = torch.empty_like(got)
        _fill(wrong, _wrong(self.expected[verdict.output], got.dtype))
        left = int((bits(got) == bits(wrong)).sum())
        if not left:
            return verdict
        said = f"{left} elements are not written; where it keeps what is there, the reference has to read it"
        return replace(verdict, reason=f"{verdict.reason}; {said}")

    def _is_pure(self, reference: Reference, named: Mapping[str, Any], name: str) -> bool:
        tensor = base_tensor(named[name])
        others = [base_tensor(value) for other, value in named.items() if other != name]
        if any(other is not None and overlap(tensor, other) for other in others):
            return False  # it may be read through that one
        given = wide(named)
        _fill(given[name], _wrong(given[name], given[name].dtype))
        try:
            again = reference.again(given)
        except Exception:  # it reads it, and takes no such numbers
            return False
        return all(_is_as_before(again[output], want) for output, want in self.expected.items())


def _wrong(expected: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of ``dtype`` that differs from ``expected`` at every element."""
    if dtype.is_floating_point:
        return torch.where(expected.double().isnan(), 0.0, math.nan).to(dtype)
    if dtype is torch.bool:
        return expected.to(dtype).logical_not()
    return expected.to(dtype).view(_SIGNED[dtype.itemsize]).bitwise_not().view(dtype)


def _fill(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Where several elements are one number in memory, with one of theirs."""
    at = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
    tensor[at].copy_(values[at])


def _is_as_before(again: torch.Tensor, want: torch.Tensor) -> bool:
    if not want.dtype.is_floating_point:
        return torch.equal(again, want)
    if not torch.equal(again.isnan(), want.isnan()):
        return False
    size = want.double().abs()
    largest = float(torch.where(torch.isfinite(size), size, 0.0).amax()) if size.numel() else 0.0
    return torch.allclose(again.double(), want.double(), rtol=_AS_BEFORE, atol=_AS_BEFORE * largest, equal_nan=True)
