"""What the declared errors of functions do to a declared operator's outputs, found by moving them in its reference.

A kernel that takes tanh, exp or the like from a fast instruction is off by up to eps relative where it does. While
``moved`` is in force, every result that torch gives of such a function is moved by eps: in random directions, or all
the same way. With g_j the derivative of an output by the j-th of these results y_j, the second gives eps |sum g_j y_j|,
errors that are all alike; the root mean square of the first is eps sqrt(sum (g_j y_j)^2), and errors spread uniformly
within eps have sqrt(1/3) of it as their deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tuner.numerics import LAMBDA

Tensors = Mapping[str, torch.Tensor]

_MOVES = 6
_SPELLED = {"expit": "sigmoid"}


class moved(TorchFunctionMode):
    """Within it the results of ``functions`` are off by their errors: at random with ``generator``, else all upwards.

    ``called``: which of them were called.
    """

    def __init__(self, functions: Mapping[str, float], generator: torch.Generator | None = None) -> None:
        super().__init__()
        self._functions, self._generator = functions, generator
        self.called: set[str] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "").removeprefix("special_").rstrip("_")
        name = _SPELLED.get(name, name)
        if name in self._functions and isinstance(found, torch.Tensor):
            self.called.add(name)
            signs = torch.ones((), dtype=found.dtype, device=found.device)
            if self._generator is not None:
                drawn = torch.empty(found.shape, dtype=found.dtype, device=self._generator.device)
                signs = drawn.bernoulli_(0.5, generator=self._generator).mul_(2.0).sub_(1.0).to(found.device)
            found.mul_(1.0 + self._functions[name] * signs)  # in place, as tanh_() and the like give their argument
        return found


def errors(at: Callable[[], Tensors], expected: Tensors, functions: Mapping[str, float]) -> Tensors:
    """By how much each element of each output may be off by ``functions``, relative errors by name.

    ``at``: the reference of the given inputs. Of each function the larger of the errors that are all alike and of
    LAMBDA deviations of independent ones.
    """
    device = next(iter(expected.values())).device
    found = {name: torch.zeros_like(y) for name, y in expected.items()}
    generator = torch.Generator(device).manual_seed(2)
    for name, eps in functions.items():
        squares = {output: torch.zeros_like(y) for output, y in expected.items()}
        for _ in range(_MOVES):
            with moved({name: eps}, generator):
                answers = at()
            for output, y in answers.items():
                squares[output] += (y - expected[output]) ** 2 / _MOVES
        with moved({name: eps}):
            answers = at()
        for output, y in answers.items():
            alike = (y - expected[output]).abs()
            found[output] += torch.maximum(alike, LAMBDA / math.sqrt(3.0) * squares[output].sqrt())
    return found
