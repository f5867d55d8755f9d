"""A kernel's own text and all that it refers to: what it is known by, and what another process rebuilds it from.

The user's script is never imported again for it: a script without a main guard would run a second time, and a notebook
cannot be imported at all. A function is rebuilt from the lines that define it, at the same lines of a file of the same
name, so that Triton gives it the cache key that it has in the user's process.
"""

from __future__ import annotations

import ast
import inspect
import pickle
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tuner.autotuning.libraries import library_of
from tuner.canonical import digest

_JIT_CLASSES = ("JITFunction", "InterpretedFunction")
_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")
_RENAMING = ("_repr", "launch_metadata")


@dataclass(frozen=True)
class ModuleName:
    """A module that a kernel names, imported by this name where the kernel is rebuilt."""

    name: str


@dataclass(frozen=True)
class FunctionNumber:
    """Another function of the same ``KernelSource``, by its place in it."""

    number: int


@dataclass(frozen=True)
class FunctionSource:
    """One ``@triton.jit`` function. ``lines`` are those of ``file`` from ``first_line`` (1-based) on, with decorators.

    ``namespace`` numbers the globals that it sees: functions of one module share them. ``names`` are those of them that
    it uses: a value, a ``ModuleName`` or a ``FunctionNumber``. ``options`` are the arguments of ``triton.jit``.
    ``triton_key`` is what Triton knows it by in this process; empty where kernels are interpreted.
    """

    name: str
    module: str
    file: str
    first_line: int
    lines: tuple[str, ...]
    namespace: int
    names: Mapping[str, Any]
    options: Mapping[str, Any]
    triton_key: str = ""

    @property
    def text(self) -> str:
        """The definition without decorators, not indented."""
        tree = self.definition()
        return "\n".join(textwrap.dedent("".join(self.lines)).splitlines()[tree.lineno - 1 :]).rstrip() + "\n"

    def definition(self) -> ast.FunctionDef:
        """The syntax tree, whose lines count from 1."""
        node = ast.parse(textwrap.dedent("".join(self.lines))).body[0]
        assert isinstance(node, ast.FunctionDef)
        return node


@dataclass(frozen=True)
class KernelSource:
    """A kernel (the first of ``functions``) and the functions that it calls.

    ``obstacle`` says why another process cannot rebuild it; empty where it can.
    """

    functions: tuple[FunctionSource, ...]
    obstacle: str

    @property
    def text(self) -> str:
        """Everything that decides what it computes: values it uses, functions it calls, and the kernel, last."""
        parts = []
        for function in reversed(self.functions):
            values = {n: v for n, v in function.names.items() if not isinstance(v, ModuleName | FunctionNumber)}
            parts += [f"# {name} = {_plain(value)}\n" for name, value in sorted(values.items())]
            parts.append(f"{function.text}\n")
        return "".join(parts)

    @property
    def key(self) -> str:
        """Where it stands does not count, unlike in Triton's own key: an edit above it changes nothing."""
        return digest(self.text, 64)

    @property
    def tree(self) -> ast.FunctionDef:
        """The kernel's own syntax tree."""
        return self.functions[0].definition()


def is_jit_function(value: object) -> bool:
    """Whether ``value`` is what ``@triton.jit`` makes, compiled or interpreted."""
    return type(value).__name__ in _JIT_CLASSES and callable(getattr(value, "fn", None))


def python_function(kernel: Any) -> Callable[..., Any]:
    """The function under any number of decorators, by their ``fn``."""
    while not inspect.isfunction(kernel):
        kernel = kernel.fn
    found: Callable[..., Any] = kernel
    return found


def read_kernel_source(kernel: Any) -> KernelSource:
    """The source of a decorated kernel. Raises ``OSError`` where its text is nowhere to be read."""
    while not inspect.isfunction(kernel) and not is_jit_function(kernel):
        kernel = kernel.fn
    reader = _Reader()
    reader.number(kernel)
    return KernelSource(tuple(f for f in reader.functions if f is not None), reader.obstacle)


