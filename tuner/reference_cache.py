"""Inputs and references, made once per worker process and kept within a bound of bytes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from tuner.guarded import GuardedInputs, GuardedOutputs
from tuner.operators.base import Operator, OutputSpec
from tuner.operators.reference import Reference
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

T = TypeVar("T")
_DEFAULT_BYTES = 4 * 2**30
_LARGEST_OUTPUTS = 2**25


@dataclass(frozen=True)
class _Entry(Generic[T]):
    value: T
    nbytes: int
    inputs_of: Problem | None = None  # whose inputs these are, or a place for them


class ReferenceCache:
    """Least recently used first out; something larger than the whole bound is made anew each time."""

    def __init__(self, limit_bytes: int = _DEFAULT_BYTES) -> None:
        self._limit = limit_bytes
        self._entries: OrderedDict[Hashable, _Entry[object]] = OrderedDict()
        self._held = 0
        self.hits = 0
        self.misses = 0

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return self._held

    def inputs(
        self, operator: Operator, problem: Problem, family: str, seed: int, device: str
    ) -> dict[str, torch.Tensor]:
        """``operator.make_inputs(...)``. The tensors are shared: who lets a kernel at them checks them afterwards."""
        key = ("inputs", problem, family, seed, device)
        return self._get(key, lambda: operator.make_inputs(problem, family, seed, device), _tensor_bytes, problem)

    def reference(
        self,
        operator: Operator,
        problem: Problem,
        inputs: dict[str, torch.Tensor],
        family: str,
        seed: int,
        profile: PrecisionProfile,
        device: str,
    ) -> Reference:
        """``operator.reference(problem, inputs, profile)`` for the inputs called ``family`` at ``seed``."""
        key = ("reference", problem, family, seed, profile, device)
        return self._get(key, lambda: operator.reference(problem, inputs, profile), lambda r: r.nbytes)

    def guarded(
        self, problem: Problem, inputs: dict[str, torch.Tensor], strides: Mapping[str, tuple[int, ...]], device: str
    ) -> GuardedInputs:
        """Two places between guard bands for ``problem``'s inputs.

        They are the same for every family and every candidate, so that one address holds ever new numbers.
        """
        key = ("guarded", problem, tuple(strides.items()), device)
        return self._get(key, lambda: GuardedInputs(inputs, strides), lambda g: g.nbytes, problem)

    def outputs(self, problem: Problem, specs: Mapping[str, OutputSpec], device: str, count: int) -> GuardedOutputs:
        """Room for ``problem``'s outputs of ``count`` launches, the same for every family and every candidate.

        Beyond 32 MiB it is made anew each time: the allocator is quick, and references are dearer.
        """
        key = ("outputs", problem, tuple(specs.items()), device, count)
        return self._get(
            key, lambda: GuardedOutputs(specs, device, count), lambda o: o.nbytes, largest=_LARGEST_OUTPUTS
        )

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once: something small."""
        return self._get(key, make, lambda made: 0)

    def forget_inputs(self, problem: Problem) -> None:
        """Drop every input and place of ``problem``: a kernel has changed one of them."""
        for key in [key for key, entry in self._entries.items() if entry.inputs_of == problem]:
            self._held -= self._entries.pop(key).nbytes

    def _get(
        self,
        key: Hashable,
        make: Callable[[], T],
        size: Callable[[T], int],
        inputs_of: Problem | None = None,
        *,
        largest: float = math.inf,
    ) -> T:
        if key in self._entries:
            self._entries.move_to_end(key)
            self.hits += 1
            return self._entries[key].value  # type: ignore[return-value]
        self.misses += 1
        value = make()
        nbytes = size(value)
        if nbytes <= min(self._limit, largest):
            while self._entries and self._held + nbytes > self._limit:
                _, oldest = self._entries.popitem(last=False)
                self._held -= oldest.nbytes
            self._entries[key] = _Entry(value, nbytes, inputs_of)
            self._held += nbytes
        return value


def _tensor_bytes(tensors: dict[str, torch.Tensor]) -> int:
    return sum(t.untyped_storage().nbytes() for t in tensors.values())
