"""Makes kernels again from their ``KernelSource``, in a process that never saw the user's program."""

from __future__ import annotations
import __future__

import ast
import importlib
import linecache
from collections.abc import Mapping
from typing import Any

import triton

from tuner.autotuning.kernel_source import FunctionNumber, FunctionSource, KernelSource, ModuleName

_JIT = "__tuner_jit"
_BETWEEN = "pass\n"  # ends the function before it, however far the next one is indented


def rebuild(source: KernelSource) -> Any:
    """The ``triton.JITFunction`` of ``source``.

    Its lines are put where ``inspect``, and so Triton, looks for those of a file. Raises what an import raises.
    """
    _show_lines(source)
    spaces: dict[int, dict[str, Any]] = {}
    made = []
    for function in source.functions:
        space = spaces.setdefault(function.namespace, {"__name__": function.module, "__builtins__": __builtins__})
        made.append(_define(function, space))
    for function, kernel in zip(source.functions, made, strict=True):
        spaces[function.namespace].update({name: _resolve(value, made) for name, value in function.names.items()})
        kernel.hash = function.triton_key or None
    return made[0]


def _define(function: FunctionSource, space: dict[str, Any]) -> Any:
    node = function.definition()
    ast.increment_lineno(node, function.first_line - 1)
    line = function.first_line
    # The definition begins at its first decorator, as it did: the line is part of Triton's key.
    node.decorator_list = [
        ast.Name(_JIT, ast.Load(), lineno=line, col_offset=0, end_lineno=line, end_col_offset=len(_JIT))
    ]
    flags = __future__.annotations.compiler_flag  # annotations stay text: they may name what is nowhere else named
    code = compile(ast.Module([node], []), function.file, "exec", flags, dont_inherit=True)
    space.update(_defaults(function))
    space[_JIT] = triton.jit(**function.options)
    exec(code, space)
    return space.pop(function.name)


def _defaults(function: FunctionSource) -> Mapping[str, Any]:
    """What default values need when the function is defined; other functions cannot be among it."""
    return {n: _resolve(v, []) for n, v in function.names.items() if not isinstance(v, FunctionNumber)}


def _resolve(value: Any, made: list[Any]) -> Any:
    if isinstance(value, FunctionNumber):
        return made[value.number]
    if isinstance(value, ModuleName):
        module, _, attribute = value.name.partition(":")
        found = importlib.import_module(module)
        return getattr(found, attribute) if attribute else found
    return value


def _show_lines(source: KernelSource) -> None:
    for function in source.functions:
        entry = linecache.cache.get(function.file)
        lines = list(entry[2]) if entry is not None and len(entry) == 4 and entry[1] is None else []
        end = function.first_line - 1 + len(function.lines)
        lines += [_BETWEEN] * (end - len(lines))
        lines[function.first_line - 1 : end] = function.lines
        # Without a time of modification the entry is not held against the file of that name.
        linecache.cache[function.file] = (sum(map(len, lines)), None, lines, function.file)
