"""Other inputs with a known answer: symmetries of an operator under which its outputs change in a known, exact way.

A reference in float64 is dear, so it is computed once and shared by many trials; yet no two trials should meet the same
numbers. A variation turns the inputs of a family into others whose reference is the old one, moved or with other signs:

* softmax, and all that goes by rows: the rows change places.
* attention: the sequences and the groups of heads change places; along head_dim, q and k change sign together (their
  products stay the same, to the bit), and v and the output change sign together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from tuner.operators.head_dims import value_dim
from tuner.operators.tensors import seed_of


@dataclass(frozen=True)
class Variation:
    """How inputs are changed, and outputs changed back.

    ``shifts``: by tensor, how far it is rolled along its leading axes. ``signs``: by tensor, +1 or -1 for each element
    of its last axis: of an input in its own format, of an output in float64.
    """

    shifts: Mapping[str, tuple[int, ...]]
    signs: Mapping[str, torch.Tensor]

    def apply(self, inputs: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]) -> None:
        """Write the inputs that the launch is given into ``given``, tensors of the same shapes and formats."""
        for name, tensor in inputs.items():
            self._write(name, tensor, given[name], 1)

    def undo(
        self, name: str, output: torch.Tensor, into: torch.Tensor, index: tuple[torch.Tensor, ...] | None = None
    ) -> None:
        """Write what the launch would have given for the unchanged inputs into ``into``, float64.

        ``index``: of that, the elements that it selects by advanced indexing, of which ``into`` has the shape.
        """
        if index is None:
            self._write(name, output, into, -1)
            return
        # Only what is wanted is moved back. Negative places count from the end, so that no remainder is needed.
        sizes, shifts = output.shape, self.shifts.get(name, ())
        moved = [at + (by - size) if by else at for at, by, size in zip(index, shifts, sizes, strict=False)]
        self._signed(name, output[(*moved, *index[len(moved) :])], into)

    def place(self, output: str, where: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """Where in the output as it was written the element ``where`` of the unchanged one is."""
        shifts = self.shifts.get(output, ())
        moved = [(at + by) % size for at, by, size in zip(where, shifts, shape, strict=False)]
        return (*moved, *where[len(moved) :])

    def moved(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """``tensor``, of the shape of the output ``name``, with its elements where ``apply`` moves them."""
        shifts = self.shifts.get(name, ())
        return tensor.roll(shifts, tuple(range(len(shifts)))) if shifts else tensor

    def with_heads(self, vectors: Iterable[str], others: Mapping[str, tuple[int, int]]) -> Variation:
        """The same, with ``vectors`` [heads] moved as the heads of q are, and ``others`` along both of q's first axes.

        Those are [batch or 1, heads or 1, ...]; given are the two sizes.
        """
        moved = {name: self.shifts["q"][1:] for name in vectors}
        moved |= {
            n: tuple(by % size for by, size in zip(self.shifts["q"], sizes, strict=True)) for n, sizes in others.items()
        }
        return replace(self, shifts={**self.shifts, **moved})

    def _write(self, name: str, tensor: torch.Tensor, into: torch.Tensor, direction: int) -> None:
        pieces = [(tensor, into)]
        # Copies of pieces run at the memory's speed, which a general roll of a large tensor is far from.
        for axis, by in enumerate(self.shifts.get(name, ())):
            if by:
                size = tensor.shape[axis]
                pieces = [piece for both in pieces for piece in _rolled(*both, axis, direction * by % size)]
        for source, target in pieces:
            self._signed(name, source, target)

    def _signed(self, name: str, tensor: torch.Tensor, into: torch.Tensor) -> None:
        if name in self.signs and tensor.element_size() == 1:
            # e4m3 has no arithmetic: a factor of -1 is the highest bit's change.
            highest = self.signs[name].view(torch.uint8) & 0x80
            torch.bitwise_xor(tensor.view(torch.uint8), highest, out=into.view(torch.uint8))
        elif name in self.signs:
            torch.mul(tensor, self.signs[name], out=into)
        else:
            into.copy_(tensor)


NONE = Variation({}, {})
"""The inputs as they are."""


def of_rows(rows: int, seed: int, tensors: Iterable[str]) -> Variation:
    """Of ``tensors`` that all have as many ``rows`` along their first axis."""
    shift = (seed_of("rows", seed) % rows,)
    return Variation(dict.fromkeys(tensors, shift), {})


def of_heads(sizes: Mapping[str, int], dtype: torch.dtype, device: str, seed: int) -> Variation:
    """Of q, k, v, out and lse, the last axis being head_dim, of v and out the values' own."""
    batch = seed_of("batch", seed) % sizes["batch"]
    groups = seed_of("heads", seed) % sizes["kv_heads"]
    queries, keys = (batch, groups * (sizes["heads"] // sizes["kv_heads"])), (batch, groups)
    generator = torch.Generator("cpu").manual_seed(seed_of("signs", seed))
    dim, of_value = sizes["head_dim"], value_dim(sizes)
    drawn = (2 * torch.randint(2, (2, max(dim, of_value)), generator=generator) - 1.0).to(device=device, dtype=dtype)
    of_logits, of_values = drawn[0, :dim], drawn[1, :of_value]
    shifts = {"q": queries, "out": queries, "lse": queries, "k": keys, "v": keys}
    return Variation(shifts, {"q": of_logits, "k": of_logits, "v": of_values, "out": of_values.double()})


def of_cache(sizes: Mapping[str, int], dtype: torch.dtype, device: str, seed: int, paged: bool) -> Variation:
    """As ``of_heads``, with the sequences' lengths; where ``paged`` their pages stay and their block tables move."""
    heads = of_heads(sizes, dtype, device, seed)
    batch, groups = heads.shifts["k"]
    shifts = {**heads.shifts, "seq_lens": (batch,)}
    if paged:
        shifts |= {"block_table": (batch,), "k": (0, 0, groups), "v": (0, 0, groups)}
    return Variation(shifts, heads.signs)


def of_packed(sizes: Mapping[str, int], dtype: torch.dtype, device: str, seed: int) -> Variation:
    """As ``of_heads``, of sequences one after the other, [tokens, heads, head_dim], which stay where they are."""
    heads = of_heads(sizes, dtype, device, seed)
    (_, queries), (_, keys) = heads.shifts["q"], heads.shifts["k"]
    shifts = {"q": (0, queries), "out": (0, queries), "lse": (queries,), "k": (0, keys), "v": (0, keys)}
    return Variation(shifts, heads.signs)


def _rolled(
    source: torch.Tensor, target: torch.Tensor, axis: int, by: int
) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """The two parts of ``source``, rolled by ``by`` along an axis, and where in ``target`` each of them belongs."""
    rest = source.shape[axis] - by
    return (
        (source.narrow(axis, 0, rest), target.narrow(axis, by, rest)),
        (source.narrow(axis, rest, by), target.narrow(axis, 0, by)),
    )
