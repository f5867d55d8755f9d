"""What an operator's outputs should be, and how far each element of a candidate's may be from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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

    def select(self, output: torch.Tensor) -> torch.Tensor:
        """The elements of a candidate's whole ``output`` that ``expected`` covers, as it arranges them."""
        return output if self.index is None else output[self.index]

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

    @property
    def nbytes(self) -> int:
        """Bytes that its tensors take."""
        tensors = [self.expected, self.bound, *(self.index or ())]
        if self.variance is not None:
            tensors.append(self.variance)
        return sum(t.numel() * t.element_size() for t in tensors)


@dataclass(frozen=True)
class Reference:
    """The expected outputs of one problem on one set of inputs, by output name."""

    outputs: Mapping[str, OutputReference]

    def select(self, name: str, output: torch.Tensor) -> torch.Tensor:
        """The elements of the candidate's output ``name`` that the reference covers."""
        return self.outputs[name].select(output)

    @property
    def nbytes(self) -> int:
        """Bytes that its tensors take."""
        return sum(output.nbytes for output in self.outputs.values())
