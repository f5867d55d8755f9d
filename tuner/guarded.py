"""Tensors with guard bands: a write outside an output and a read outside an input show.

All outputs of a launch, and all inputs, lie in one storage, each between bands of at least 4 KiB, or a row where that
is more; the elements between strided rows count as guard too. The guard of outputs holds a fixed pattern that must be
there afterwards, bit for bit; the guard of inputs is NaN. With one storage for all tensors, one comparison covers them
all; what is counted stays on the device as a tensor, so that a caller can read many counts at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from tuner.operators.base import OutputSpec
from tuner.operators.tensors import TORCH_DTYPES

_BAND_BYTES = 4096
_ALIGNMENT_BYTES = 256  # what device allocators give: a guarded tensor must not lose the launch's 16-byte alignment
_WORD_BYTES = 2  # every dtype is a whole number of 16-bit words
_CHECKSUM_BLOCKS = 64
# Up to this size inputs are compared with a copy, word by word; larger ones by sums over blocks of them.
_COPIED_BYTES = 2**25

# Poison for outputs before a launch: NaN in one run, in the other a large finite value.
NAN = float("nan")
LARGE = {torch.float32: 2.5e30, torch.bfloat16: 2.5e30, torch.float16: 5.0e4}
_GUARD_WORD = 0xC5C5 - 0x10000  # a negative number in every format
_GUARD = {2: _GUARD_WORD, 4: 0xC5C5C5C5 - 0x100000000}
_NAN_WORD = 0x7FFF  # two of them are a NaN in fp32 as well


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
    def dense(self) -> bool:
        return self.end - self.start == math.prod(self.shape) * self.dtype.itemsize // _WORD_BYTES

    def view(self, words: torch.Tensor, start: int) -> torch.Tensor:
        """The tensor in ``words``, where its elements begin at word ``start``."""
        return words.view(self.dtype).as_strided(self.shape, self.strides, start * _WORD_BYTES // self.dtype.itemsize)


class GuardedOutputs:
    """The outputs of one launch between guard bands, filled with poison: NaN, or a large finite value.

    ``tensors`` are what the launch writes to.
    """

    def __init__(self, specs: Mapping[str, OutputSpec], device: str, *, large: bool) -> None:
        self.large = large
        shapes = {
            name: (s.shape, s.strides or _contiguous(s.shape), TORCH_DTYPES[s.dtype]) for name, s in specs.items()
        }
        self._places, size = _layout(shapes)
        self._words = torch.full((size,), _GUARD_WORD, dtype=torch.int16, device=device)
        self.tensors = {name: place.view(self._words, place.start) for name, place in self._places.items()}
        self.poison()

    def poison(self) -> None:
        """Fill the outputs, and nothing else, with what no launch should leave there."""
        for tensor in self.tensors.values():
            tensor.fill_(LARGE[tensor.dtype] if self.large else NAN)

    def left(self, name: str) -> torch.Tensor:
        """Which elements of one output still hold what they were filled with (or that value again): bool."""
        tensor = self.tensors[name]
        return tensor == LARGE[tensor.dtype] if self.large else tensor.isnan()

    def differences(self, other: GuardedOutputs) -> torch.Tensor:
        """How many 16-bit words of these outputs and another launch's differ: int64 scalar."""
        return (self._words != other._words).sum()

    def guards(self) -> list[torch.Tensor]:
        """Everything that must hold the guard's pattern, as 16-bit words."""
        return [words for place in self._places.values() for words in self._guards(place)]

    def describe_violation(self) -> str:
        """Where something was written outside an output; empty where nothing was."""
        for name, place in self._places.items():
            for words, side in zip(self._guards(place), ("before", "after", "between the rows of"), strict=False):
                size = place.dtype.itemsize // _WORD_BYTES
                hit = (words != _GUARD_WORD).view(-1, size).any(dim=1).nonzero()[:, 0].tolist()
                if hit:
                    nearest = len(words) // size - hit[-1] if side == "before" else hit[0] + 1
                    return (
                        f"{name}: {len(hit)} elements were written {side} the output (nearest {nearest} from its edge)"
                    )
        return ""

    def _guards(self, place: _Place) -> list[torch.Tensor]:
        guards = [self._words[place.low : place.start], self._words[place.end : place.high]]
        if not place.dense:
            inside = self._words[place.start : place.end].clone()
            elements = place.view(inside, 0)
            bits(elements).fill_(_GUARD[elements.element_size()])
            guards.append(inside)
        return guards


