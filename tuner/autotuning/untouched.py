"""Whether a launch changed what it must not: bit by bit, with the memory around each tensor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from tuner.autotuning.copies import Contents, Lying, placed_on, storages_of
from tuner.naming import listed


def changed(lying: Lying, before: Contents, now: Contents, may_change: Collection[str]) -> str:
    """What is wrong with how the memory ``now`` differs from ``before``, in words; empty where nothing is.

    All of it may differ where the arguments in ``may_change`` lie.
    """
    for key, tensors in lying.items():
        what = _changed_in(tensors, before[key], now[key], may_change)
        if what:
            return what
    return ""


def _changed_in(lying: Mapping[str, torch.Tensor], before: Any, now: Any, may_change: Collection[str]) -> str:
    allowed = [tensor for name, tensor in lying.items() if name in may_change]
    if any(_is_all_of(tensor, now) for tensor in allowed):
        return ""
    if allowed:
        now = now.clone()
        for tensor in allowed:
            if tensor.numel():
                # As it was: what is left different is what lies outside of it.
                bits(placed_on(now, tensor)).copy_(bits(placed_on(before, tensor)))
    if torch.equal(_bytes(now), _bytes(before)):
        return ""
    differ = [name for name, tensor in lying.items() if name not in may_change and not _same(tensor, before, now)]
    if differ:
        return (
            f"it changes {listed(differ)}, which the reference does not return; name in scratch what may hold anything"
        )
    return f"it writes beside {listed(list(lying))}, into the memory that the argument is a part of"


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether an element of one lies in memory of the other."""
    mine = storages_of([one])
    if mine.keys() != storages_of([other]).keys() or not one.numel() or not other.numel():
        return False
    (storage,) = mine.values()
    marks = torch.zeros(storage.nbytes(), dtype=torch.uint8, device=one.device)
    bits(placed_on(marks.untyped_storage(), one)).fill_(1)
    return bool(bits(placed_on(marks.untyped_storage(), other)).ne(0).any())


def _is_all_of(tensor: torch.Tensor, storage: Any) -> bool:
    return tensor.is_contiguous() and tensor.numel() * tensor.element_size() == storage.nbytes()


def _same(tensor: torch.Tensor, before: Any, now: Any) -> bool:
    return torch.equal(bits(placed_on(now, tensor)), bits(placed_on(before, tensor)))


def _bytes(storage: Any) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as whole numbers, every element once: where a stride is 0 there is one element for all."""
    once = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]
    if once.is_complex():
        once = torch.view_as_real(once)
    return once.view(_INTEGERS[once.element_size()])
