"""What a launch allocates starts as poison: scratch that is read before it is written shows in the results.

A caching allocator hands out memory that an earlier launch, or the reference, has filled with the right numbers. In
this mode every uninitialised tensor that is made is filled first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tuner.dispatch_mode import DispatchMode

_UNINITIALISED = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}
_INTEGER = 0x55


class PoisonedAllocations(DispatchMode):  # type: ignore[no-untyped-call]
    """Within ``with PoisonedAllocations(value):`` uninitialised tensors hold ``value`` (integers a pattern of bits).

    A format that cannot hold ``value`` gets half of its largest number.
    """

    def __init__(self, value: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._value = value

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run ``func``; fill what it made where that is uninitialised."""
        made = func(*args, **(kwargs or {}))
        if func in _UNINITIALISED and made.dtype is not torch.bool:
            made.fill_(self._poison(made.dtype))
        return made

    def _poison(self, dtype: torch.dtype) -> float:
        if not dtype.is_floating_point:
            return _INTEGER
        return self._value if math.isnan(self._value) else min(self._value, torch.finfo(dtype).max / 2)
