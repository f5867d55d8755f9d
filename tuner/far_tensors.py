"""Tensors whose elements lie more than 2^31 apart, for kernels that address them with 32 bits.

Their memory is reserved and not taken: the operating system backs what is touched. As much lies before each tensor, so
that an offset that wraps around reads zeros, and writes into nothing, instead of ending the process.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping

import torch

from tuner.errors import MissingError
from tuner.guarded import GuardedOutputs, UnguardedInputs
from tuner.operators.base import OutputSpec
from tuner.operators.tensors import TORCH_DTYPES

_WRAPPED = 2**31
_NO_INDEX = -(2**60)

Strides = Mapping[str, tuple[int, ...]]


def far_inputs(inputs: Mapping[str, torch.Tensor], strides: Strides) -> UnguardedInputs:
    """The same values, of those that ``strides`` names with these strides."""
    given = dict(inputs)
    for name, tensor in inputs.items():
        if name in strides:
            given[name] = _reserved(tuple(tensor.shape), tensor.dtype, strides[name]).copy_(tensor)
    return UnguardedInputs(given)


class FarOutputs:
    """Room for the outputs of one launch; the face of ``GuardedOutputs``, without guards."""

    def __init__(self, specs: Mapping[str, OutputSpec], strides: Strides) -> None:
        self.tensors = [
            {
                name: _reserved(spec.shape, TORCH_DTYPES[spec.dtype], strides[name])
                if name in strides
                else torch.empty(spec.shape, dtype=TORCH_DTYPES[spec.dtype])
                for name, spec in specs.items()
            }
        ]

    def poison(self, number: int) -> None:
        """Fill the outputs with what no launch should leave in them."""
        for tensor in self.tensors[number].values():
            tensor.fill_(math.nan if tensor.is_floating_point() else _NO_INDEX)

    def left(self, number: int, name: str) -> torch.Tensor:
        """Which elements of one output were not written: bool."""
        tensor = self.tensors[number][name]
        return tensor.isnan() if tensor.is_floating_point() else tensor == _NO_INDEX

    def differences(self) -> torch.Tensor:
        """There is one launch."""
        return torch.zeros(0, dtype=torch.int64)

    def unlike(self, number: int) -> int:
        """There is one launch."""
        return 0

    def violations(self) -> torch.Tensor:
        """What lies between the elements is not looked at."""
        return torch.zeros((), dtype=torch.int64)

    def describe_violation(self, number: int) -> str:
        """There is none."""
        return ""


Outputs = GuardedOutputs | FarOutputs


def _reserved(shape: tuple[int, ...], dtype: torch.dtype, strides: tuple[int, ...]) -> torch.Tensor:
    """A tensor of zeros in memory of its own.

    Raises:
        MissingError: the operating system does not reserve so much.
    """
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    size = (_WRAPPED + span) * dtype.itemsize
    try:
        memory = mmap.mmap(-1, size, flags=flags)
    except OSError as error:
        raise MissingError(
            f"tensors of more than 2^31 elements are checked in {size / 2**30:.0f} GiB of addresses, which are not "
            f"filled, but they cannot be had: {error.strerror}; raise `ulimit -v`, or set vm.overcommit_memory to 0"
        ) from None
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides, _WRAPPED)
