"""Tensors with guard bands: a write outside an output and a read outside an input show.

The outputs of a launch, and its inputs, lie in one row of a storage, each between bands of at least 4 KiB, or a row of
theirs where that is more; the elements between strided rows count as guard too. The guard of outputs holds a fixed
pattern that must be there afterwards, bit for bit; the guard of inputs is NaN. With one row for all tensors, and all
rows in one storage, one operation covers them all; what is counted stays on the device as a tensor, so that a caller
can read many counts at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tuner.operators.base import OutputSpec
from tuner.operators.tensors import TORCH_DTYPES

_BAND_BYTES = 4096
_ALIGNMENT_BYTES = 512  # what device allocators give: a guarded tensor must not lose the launch's 16-byte alignment
_WORD_BYTES = 2  # every output is a whole number of 16-bit words, every input with what is left of its last one
_CHECKSUM_BLOCKS = 64
# Up to this size inputs are compared with a copy, word by word; larger ones by sums over blocks of them.
_COPIED_BYTES = 2**25

# What outputs and their guard hold before a launch, by turns: a NaN that no arithmetic gives, and a large finite number
# (2.8e35, in fp16 5.2e4); as an int64, which has no NaN, a number below -10^16 or above 10^18, which no index is. As
# every format has it from 16-bit words that are all the same, one operation fills a row.
_POISON = (0xFFC5 - 0x10000, 0x7A5A)
_NAN_WORD = 0x7FFF  # two of them are a NaN in fp32 as well, each half of it one in e4m3
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class _Place:
    """Where one tensor lies in a storage of 16-bit words: its band starts at ``low``, its elements at ``start``."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    low: int
    start: int
    end: int
    high: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def dense(self) -> bool:
        return self.end - self.start == self.elements * self.dtype.itemsize // _WORD_BYTES

    def view(self, words: torch.Tensor, start: int) -> torch.Tensor:
        """The tensor in ``words``, where its elements begin at word ``start``."""
        return words.view(self.dtype).as_strided(self.shape, self.strides, start * _WORD_BYTES // self.dtype.itemsize)


class GuardedOutputs:
    """Room for the outputs of ``count`` launches, each between guard bands.

    ``tensors[n]`` are what launch n writes to. They and their guard are filled by ``poison``: with NaN where n is even,
    with a large finite number where it is odd.
    """

    def __init__(self, specs: Mapping[str, OutputSpec], device: str, count: int) -> None:
        shapes = {
            name: (s.shape, s.strides or _contiguous(s.shape), TORCH_DTYPES[s.dtype]) for name, s in specs.items()
        }
        self._places, size = _layout(shapes)
        self._rows = torch.empty((count, size), dtype=torch.int16, device=device)
        self._patterns = torch.empty((count, 1), dtype=torch.int16, device=device)
        for large, pattern in enumerate(_POISON):
            self._patterns[large::2].fill_(pattern)
        self._row = list(self._rows.unbind())
        self.tensors = [self._views(self._rows.view(-1), number * size) for number in range(count)]
        self._bands = [
            self._rows[:, a:b] for p in self._places.values() for a, b in ((p.low, p.start), (p.end, p.high))
        ]
        inside = sum(p.elements * p.dtype.itemsize for p in self._places.values()) // _WORD_BYTES
        self._guard_words = size - inside

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self._rows.numel() * _WORD_BYTES

    def poison(self, number: int) -> None:
        """Fill the outputs of one launch, and their guard, with what no launch should leave in an output."""
        self._row[number].fill_(_POISON[number % 2])

    def left(self, number: int, name: str) -> torch.Tensor:
        """Which elements of one output still hold, to the bit, what they were filled with: bool."""
        tensor = bits(self.tensors[number][name])
        return tensor == _pattern(number, tensor.element_size())

    def differences(self) -> torch.Tensor:
        """For every launch but the first, how many 16-bit words it left otherwise, guards included: int64 [count - 1].

        Of a launch that left the same outputs it is what ``unlike`` says.
        """
        return (self._rows[1:] != self._rows[0]).sum(dim=1)

    def unlike(self, number: int) -> int:
        """How many words of the guard of one launch are unlike that of the first: all or none."""
        return self._guard_words if number % 2 else 0

    def violations(self) -> torch.Tensor:
        """How many 16-bit words were written outside the outputs of all launches: int64 scalar."""
        guards = [*self._bands, *(self._between(p) for p in self._places.values() if not p.dense)]
        return (torch.cat(guards, dim=1) != self._patterns).sum()

    def describe_violation(self, number: int) -> str:
        """Where something was written outside an output of one launch; empty where nothing was."""
        row = self._row[number]
        for name, place in self._places.items():
            guards = [("before", row[place.low : place.start]), ("after", row[place.end : place.high])]
            if not place.dense:
                guards.append(("between the rows of", self._between(place)[number]))
            for side, words in guards:
                size = place.dtype.itemsize // _WORD_BYTES
                hit = (words != _POISON[number % 2]).view(-1, size).any(dim=1).nonzero()[:, 0].tolist()
                if hit:
                    nearest = len(words) // size - hit[-1] if side == "before" else hit[0] + 1
                    return (
                        f"{name}: {len(hit)} elements were written {side} the output (nearest {nearest} from its edge)"
                    )
        return ""

    def _between(self, place: _Place) -> torch.Tensor:
        """The words from an output's first element to its last, those of its elements as if never written."""
        inside = self._rows[:, place.start : place.end].clone(memory_format=torch.contiguous_format)
        for number in range(len(inside)):
            elements = bits(place.view(inside.view(-1), number * inside.shape[1]))
            elements.fill_(_pattern(number, elements.element_size()))
        return inside

    def _views(self, words: torch.Tensor, start: int) -> dict[str, torch.Tensor]:
        return {name: place.view(words, start + place.start) for name, place in self._places.items()}


class GuardedInputs:
    """Two places for inputs, with their strides, each surrounded by NaN and with NaN between strided rows.

    ``given``: what the launch is to be given, for the caller to write; ``fill`` puts it into the ``places``. They serve
    all inputs of one layout one after the other: a launch then finds other numbers where it read before.
    """

    def __init__(self, like: Mapping[str, torch.Tensor], strides: Mapping[str, tuple[int, ...]] | None = None) -> None:
        """Room for tensors of the shapes, formats and device of ``like``, and its strides where none are given."""
        strides = strides or {}
        layout = {name: (tuple(t.shape), strides.get(name, tuple(t.stride())), t.dtype) for name, t in like.items()}
        places, size = _layout(layout)
        device = next(iter(like.values())).device
        self._rows = torch.full((3, size), _NAN_WORD, dtype=torch.int16, device=device)
        words = self._rows.view(-1)
        self.given, first, second = (
            {name: place.view(words, row * size + place.start) for name, place in places.items()} for row in range(3)
        )
        self.places = (first, second)
        self._row = list(self._rows.unbind())
        self._small = size * _WORD_BYTES <= _COPIED_BYTES

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self._rows.numel() * _WORD_BYTES

    def fill(self, place: int) -> None:
        """Put what is given into a place; what is there afterwards must stay."""
        self._row[1 + place].copy_(self._row[0])

    def wipe(self, place: int) -> None:
        """Make every element of a place NaN."""
        self._row[1 + place].fill_(_NAN_WORD)

    def changes(self, used: int) -> torch.Tensor:
        """How many 64-bit words (of many: sums of them) of the first ``used`` places, guards included, are not what
        they were: int64 scalar."""
        rows = self._rows[: 1 + used].view(torch.int64)
        if not self._small:
            rows = rows.view(1 + used, _CHECKSUM_BLOCKS, -1).sum(dim=2)
        return (rows[1:] != rows[0]).sum()

    def changed(self) -> str:
        """The name of the first tensor that is not what was given; of the first of all where none differs."""
        for name, tensor in self.given.items():
            if not all(torch.equal(bits(tensor), bits(place[name])) for place in self.places):
                return name
        return next(iter(self.given))


class UnguardedInputs:
    """Inputs too large for a copy, which the launch is given as they are; the face of ``GuardedInputs``."""

    def __init__(self, inputs: Mapping[str, torch.Tensor]) -> None:
        self.given = dict(inputs)
        self.places = (self.given, self.given)
        self._before = {name: checksum(t) for name, t in inputs.items()}

    def fill(self, place: int) -> None:
        """They are there already."""

    def wipe(self, place: int) -> None:
        """There is no other copy of them to put back."""

    def changes(self, used: int) -> torch.Tensor:
        """How many sums over parts of them are not what they were: int64 scalar."""
        return torch.stack([(checksum(self.given[name]) != s).sum() for name, s in self._before.items()]).sum()

    def changed(self) -> str:
        """The name of the first tensor that is not what it was; of the first of all where none differs."""
        differs = (name for name, s in self._before.items() if not torch.equal(checksum(self.given[name]), s))
        return next(differs, next(iter(self.given)))


Inputs = GuardedInputs | UnguardedInputs


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements as integers of their size."""
    return tensor.view(_INTEGERS[tensor.element_size()])


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """Sums of the tensor's bits over blocks of it, int64 on its device: equal for equal contents, cheap at any size."""
    size = tensor.element_size()
    if tensor.is_contiguous() and tensor.numel() * size % (8 * _CHECKSUM_BLOCKS) == 0:
        return tensor.view(-1).view(torch.int64).view(_CHECKSUM_BLOCKS, -1).sum(dim=1)
    return bits(tensor).sum(dim=-1, dtype=torch.int64)


def _pattern(number: int, size: int) -> int:
    """The poison of launch ``number`` as an integer of ``size`` bytes."""
    word = pattern = _POISON[number % 2]
    for _ in range(size // _WORD_BYTES - 1):
        pattern = (pattern << 16) + (word & 0xFFFF)
    return pattern


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _layout(
    tensors: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], torch.dtype]],
) -> tuple[dict[str, _Place], int]:
    """Where each tensor (shape, strides, dtype) lies, and how many words all take."""
    places: dict[str, _Place] = {}
    at = 0
    for name, (shape, strides, dtype) in tensors.items():
        row = (strides[-2] if len(strides) > 1 else shape[-1]) * dtype.itemsize
        band = _aligned(max(_BAND_BYTES, row)) // _WORD_BYTES
        span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        start, end = at + band, at + band - (-span * dtype.itemsize // _WORD_BYTES)
        high = _aligned((end + band) * _WORD_BYTES) // _WORD_BYTES
        places[name] = _Place(shape, strides, dtype, at, start, end, high)
        at = high
    return places, at


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
