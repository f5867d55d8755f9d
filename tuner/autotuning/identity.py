"""What a stored result of a kernel is known by beside the kernel's text: all that decides what a launch computes."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.autotuning.bytecode import code_words
from tuner.autotuning.fingerprint import Fingerprint, fingerprint
from tuner.autotuning.kernel_source import is_jit_function, python_function
from tuner.autotuning.settings import Settings
from tuner.canonical import digest

RULE = 2
"""The number of the rule that configs are held to (``tuner.autotuning.referee``); another rule, another promise."""


@dataclass(frozen=True)
class Identity:
    """``program`` is a hash of what a launch runs; ``promise`` of what it is held to, empty without a reference.

    ``hooks`` are hashes of the configs' own hooks, in the order of the configs; empty for one that has none.
    ``unknown`` says what none of them can hold; empty where they hold everything. Where it is not empty, the hashes are
    of this process alone.
    """

    program: str
    promise: str
    hooks: tuple[str, ...]
    unknown: str


def identity_of(
    kernel: Any, settings: Settings, configs: Sequence[Any], named: Mapping[str, Any], grid: Any
) -> Identity:
    """Of a decorated kernel as it would be launched now, with the arguments ``named``.

    Of these, functions count (an activation, say), whether or not they are in the key.

    A grid counts by its own code where it is a function, and not by its numbers: they go by shapes that the key may
    leave out. What the caller's benchmark and pruning do is no part of it: they decide what is timed, not what is
    right.
    """
    around = settings.hooks
    found = [
        fingerprint(kernel=python_function(kernel), **_decorators(kernel)),
        fingerprint(pre_hook=around.pre, post_hook=around.post),
        fingerprint(**{name: value for name, value in named.items() if callable(value) or is_jit_function(value)}),
    ]
    program = digest(
        [*(f.digest for f in found), list(around.reset_to_zero), list(around.restore_value), _grid_words(grid)], 32
    )
    hooks = [None if c.pre_hook is None else fingerprint(pre_hook=c.pre_hook) for c in configs]
    found += [hook for hook in hooks if hook is not None]
    promise = ""
    if settings.reference is not None:
        reference = fingerprint(reference=settings.reference)
        found.append(reference)
        promise = promise_of(reference, settings)
    unknown = next((f.unknown for f in found if not f.lasting), "")
    return Identity(program, promise, tuple("" if h is None else h.digest[:8] for h in hooks), unknown)


def promise_of(reference: Fingerprint, settings: Settings) -> str:
    """A hash of what configs are held to."""
    told = [list(settings.tolerance or ()), list(settings.scratch), settings.made_inputs]
    return digest([RULE, reference.digest, told])


def _decorators(kernel: Any) -> dict[str, Any]:
    """What stands between the autotuner and the kernel, by what a message calls it.

    Of heuristics their functions; another decorator may hold what it has seen, so it counts by its class.
    """
    found: dict[str, Any] = {}
    while not is_jit_function(kernel) and not isinstance(kernel, types.FunctionType):
        values = getattr(kernel, "values", None)
        name = type(kernel).__name__
        found[f"{name} {len(found)}"] = dict(values) if isinstance(values, Mapping) else type(kernel)
        kernel = kernel.fn
    return found


def _grid_words(grid: Any) -> list[str]:
    """Two functions that differ in their variables' names alone are one."""
    if isinstance(grid, types.FunctionType):
        return list(code_words(grid.__code__))
    return [type(grid).__name__]
