"""Other inputs with a known answer: symmetries of an operator under which its outputs change in a known, exact way.

A reference in float64 is dear, so it is computed once and shared by many trials; yet no two trials should meet the same
numbers. A variation turns the inputs of a family into others whose reference is the old one, moved or with other signs:

* softmax: the rows change places.
* attention: the sequences and the groups of heads change places; along head_dim, q and k change sign together (their
  products stay the same, to the bit), and v and the output change sign together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tuner.operators.tensors import seed_of

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Variation:
    """How inputs are changed, and outputs changed back.

    ``shifts``: by tensor, how far it is rolled along its leading axes. ``signs``: by tensor, +1 or -1 for each element
    of its last axis, in the tensor's own format.
    """

    shifts: Mapping[str, tuple[int, ...]]
    signs: Mapping[str, torch.Tensor]

    def apply(self, inputs: Mapping[str, torch.Tensor]) -> Tensors:
        """The inputs that the launch is given."""
        return {name: self._changed(name, tensor, 1) for name, tensor in inputs.items()}

    def undo(self, outputs: Mapping[str, torch.Tensor]) -> Tensors:
        """What the launch would have given for the unchanged inputs."""
        return {name: self._changed(name, tensor, -1) for name, tensor in outputs.items()}

    def place(self, output: str, where: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """Where in the output as it was written the element ``where`` of the unchanged one is."""
        shifts = self.shifts.get(output, ())
        moved = [(at + by) % size for at, by, size in zip(where, shifts, shape, strict=False)]
        return (*moved, *where[len(moved) :])

    def moved(self, name: str, tensor: torch.Tensor, direction: int = 1) -> torch.Tensor:
        """``tensor``, of the shape of ``name``, with its elements where ``apply`` moves them; -1 moves them back."""
        shifts = [direction * by for by in self.shifts.get(name, ())]
        axes = [axis for axis, by in enumerate(shifts) if by]
        return tensor.roll([shifts[axis] for axis in axes], axes) if axes else tensor

    def _changed(self, name: str, tensor: torch.Tensor, direction: int) -> torch.Tensor:
        tensor = self.moved(name, tensor, direction)
        return tensor * self.signs[name] if name in self.signs else tensor


NONE = Variation({}, {})
"""The inputs as they are."""


def of_rows(rows: int, seed: int) -> Variation:
    """Of a matrix ``x`` and its ``out`` of as many rows."""
    shift = (seed_of("rows", seed) % rows,)
    return Variation({"x": shift, "out": shift}, {})


def of_heads(sizes: Mapping[str, int], dtype: torch.dtype, device: str, seed: int) -> Variation:
    """Of q, k, v, out and lse, the last axis of all but lse being head_dim."""
    batch = seed_of("batch", seed) % sizes["batch"]
    groups = seed_of("heads", seed) % sizes["kv_heads"]
    queries, keys = (batch, groups * (sizes["heads"] // sizes["kv_heads"])), (batch, groups)
    generator = torch.Generator("cpu").manual_seed(seed_of("signs", seed))
    drawn = 2 * torch.randint(2, (2, sizes["head_dim"]), generator=generator) - 1
    of_logits, of_values = drawn.to(device=device, dtype=dtype)
    shifts = {"q": queries, "out": queries, "lse": queries, "k": keys, "v": keys}
    return Variation(shifts, {"q": of_logits, "k": of_logits, "v": of_values, "out": of_values})
