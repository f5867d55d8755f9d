"""Asks the user's reference: with copies of a call's tensors, and with what it answers made sure of."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tuner.autotuning.arguments import base_tensor
from tuner.errors import AutotuneError
from tuner.naming import did_you_mean, listed


class Reference:
    """``function`` takes arguments of the kernel by name, and returns what its outputs must hold by name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        parameters = inspect.signature(function).parameters.values()
        everything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        self._takes = None if everything else {p.name for p in parameters}

    def takes(self, name: str) -> bool:
        """Whether it is given the argument of this name."""
        return self._takes is None or name in self._takes

    def outputs(self, named: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """What the tensors must hold after a launch with ``named``, on their devices and of their shapes.

        Raises ``AutotuneError`` where it cannot be called with them, or its answer is none.
        """
        found = self._call(wide(named))
        if not isinstance(found, Mapping) or not found:
            raise AutotuneError(
                f"the reference must return a dictionary from argument name to expected tensor, but returned "
                f"{type(found).__name__}"
            )
        return {name: self._checked(name, want, named) for name, want in found.items()}

    def again(self, given: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """What it answers to other contents, as ``wide`` makes them, of tensors that it has answered to before."""
        found = self._call(given)
        return {name: want.detach().to(base_tensor(given[name]).device) for name, want in found.items()}

    def _checked(self, name: str, want: Any, named: Mapping[str, Any]) -> torch.Tensor:
        tensor = base_tensor(named.get(name))
        if tensor is None:
            tensors = [n for n, v in named.items() if base_tensor(v) is not None]
            raise AutotuneError(
                f"the reference returned {name!r}, which is no tensor argument{did_you_mean(name, tensors)}; "
                f"the kernel has {listed(tensors)}"
            )
        if not isinstance(want, torch.Tensor):
            raise AutotuneError(f"the reference returned {name} as {type(want).__name__}; it must be a tensor")
        if tuple(want.shape) != tuple(tensor.shape):
            raise AutotuneError(
                f"the reference returned {name} of shape {tuple(want.shape)}, but the argument has "
                f"{tuple(tensor.shape)}"
            )
        return want.detach().to(tensor.device)

    def _call(self, given: Mapping[str, Any]) -> Any:
        try:
            return self._function(**{name: value for name, value in given.items() if self.takes(name)})
        except TypeError as error:
            raise AutotuneError(
                f"the reference cannot be called with the kernel's arguments by name: {error}"
            ) from error


def wide(named: Mapping[str, Any]) -> dict[str, Any]:
    """Copies for the reference: floats in float64; a descriptor's tensor in the place of the descriptor."""
    return {name: _wide(value) for name, value in named.items()}


def _wide(value: Any) -> Any:
    tensor = base_tensor(value)
    if not isinstance(tensor, torch.Tensor):
        return value
    narrow = tensor.dtype.is_floating_point and tensor.dtype != torch.float64
    return tensor.detach().double() if narrow else tensor.detach().clone()
