"""What an operator's outputs should be, and how far each element of a candidate's may be from it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch

# A float64 matrix of a row block has at most this many elements (128 MiB); a handful of them are alive at once.
BLOCK_ELEMENTS = 2**24


@dataclass(frozen=True)
class OutputReference:
    """One output, or a selection of its rows.

    ``expected`` and ``bound`` are float64 tensors of the selection's shape; ``variance``, where the family allows the
    root-mean-square check, is the variance of each error if its roundings were independent. ``index``: integer tensors
    that select from the whole output by advanced indexing (None: everything). ``has_nan``: whether the whole output may
    contain NaN.
    """

    expected: torch.Tensor
    bound: torch.Tensor
    variance: torch.Tensor | None = None
    index: tuple[torch.Tensor, ...] | None = None
    has_nan: bool = False

    @classmethod
    def exact(cls, expected: torch.Tensor, index: tuple[torch.Tensor, ...] | None = None) -> OutputReference:
        """Of an output that must be ``expected`` itself, such as one of integers (below 2^53 in magnitude)."""
        expected = expected.double()
        return cls(expected, torch.zeros_like(expected), index=index)

    def locate(self, position: tuple[int, ...]) -> tuple[int, ...]:
        """Where in the whole output the selection's element ``position`` is."""
        if self.index is None:
            return position
        indexed = self.index[0].dim()
        head = position[:indexed]
        # An axis of size 1 is broadcast: its only element is meant whatever the position.
        picks = (
            axis[tuple(0 if n == 1 else at for n, at in zip(axis.shape, head, strict=True))] for axis in self.index
        )
        return tuple(int(pick) for pick in picks) + position[indexed:]

    def locate_flat(self, position: int) -> tuple[int, ...]:
        """The same for the selection's elements counted in their order."""
        at: list[int] = []
        for size in reversed(self.expected.shape):
            position, rest = divmod(position, size)
            at.append(rest)
        return self.locate(tuple(reversed(at)))

    @property
    def nbytes(self) -> int:
        """Bytes that its tensors take."""
        tensors = [self.expected, self.bound, *(self.index or ())]
        if self.variance is not None:
            tensors.append(self.variance)
        return sum(t.numel() * t.element_size() for t in tensors)


@dataclass(frozen=True)
class Reference:
    """The expected outputs of one problem on one set of inputs, by output name.

    ``joined``: all of them as one row, of which those of ``outputs`` are parts, so that they can be compared at once.
    """

    outputs: Mapping[str, OutputReference]
    joined: OutputReference = field(init=False, repr=False)

    def __post_init__(self) -> None:
        outputs = self.outputs.values()
        expected, bound = (
            tensors[0].reshape(-1) if len(tensors) == 1 else torch.cat([t.reshape(-1) for t in tensors])
            for tensors in ([o.expected for o in outputs], [o.bound for o in outputs])
        )
        object.__setattr__(self, "joined", OutputReference(expected, bound, has_nan=any(o.has_nan for o in outputs)))
        wanted, bounds = self.parts(expected), self.parts(bound)
        parts = {n: replace(o, expected=wanted[n], bound=bounds[n]) for n, o in self.outputs.items()}
        object.__setattr__(self, "outputs", parts)

    def parts(self, joined: torch.Tensor) -> dict[str, torch.Tensor]:
        """The outputs, each in its shape, that a row like ``joined`` is made of."""
        lengths = [output.expected.numel() for output in self.outputs.values()]
        split = torch.split(joined, lengths)
        return {
            name: part.view(of.expected.shape) for part, (name, of) in zip(split, self.outputs.items(), strict=True)
        }

    def locate(self, position: int) -> tuple[str, tuple[int, ...]]:
        """Which output the element ``position`` of ``joined`` belongs to, and where in the whole output it is."""
        starts = [0, *accumulate(output.expected.numel() for output in self.outputs.values())]
        number = bisect_right(starts, position) - 1
        name, output = list(self.outputs.items())[number]
        return name, output.locate_flat(position - starts[number])

    @property
    def nbytes(self) -> int:
        """Bytes that its tensors take."""
        return sum(output.nbytes for output in self.outputs.values())