class GuardedInputs:
    """A place for inputs, with their strides, surrounded by NaN and with NaN between strided rows.

    Inputs of one layout can be put into it one after the other: a launch then finds other numbers where it read before.
    """

    def __init__(self, like: Mapping[str, torch.Tensor], strides: Mapping[str, tuple[int, ...]] | None = None) -> None:
        """Room for tensors of the shapes, formats and device of ``like``, and its strides where none are given."""
        strides = strides or {}
        layout = {name: (tuple(t.shape), strides.get(name, tuple(t.stride())), t.dtype) for name, t in like.items()}
        places, size = _layout(layout)
        device = next(iter(like.values())).device
        self._words = torch.full((size,), _NAN_WORD, dtype=torch.int16, device=device)
        self._small = self._words.numel() * _WORD_BYTES <= _COPIED_BYTES
        self._before = self._words.clone() if self._small else checksum(self._words)
        self.tensors = {name: place.view(self._words, place.start) for name, place in places.items()}

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return (2 if self._small else 1) * self._words.numel() * _WORD_BYTES

    def fill(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Put ``inputs`` there; what is there afterwards must stay."""
        for name, tensor in inputs.items():
            self.tensors[name].copy_(tensor)
        if self._small:
            self._before.copy_(self._words)
        else:
            self._before = checksum(self._words)

    def wipe(self) -> None:
        """Make every element NaN."""
        self._words.fill_(_NAN_WORD)

    def changes(self) -> torch.Tensor:
        """How many 16-bit words (of many: how many sums of them), guards included, are not what they were: int64."""
        return ((self._words if self._small else checksum(self._words)) != self._before).sum()


class UnguardedInputs:
    """Inputs too large for a copy, which the launch is given as they are; the face of ``GuardedInputs``."""

    def __init__(self, inputs: Mapping[str, torch.Tensor]) -> None:
        self.tensors = dict(inputs)
        self._before = {name: checksum(t) for name, t in inputs.items()}

    def fill(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """They are there already."""

    def wipe(self) -> None:
        """There is no other copy of them to put back."""

    def changes(self) -> torch.Tensor:
        """How many sums over parts of them are not what they were: int64 scalar."""
        return torch.stack([(checksum(self.tensors[name]) != s).sum() for name, s in self._before.items()]).sum()


def violations(outputs: Iterable[GuardedOutputs]) -> torch.Tensor:
    """How many 16-bit words were written outside the outputs of some launches: int64 scalar."""
    return (torch.cat([words for one in outputs for words in one.guards()]) != _GUARD_WORD).sum()


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements as integers of their size."""
    return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """Sums of the tensor's bits over blocks of it, int64 on its device: equal for equal contents, cheap at any size."""
    size = tensor.element_size()
    if tensor.is_contiguous() and tensor.numel() * size % (8 * _CHECKSUM_BLOCKS) == 0:
        return tensor.view(-1).view(torch.int64).view(_CHECKSUM_BLOCKS, -1).sum(dim=1)
    return bits(tensor).sum(dim=-1, dtype=torch.int64)


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
        start, end = at + band, at + band + span * dtype.itemsize // _WORD_BYTES
        high = _aligned((end + band) * _WORD_BYTES) // _WORD_BYTES
        places[name] = _Place(shape, strides, dtype, at, start, end, high)
        at = high
    return places, at


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
