"""Copies of a call's tensors: launches that are tried work on these, and the caller's data are never touched.

Whole storages are copied, so that arguments which share one go on sharing it. What the kernel writes is put back to
what the caller has before every sample: in-place and accumulating kernels always meet the same numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tuner.autotuning.arguments import base_tensor, by_name

MOST_COPIES = 64


@dataclass(frozen=True)
class Call:
    """One launch's arguments, on tensors of its own."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def named(self, arg_names: Sequence[str]) -> dict[str, Any]:
        """By name, as hooks get them: the launch's keyword arguments that are not the kernel's included."""
        return {**dict(zip(arg_names, self.args, strict=False)), **self.kwargs}


class Copies:
    """``calls`` are independent copies of one call; ``nbytes`` is what one takes.

    ``wanted_bytes``: so many bytes in all are asked for, so that consecutive launches do not find their data in the
    cache; ``limit_bytes``: no more are taken. ``written``: the arguments that the kernel writes. Where one copy of
    everything is over the limit, only what is written is copied (``whole`` is False). Raises ``MemoryError`` where not
    even that fits.
    """

    def __init__(
        self,
        arg_names: Sequence[str],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        written: frozenset[str],
        *,
        wanted_bytes: int,
        limit_bytes: int,
    ) -> None:
        self._arg_names = arg_names
        named = by_name(arg_names, args, kwargs)
        everything = dict(_storages(named.values()))
        changing = dict(_storages(value for name, value in named.items() if name in written))
        chosen = everything
        self.whole = _size(everything) <= limit_bytes
        if not self.whole:
            chosen = changing
        self.nbytes = _size(chosen)
        if self.nbytes > limit_bytes:
            raise MemoryError(
                f"the tensors that it writes take {self.nbytes >> 20} MiB, and {limit_bytes >> 20} MiB may be used"
            )
        self._changing = changing
        size = max(1, self.nbytes)
        count = max(1, min(MOST_COPIES, -(-wanted_bytes // size), limit_bytes // size)) if chosen else 1
        self._copied: list[dict[int, Any]] = []
        self.calls: list[Call] = []
        for _ in range(count):
            storages = {key: storage.clone() for key, storage in chosen.items()}
            self._copied.append(storages)
            self.calls.append(
                Call(
                    tuple(_moved(value, storages) for value in args),
                    {name: _moved(value, storages) for name, value in kwargs.items()},
                )
            )

    def restore(self, zeroed: Sequence[str] = ()) -> None:
        """Put back what the kernel writes; those arguments ``zeroed`` that are no None hold zeros then."""
        for storages, call in zip(self._copied, self.calls, strict=True):
            for key, original in self._changing.items():
                storages[key].copy_(original)
            named = call.named(self._arg_names)
            for name in zeroed:
                tensor = base_tensor(named.get(name))
                if tensor is not None:
                    tensor.zero_()


def _storages(values: Any) -> Iterator[tuple[int, Any]]:
    for value in values:
        tensor = base_tensor(value)
        if isinstance(tensor, torch.Tensor):
            storage = tensor.untyped_storage()
            yield storage.data_ptr(), storage


def _size(storages: Mapping[int, Any]) -> int:
    return sum(storage.nbytes() for storage in storages.values())


def _moved(value: Any, storages: Mapping[int, Any]) -> Any:
    """``value`` with its storage replaced by the copy of it, where there is one."""
    tensor = base_tensor(value)
    if not isinstance(tensor, torch.Tensor):
        return value
    storage = storages.get(tensor.untyped_storage().data_ptr())
    if storage is None:
        return value
    moved = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    moved.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    if tensor is value:
        return moved
    other = copy.copy(value)
    other.base = moved
    return other
