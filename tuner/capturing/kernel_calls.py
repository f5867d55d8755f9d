"""Sees Triton's launches, and counts those of kernels that the templates of known operators have.

A kernel is known by its name: the one that a template's ``launch()`` gives all inputs of the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from tuner.capturing.inside import is_inside
from tuner.capturing.problems_of import NoProblemError, Seen, by_rows, declared
from tuner.capturing.recording import Recording
from tuner.capturing.torch_calls import count
from tuner.errors import TunerError
from tuner.exports.kernel_call import first_kernel
from tuner.operators import get, names
from tuner.own_operators.declared import DeclaredOperator
from tuner.space import load_space
from tuner.template import load_template

# Of the shipped operators. Attention's are not told apart by name: whether one is causal is fixed in its source.
_INPUTS = {"softmax": ("x",), "log_softmax": ("x",), "logsumexp": ("x",), "softmax_bwd": ("y", "dy")}


@dataclass(frozen=True)
class KnownKernel:
    """Whose kernel it is, and by its parameter which argument of ``launch()`` it gets."""

    operator: str
    arguments: Mapping[str, str]


def known_kernels() -> dict[str, KnownKernel]:
    """The kernels of every known operator's templates, by name. A search space that cannot be read has none."""
    found: dict[str, KnownKernel] = {}
    for name in names():
        operator = get(name)
        inputs = tuple(operator.declared.inputs) if isinstance(operator, DeclaredOperator) else _INPUTS.get(name, ())
        if not inputs:
            continue
        try:
            templates = load_space(name).templates.values()
            sources = [load_template(name, t.name, t.source).source for t in templates]
        except TunerError:
            continue
        for source in sources:
            kernel = first_kernel(source, inputs)
            if kernel is not None:
                found[kernel[0]] = KnownKernel(name, kernel[1])
    return found


@contextmanager
def watching_launches(recording: Recording) -> Iterator[None]:
    """Count launches, compiled or interpreted, while it is open; without Triton there are none."""
    try:
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction
    except ImportError:
        yield
        return
    known = known_kernels()
    kinds = (JITFunction, InterpretedFunction)
    originals = {kind: kind.run for kind in kinds}

    def watched(original: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = known.get(str(getattr(function.fn, "__name__", "")))
        if kernel is not None and not kwargs.get("warmup") and not is_inside():
            given = {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
            count(recording, f"kernel {function.fn.__name__}", lambda: _seen(kernel, given))
        return original(function, *args, **kwargs)

    for kind in kinds:
        kind.run = _method(partial(watched, originals[kind]))
    try:
        yield
    finally:
        for kind in kinds:
            kind.run = originals[kind]


def _method(function: Any) -> Any:
    """As an attribute of a class a partial is no method; a function is."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return run


def _seen(kernel: KnownKernel, given: Mapping[str, Any]) -> Seen:
    named = {argument: given[parameter] for parameter, argument in kernel.arguments.items() if parameter in given}
    operator = get(kernel.operator)
    if isinstance(operator, DeclaredOperator):
        return declared(operator, named, named)
    tensors = [named[name] for name in _INPUTS[kernel.operator]]
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise NoProblemError("its input is no tensor")
    return by_rows(kernel.operator, tensors, -1)
