"""What a Python function depends on, as a hash: a stored result holds only while that is what it was.

The walk goes from a function to its code, its defaults, its closure, and every global name and attribute of a module
that its code reads; from those on to what they depend on, to any depth. Functions and classes of the user's own modules
are known by their code, data by their contents, what a library defines by the library's name and version. An instance
whose whole state is in its attributes is known by its class and those. At most ``MOST_OBJECTS`` are visited.

What can be none of that (an object that keeps its state in C, ``eval``, a file that is opened) makes the fingerprint
*unknown*: it says why, and its hash holds in this process alone, so that nothing that was found under it is ever taken
for what another process has. What a library's function reads by itself (a random state, torch's global settings) is not
seen.

Triton's own key of a kernel is narrower: the texts of the kernel and of the ``@triton.jit`` functions that it names,
the line on which each begins, and in 3.6 and 3.9 (not in 3.2) the values of its ``tl.constexpr`` globals. Other
globals are compared in the running process only, attributes of modules never.
"""

from __future__ import annotations

import builtins
import enum
import hashlib
import importlib
import importlib.util
import inspect
import os
import secrets
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.autotuning.bytecode import Read, code_words, parameter_names, reads
from tuner.autotuning.kernel_source import is_jit_function
from tuner.autotuning.libraries import library_of
from tuner.autotuning.plain import plain_words
from tuner.autotuning.python_objects import C_CALLABLES, PARTS, cells_of, members_of, state_of

MOST_OBJECTS = 10_000

_RUN = secrets.token_hex(16)  # of this process, and with its number of what is forked from it
# What they give depends on more than what they are.
_READ_ELSEWHERE = {
    "builtins.eval", "builtins.exec", "builtins.compile", "builtins.globals", "builtins.locals", "builtins.vars",
    "builtins.__import__", "builtins.input", "io.open", "os.getenv", "importlib.import_module",
    "torch.serialization.load",
}  # fmt: skip


@dataclass(frozen=True)
class Fingerprint:
    """``digest`` is equal where what was walked is; ``unknown`` says what cannot be known, empty where all is."""

    digest: str
    unknown: str = ""

    @property
    def lasting(self) -> bool:
        """Whether another process can have the same."""
        return not self.unknown


def fingerprint(**things: Any) -> Fingerprint:
    """Of ``things`` together, by the names under which a message speaks of them."""
    walk = _Walk()
    for name, thing in things.items():
        walk.words(name)
        walk.visit(thing, name)
    if walk.unknown:
        walk.words(_RUN, str(os.getpid()))
    return Fingerprint(walk.hexdigest(), walk.unknown)


