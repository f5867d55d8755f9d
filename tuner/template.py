"""A template: one Triton source in ``variants/`` (or a user's own), read and held to its contract, never imported.

The contract: an ordinary Python file with at least one ``@triton.jit`` or ``@gluon.jit`` function and one
``def launch(<tensors>, [<scalars>], *, <switches>, <launch parameters>)``, whose keyword-only names are what a config
may set.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TemplateError
from tuner.source_part import holds_more, needed

_JIT = ("triton.jit", "gluon.jit", "jit")

MAX_BYTES = 1 << 20
"""The largest template that is read. A kernel is a few hundred lines; a file above this is a mistake in the path."""


@dataclass(frozen=True)
class Template:
    """A template as read from ``path``. ``hash`` is the SHA-256 of its text, in hex, which is its identity.

    ``launch_parameters`` are the keyword-only names of ``launch``, in its order: switches and launch parameters.
    ``launch_arguments`` are the names before the ``*``: tensors and scalars, which the operator provides.
    """

    operator: str
    name: str
    path: Path
    source: str
    hash: str
    launch_parameters: tuple[str, ...]
    launch_arguments: tuple[str, ...] = ()


def load_template(operator: str, name: str, path: Path) -> Template:
    """Read the template at ``path``. Raises ``TemplateError`` (file, line) where it is no template."""
    source = _read(path)
    if holds_more(parse(source, path), path):
        source = needed(source, ["launch"], path)
    return read_template(operator, name, path, source)


def read_template(operator: str, name: str, path: Path, source: str) -> Template:
    """A template from its text; ``path`` is what errors name. Raises ``TemplateError`` where it is no template."""
    tree = parse(source, path)
    if not any(is_jit(node) for node in ast.walk(tree)):
        raise TemplateError(
            f"{path}:1: no function is decorated with @triton.jit; a template defines its kernel itself"
        )
    launch = _launch(tree, path)
    arguments = launch.args
    if arguments.vararg or arguments.kwarg:
        raise TemplateError(
            f"{path}:{launch.lineno}: launch() takes *args or **kwargs; name every argument, so that a config can be "
            "compared with them"
        )
    if not arguments.kwonlyargs:
        raise TemplateError(
            f"{path}:{launch.lineno}: launch() has no keyword-only parameters; write its switches and launch "
            "parameters after a `*`"
        )
    return Template(
        operator=operator,
        name=name,
        path=path,
        source=source,
        hash=hashlib.sha256(source.encode()).hexdigest(),
        launch_parameters=tuple(a.arg for a in arguments.kwonlyargs),
        launch_arguments=tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args)),
    )


def parse(source: str, path: Path) -> ast.Module:
    """The syntax tree of ``source``. Raises ``TemplateError`` (file, line) on a syntax error."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise TemplateError(f"{path}:{error.lineno or 1}: {error.msg}; a template must be valid Python") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise TemplateError(f"{path}:1: cannot be parsed ({error}); a template must be valid Python") from error


def is_jit(node: ast.AST) -> bool:
    """Whether ``node`` is a function decorated with ``@triton.jit``, ``@gluon.jit`` or ``@jit``, or a call of one."""
    if not isinstance(node, ast.FunctionDef):
        return False
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(target) in _JIT:
            return True
    return False


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TemplateError(
            f"{path}: cannot be read: {error.strerror or error}; check `source` in the space"
        ) from error
    if len(data) > MAX_BYTES:
        raise TemplateError(
            f"{path}: larger than {MAX_BYTES} bytes, so not a kernel template; check `source` in the space"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise TemplateError(f"{path}:{line}: not UTF-8; save the template as UTF-8") from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _launch(tree: ast.Module, path: Path) -> ast.FunctionDef:
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == "launch"]
    if not found:
        raise TemplateError(
            f"{path}:1: no function launch(); a template defines `def launch(<tensors>, *, <parameters>)`"
        )
    if len(found) > 1:
        raise TemplateError(f"{path}:{found[1].lineno}: launch() is defined twice; keep one")
    launch = found[0]
    if isinstance(launch, ast.AsyncFunctionDef):
        raise TemplateError(f"{path}:{launch.lineno}: launch() is async; write a plain `def launch`")
    return launch
