"""Copies of a call's tensors: launches that are tried work on these, and the caller's data are never touched.

Whole storages are copied, so that arguments which share one go on sharing it. What the kernel writes is put back to
what the caller has before every sample: in-place and accumulating kernels always meet the same numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tuner.autotuning.arguments import base_tensor, by_name, is_tensor

MOST_COPIES = 64


@dataclass(frozen=True)
class Call:
    """One launch's arguments, on tensors of its own."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def named(self, arg_names: Sequence[str]) -> dict[str, Any]:
        """By name, as hooks get them: the launch's keyword arguments that are not the kernel's included."""
        return {**dict(zip(arg_names, self.args, strict=False)), **self.kwargs}


Contents = Mapping[tuple[str, int], Any]
"""Storages by the device and the address of the caller's that they stand for."""

Lying = Mapping[tuple[str, int], Mapping[str, torch.Tensor]]
"""By the same, the arguments that lie in each."""


class Copies:
    """``calls`` are independent copies of one call; ``nbytes`` is what one takes.

    ``wanted_bytes``: so many bytes in all are asked for, so that consecutive launches do not find their data in the
    cache; ``limit_bytes``: no more are taken. ``written``: the arguments that the kernel writes; ``hooked``: hooks of
    the caller's may write any. Where one copy of everything is over the limit, only what the kernel writes is copied
    (``whole`` is False). Raises ``MemoryError`` where not even that fits.
    """

    def __init__(
        self,
        arg_names: Sequence[str],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        written: frozenset[str],
        *,
        hooked: bool,
        wanted_bytes: int,
        limit_bytes: int,
    ) -> None:
        self._arg_names = arg_names
        named = by_name(arg_names, args, kwargs)
        everything = storages_of(named.values())
        changing = storages_of(value for name, value in named.items() if name in written)
        chosen = everything
        self.whole = _size(everything) <= limit_bytes
        if not self.whole:
            chosen = changing
        elif hooked:
            changing = everything
        self.nbytes = _size(chosen)
        if self.nbytes > limit_bytes:
            raise MemoryError(
                f"the tensors that it writes take {self.nbytes >> 20} MiB, and {limit_bytes >> 20} MiB may be used"
            )
        self._changing, self._chosen = changing, chosen
        size = max(1, self.nbytes)
        count = max(1, min(MOST_COPIES, -(-wanted_bytes // size), limit_bytes // size)) if chosen else 1
        self._copied: list[dict[tuple[str, int], Any]] = []
        self.calls: list[Call] = []
        self._given = (*args, *kwargs.values())
        for _ in range(count):
            storages = {key: _clone(storage) for key, storage in chosen.items()}
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
            self._finish(call, zeroed)

    def restore_first(self, zeroed: Sequence[str] = (), contents: Contents | None = None) -> None:
        """Put back all of the first copy: to what the caller has, or to ``contents`` where they are given."""
        for key, original in (self._chosen if contents is None else contents).items():
            self._copied[0][key].copy_(original)
        self._finish(self.calls[0], zeroed)

    @property
    def now(self) -> Contents:
        """The first copy's memory."""
        return self._copied[0]

    @property
    def given(self) -> Contents:
        """What the caller's memory holds that is copied."""
        return self._chosen

    def contents(self) -> Contents:
        """What the first copy holds now, on storages of its own."""
        return {key: _clone(storage) for key, storage in self.now.items()}

    @property
    def lying(self) -> Lying:
        """The first copy's arguments, by where they lie."""
        found: dict[tuple[str, int], dict[str, torch.Tensor]] = {key: {} for key in self.now}
        places = {_key(storage): key for key, storage in self.now.items()}
        for name, value in self.calls[0].named(self._arg_names).items():
            tensor = base_tensor(value)
            key = places.get(_key(tensor.untyped_storage())) if isinstance(tensor, torch.Tensor) else None
            if key is not None:
                found[key][name] = tensor
        return found

    def _finish(self, call: Call, zeroed: Sequence[str]) -> None:
        for value, given in zip((*call.args, *call.kwargs.values()), self._given, strict=True):
            if value is not given and not is_tensor(value):
                base = value.base
                vars(value).update(_attributes(given))  # a hook may have given a descriptor another block
                value.base = base
        named = call.named(self._arg_names)
        for name in zeroed:
            tensor = base_tensor(named.get(name))
            if tensor is not None:
                tensor.zero_()


def storages_of(values: Iterable[Any]) -> dict[tuple[str, int], Any]:
    """The memory of every tensor among ``values``, once each."""
    found = {}
    for value in values:
        tensor = base_tensor(value)
        if isinstance(tensor, torch.Tensor):
            storage = tensor.untyped_storage()
            found[_key(storage)] = storage
    return found


def placed_on(storage: Any, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that ``tensor`` would be if ``storage`` were its memory."""
    moved = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return moved.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


def _key(storage: Any) -> tuple[str, int]:
    return (str(storage.device), storage.data_ptr())


def _size(storages: Contents) -> int:
    return sum(storage.nbytes() for storage in storages.values())


def _clone(storage: Any) -> Any:
    """What a GPU reads in the host's memory is pinned, and stays so."""
    pinned = storage.device.type == "cpu" and torch.cuda.is_available() and storage.is_pinned()
    return storage.clone().pin_memory() if pinned else storage.clone()


def _moved(value: Any, storages: Contents) -> Any:
    """``value`` with its storage replaced by the copy of it, where there is one."""
    tensor = base_tensor(value)
    if not isinstance(tensor, torch.Tensor):
        return value
    storage = storages.get(_key(tensor.untyped_storage()))
    if storage is None:
        return value
    moved = placed_on(storage, tensor)
    if tensor is value:
        return moved
    other = copy.copy(value)
    vars(other).update(_attributes(value))
    other.base = moved
    return other


def _attributes(descriptor: Any) -> dict[str, Any]:
    """With lists of their own: a hook may write into one."""
    return {name: list(v) if isinstance(v, list) else v for name, v in vars(descriptor).items()}