class _Walk:
    """``unknown`` is the first thing that could not be known; empty while there is none."""

    def __init__(self) -> None:
        self.unknown = ""
        self._hash = hashlib.sha256()
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # an id may be given again to another object

    def words(self, *words: str) -> None:
        for word in words:
            data = word.encode("utf-8", "surrogatepass")
            self._hash.update(len(data).to_bytes(8, "little") + data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def visit(self, value: Any, where: str) -> None:
        try:
            plain = plain_words(value)
            if plain is not None:
                self.words(plain)
            elif id(value) in self._numbers:
                self.words("seen", str(self._numbers[id(value)]))
            elif len(self._kept) == MOST_OBJECTS:
                self._give_up(where, f"more than {MOST_OBJECTS} objects are reached")
            else:
                self._numbers[id(value)] = len(self._kept)
                self._kept.append(value)
                self._walk(value, where)
        except RecursionError:
            self._give_up(where, "it is nested too deep")
        except Exception as error:  # a proxy or a lazy module may raise anything when it is looked at
            self._give_up(where, f"it cannot be read ({type(error).__name__})")

    def _give_up(self, where: str, why: str) -> None:
        self.words("unknown", where)
        self.unknown = self.unknown or f"{where}: {why}"

    def _walk(self, value: Any, where: str) -> None:
        known = next((step for kinds, step in _STEPS if isinstance(value, kinds)), None)
        if is_jit_function(value):
            options = ("noinline", "do_not_specialize")  # an interpreted one has none
            self.words("jit", *(f"{name}={getattr(value, name, None) or ''}" for name in options))
            self.visit(value.fn, where)
        elif _is_tritons(value):
            self.words("of triton", type(value).__name__)
            self.visit(value.fn, where)
        elif known is not None:
            known(self, value, where)
        elif isinstance(value, type(os.environ)):
            self._give_up(where, "it depends on environment variables")
        elif _is_tuner_of_kernels(value):
            self.words("kernel", type(value).__name__)
            searched = getattr(value, "choices", None) is not None  # then its configs are what it found last
            for name in ("fn", "values", "choices" if searched else "configs"):
                self.visit(getattr(value, name, None), where)
        else:
            self._instance(value, where)

    def _function(self, function: types.FunctionType, where: str) -> None:
        compiled = function.__dict__.get("_torchdynamo_orig_callable")
        if compiled is not None:  # by torch.compile, which changes nothing of what it computes
            self.words("compiled")
            self.visit(compiled, where)
            return
        library = library_of(str(function.__globals__.get("__name__", "")))
        if library:
            self._of_library(f"{function.__module__}.{function.__qualname__}", library, where)
        else:
            self.words("function", *parameter_names(function.__code__), *code_words(function.__code__))
            for read in reads(function.__code__):
                self._read(read, function, where)
        self.visit(function.__defaults__, f"{where}'s defaults")
        self.visit(function.__kwdefaults__, f"{where}'s defaults")
        if library:  # what it was made around: a decorator of a library's
            for name, cell in cells_of(function).items():
                self.visit(cell, f"{where}.{name}")
        elif function.__dict__:
            self.visit(function.__dict__, f"{where}.__dict__")

    def _read(self, read: Read, function: types.FunctionType, where: str) -> None:
        self.words(read.kind, read.name, *read.attributes)
        if read.kind == "cell":
            cells = cells_of(function)
            if read.name in cells:  # else it is of a function that the code itself defines
                self._through(cells[read.name], read, where)
        elif read.kind == "import":
            self._through(self._imported(read, function), read, where)
        elif read.name in function.__globals__:
            self._through(function.__globals__[read.name], read, where)
        elif hasattr(builtins, read.name):
            self._through(getattr(builtins, read.name), read, where)
        else:
            self.words("absent")

    def _imported(self, read: Read, function: types.FunctionType) -> Any:
        package = str(function.__globals__.get("__package__") or "")
        try:
            name = importlib.util.resolve_name("." * read.level + read.name, package)
            return importlib.import_module(name)
        except Exception:  # the user's module runs here; its own import will raise it again
            return None

    def _through(self, value: Any, read: Read, where: str) -> None:
        """Along the attributes for as long as they are a module's."""
        where = f"{where}, {read.name}"
        for name in read.attributes:
            if not isinstance(value, types.ModuleType):
                break
            where = f"{where}.{name}"
            if not hasattr(value, name):
                try:
                    value = importlib.import_module(f"{value.__name__}.{name}")
                except Exception:  # as above
                    self.words("absent", name)
                    return
            else:
                value = getattr(value, name)
        self.visit(value, where)

    def _of_library(self, name: str, library: str, where: str) -> None:
        self.words("library", name, library)
        if name in _READ_ELSEWHERE:
            self._give_up(where, f"it uses {name.removeprefix('builtins.')}")

    def _module(self, module: types.ModuleType, where: str) -> None:
        library = library_of(module.__name__)
        if library:
            self._of_library(module.__name__, library, where)
            return
        self.words("module", module.__name__)
        for name, value in sorted(vars(module).items()):
            if not name.startswith("__"):
                self.words(name)
                self.visit(value, f"{where}.{name}")

    def _class(self, kind: type, where: str) -> None:
        library = library_of(kind.__module__)
        if library:
            self._of_library(f"{kind.__module__}.{kind.__qualname__}", library, where)
            return
        self.words("class", kind.__qualname__)
        self.visit(kind.__bases__, where)
        for name, value in members_of(kind).items():
            self.words(name)
            self.visit(value, f"{where}.{name}")

    def _c_callable(self, value: Any, where: str) -> None:
        owner = getattr(value, "__self__", None)
        owner = getattr(value, "__objclass__", None) if owner is None else owner
        if owner is None or isinstance(owner, types.ModuleType):
            module = str(getattr(value, "__module__", None) or getattr(owner, "__name__", ""))
            library = library_of(module)
            self._of_library(f"{module}.{value.__name__}", library, where)
            if not library:
                self._give_up(where, f"it is compiled code of {module}")
        else:
            self.words("of", value.__name__)
            self.visit(owner, where)

    def _parts(self, value: Any, where: str) -> None:
        for name in PARTS[type(value)]:
            self.words(name)
            self.visit(getattr(value, name), where)

    def _enumerated(self, value: enum.Enum, where: str) -> None:
        self.words("enum", value.name)
        self.visit(value.value, where)
        self.visit(type(value), where)

    def _mapping(self, value: Mapping[Any, Any], where: str) -> None:
        self._kind(value, where)
        for key, item in list(value.items()):
            self.visit(key, where)
            self.visit(item, f"{where}[{key!r}]" if isinstance(key, str | int) else where)

    def _sequence(self, value: Any, where: str) -> None:
        self._kind(value, where)
        self.words(str(len(value)))
        for place, item in enumerate(value):
            self.visit(item, f"{where}[{place}]")

    def _set(self, value: Any, where: str) -> None:
        self._kind(value, where)
        found = [plain_words(item) for item in value]
        if None in found:
            self._give_up(where, "a set of other things than plain data")
        self.words(*sorted(word for word in found if word is not None))

    def _number(self, value: Any, where: str) -> None:
        """An instance of a subclass of a plain type."""
        plain = next(kind for kind in (int, float, str, bytes) if isinstance(value, kind))
        self.words(str(plain_words(plain(value))))
        self._kind(value, where)

    def _kind(self, value: Any, where: str) -> None:
        self.visit(type(value), where)
        attributes = getattr(value, "__dict__", None)
        if attributes:
            self.visit(attributes, where)

    def _instance(self, value: Any, where: str) -> None:
        kind, state = type(value), state_of(value)
        if state is None:
            self._give_up(where, f"a {kind.__module__}.{kind.__qualname__} keeps what it is where it cannot be read")
            return
        self.words("instance")
        self.visit(kind, where)
        for name, item in state.items():
            self.words(name)
            self.visit(item, f"{where}.{name}")


def _is_tritons(value: Any) -> bool:
    """What a decorator of Triton's makes of a function that the host calls too, such as ``triton.cdiv``."""
    return library_of(type(value).__module__).startswith("triton ") and inspect.isfunction(getattr(value, "fn", None))


def _is_tuner_of_kernels(value: Any) -> bool:
    """What decorates a kernel keeps what it has found: only what it was given counts."""
    return type(value).__name__ in ("Autotuner", "Heuristics") and hasattr(value, "fn")


_STEPS: tuple[tuple[Any, Callable[[_Walk, Any, str], None]], ...] = (
    (types.FunctionType, _Walk._function),
    (types.ModuleType, _Walk._module),
    (enum.Enum, _Walk._enumerated),
    (type, _Walk._class),
    (tuple(PARTS), _Walk._parts),
    (C_CALLABLES, _Walk._c_callable),
    (dict | types.MappingProxyType, _Walk._mapping),
    (list | tuple, _Walk._sequence),
    (set | frozenset, _Walk._set),
    (int | float | str | bytes, _Walk._number),
)