class _Reader:
    """Walks from one function to those that it names."""

    def __init__(self) -> None:
        self.functions: list[FunctionSource | None] = []
        self.obstacle = ""
        self._numbers: dict[int, int] = {}
        self._namespaces: dict[int, int] = {}

    def number(self, kernel: Any) -> int:
        function = python_function(kernel)
        if id(function) in self._numbers:
            return self._numbers[id(function)]
        number = self._numbers[id(function)] = len(self.functions)
        self.functions.append(None)  # its place: the kernel comes before what it calls
        lines, first = inspect.getsourcelines(function)
        bare = FunctionSource(function.__name__, function.__module__, "", first, tuple(lines), 0, {}, {})
        scope = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        # Closures of one function may differ in their values: each has globals of its own.
        space = id(function) if function.__closure__ else id(function.__globals__)
        options = {name: getattr(kernel, name, None) for name in _OPTIONS}
        for name in _RENAMING:
            if getattr(kernel, name, None) is not None:
                self.obstacle = f"{function.__name__} has a {name.strip('_')} of its own"
        self.functions[number] = FunctionSource(
            name=function.__name__,
            module=function.__module__,
            file=inspect.getsourcefile(function) or function.__code__.co_filename,
            first_line=first,
            lines=tuple(lines),
            namespace=self._namespaces.setdefault(space, len(self._namespaces)),
            names=self._names(bare.definition(), scope),
            options={name: value for name, value in options.items() if value},
            triton_key=self._triton_key(kernel),
        )
        return number

    def _triton_key(self, kernel: Any) -> str:
        """Computed now, once and for all: in some versions it depends on what was hashed before it."""
        try:
            return str(getattr(kernel, "cache_key", ""))
        except Exception as error:  # Triton refuses what the kernel names; its launch will say so
            self.obstacle = f"Triton refuses it: {error}"
            return ""

    def _names(self, node: ast.FunctionDef, scope: Mapping[str, Any]) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for part in (node.args, *node.body):
            for inner in ast.walk(part):
                if isinstance(inner, ast.Name) and inner.id in scope and inner.id not in names:
                    names[inner.id] = self._reference(inner.id, scope[inner.id])
                if isinstance(inner, ast.Attribute):
                    self._through_modules(inner, scope)
        return names

    def _through_modules(self, node: ast.Attribute, scope: Mapping[str, Any]) -> None:
        """What is called as ``package.module.function`` counts; it is imported where the kernel is rebuilt.

        A value there may be another when it is imported again, and Triton's key does not hold it: a kernel that was
        compiled with that one would be taken for the one that is launched.
        """
        path = ast.unparse(node).split(".")
        value: Any = scope.get(path[0])
        for attribute in path[1:]:
            if not isinstance(value, ModuleType):
                return
            value = getattr(value, attribute, None)
        if is_jit_function(value):
            if not _ships_with_triton(value):
                self.number(value)
        elif not isinstance(value, ModuleType) and not library_of(self._module_of(path, scope)):
            self.obstacle = f"it reads {'.'.join(path)}, which a program may change"

    def _module_of(self, path: list[str], scope: Mapping[str, Any]) -> str:
        """The module in which the last of ``path`` stands."""
        module: Any = scope[path[0]]
        for attribute in path[1:-1]:
            module = getattr(module, attribute)
        return str(module.__name__)

    def _reference(self, name: str, value: Any) -> Any:
        if isinstance(value, ModuleType):
            if value.__name__ == "__main__":
                self.obstacle = f"it names the module __main__ as {name}"
            return ModuleName(value.__name__)
        if is_jit_function(value) and not _ships_with_triton(value):
            return FunctionNumber(self.number(value))
        if is_jit_function(value):
            return ModuleName(f"{value.__module__}:{value.fn.__name__}")
        try:
            pickle.dumps(value)
        except Exception:  # pickling runs the value's own code, which may raise anything
            self.obstacle = f"{name} = {_plain(value)} cannot be handed to another process"
            return None
        if getattr(value, "__module__", None) == "__main__" and callable(value):
            self.obstacle = f"{name} is defined in the script that runs"
        return value


def _ships_with_triton(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).split(".")[0] == "triton"


def _plain(value: Any) -> str:
    """A value as text that is the same in every process."""
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text
