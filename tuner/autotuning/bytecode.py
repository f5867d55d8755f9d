"""What a Python function's code is and which names it reads, from its bytecode.

Not from its text: that of a lambda cannot be told from its neighbours' on the same line, a file may have been edited
since it was imported, and what ``exec`` made has none. Comments, layout and line numbers do not count; the version of
Python does, since its bytecode differs.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

PYTHON = str(sys.implementation.cache_tag)

_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_CELL = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_OPTIMISED = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_NESTED  # follow from where it stands


@dataclass(frozen=True, order=True)
class Read:
    """``name`` is read, and of what it holds one attribute after the other.

    ``kind`` is ``global``, ``cell`` (of the closure) or ``import`` (inside of the function; ``level`` counts the dots
    of a relative one).
    """

    kind: str
    name: str
    attributes: tuple[str, ...] = ()
    level: int = 0


def code_words(code: CodeType) -> Iterator[str]:
    """Everything that decides what ``code`` does, but for the values of the names that it reads."""
    yield PYTHON
    yield from (str(code.co_argcount), str(code.co_posonlyargcount), str(code.co_kwonlyargcount))
    yield str(code.co_flags & ~_OPTIMISED)
    yield code.co_code.hex()
    yield code.co_exceptiontable.hex()
    yield from code.co_names
    for constant in code.co_consts:
        yield from _constant_words(constant)


def parameter_names(code: CodeType) -> tuple[str, ...]:
    """The names that a call may give its arguments by."""
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def reads(code: CodeType) -> list[Read]:
    """What ``code`` and the functions that are defined in it read from outside, in an order of its own."""
    return sorted(set(_reads(code)))


def _reads(code: CodeType) -> Iterator[Read]:
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for at, step in enumerate(steps):
        kind = "global" if step.opname in _GLOBAL else "cell" if step.opname in _CELL else ""
        # No name that can be written: pytest puts such where it has rewritten an assertion.
        if kind and not str(step.argval).startswith("@"):
            yield Read(kind, str(step.argval), _attributes(steps, at + 1))
        elif step.opname == "IMPORT_NAME":
            level, names = int(steps[at - 2].argval or 0), steps[at - 1].argval
            for name in names or ():
                yield Read("import", str(step.argval), (str(name),), level)
            if not names:
                yield Read("import", str(step.argval), (), level)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _reads(constant)


def _attributes(steps: list[dis.Instruction], at: int) -> tuple[str, ...]:
    names = []
    while at < len(steps) and steps[at].opname in _ATTRIBUTE:
        names.append(str(steps[at].argval))
        at += 1
    return tuple(names)


def _constant_words(constant: object) -> Iterator[str]:
    if isinstance(constant, CodeType):
        yield "code"
        yield from parameter_names(constant)
        yield from code_words(constant)
    elif isinstance(constant, tuple):
        yield f"tuple {len(constant)}"
        for inner in constant:
            yield from _constant_words(inner)
    elif isinstance(constant, frozenset):
        yield f"frozenset {sorted(repr(inner) for inner in constant)}"
    else:
        yield f"{type(constant).__name__} {constant!r}"
