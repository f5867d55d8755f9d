"""Finds operators: shipped ones by name, a user's own as ``FILE.py:NAME``. Loading a file runs it: the user names it.

What is loaded is known by its stored name (``rmsnorm@0123456789ab``) and by its own from then on, in this process and
in the workers that it gives jobs to.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from tuner import operators
from tuner.errors import ProblemError, TemplateError
from tuner.naming import did_you_mean, listed
from tuner.operators import Operator
from tuner.own_operators.declaration import OwnOperator
from tuner.own_operators.declared import DeclaredOperator, described, where
from tuner.source_part import digest_of

_MODULE = "tuner_own_"
_SEPARATOR = "@"


@dataclass(frozen=True)
class OperatorFile:
    """Where an operator is declared: ``NAME`` in the file at ``path``, as it was with this ``digest``."""

    path: str
    name: str
    digest: str


_LOADED: dict[str, OperatorFile] = {}


def find(text: str, folder: Path | None = None) -> Operator:
    """The operator called ``text``: a name, or ``FILE.py:NAME`` (``FILE.py`` where it declares one only).

    ``folder``: what a relative path starts from (None: the current folder).

    Raises:
        ProblemError: there is none of that name, or its file cannot be loaded (file, line).
    """
    path, name = _split(text)
    return operators.get(text) if path is None else _load((folder or Path()) / path.expanduser(), name)


@overload
def stored_name(text: str) -> str: ...
@overload
def stored_name(text: None) -> None: ...
def stored_name(text: str | None) -> str | None:
    """``text`` as results are stored under it: ``my_ops.py:rmsnorm`` is loaded, anything else stays as it is."""
    return find(text).name if text is not None and _split(text)[0] is not None else text


def spoken_name(name: str) -> str:
    """What a user writes on the command line for the operator stored as ``name``."""
    known = _LOADED.get(name)
    if known is None:
        return name
    path = Path(known.path)
    here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{here}:{known.name}"


def file_of(name: str, folder: Path) -> str:
    """``name`` as a problems file in ``folder`` writes it: ``FILE.py:NAME`` for an operator of a file."""
    known = _LOADED.get(name)
    return name if known is None else f"{os.path.relpath(known.path, folder)}:{known.name}"


def bare_name(name: str) -> str:
    """The operator's own name, without the hash of its file."""
    return name.partition(_SEPARATOR)[0]


def loaded() -> tuple[OperatorFile, ...]:
    """Every file operator of this process, so that another process can load the same."""
    return tuple(_LOADED.values())


def load_same(files: tuple[OperatorFile, ...]) -> None:
    """Load what another process has loaded. Raises ``ProblemError`` where a file is not what it was there."""
    for file in files:
        if file not in _LOADED.values():
            found = _load(Path(file.path), file.name)
            if found.digest != file.digest:
                raise ProblemError(f"{file.path}: was changed while it was in use; run the command again")


def _split(text: str) -> tuple[Path | None, str]:
    path, colon, name = text.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path), name
    return (Path(text), "") if text.endswith(".py") else (None, "")


def _load(path: Path, name: str) -> DeclaredOperator:
    path = path.resolve()
    source = _read(path)
    module = _run(path)
    declared = {n: v for n, v in vars(module).items() if isinstance(v, OwnOperator)}
    if not name and len(declared) != 1:
        raise ProblemError(f"{path}: declares {listed(declared)}; say which, as in {path.name}:NAME")
    name = name or next(iter(declared))
    if name not in declared:
        raise ProblemError(
            f"{path}: declares no operator {name}{did_you_mean(name, declared)}; it has {listed(declared)} "
            "(NAME = tuner.OwnOperator(...) at the top level)"
        )
    try:
        digest = digest_of(source, [name], path)
    except TemplateError as error:
        raise ProblemError(str(error)) from None
    made = DeclaredOperator(declared[name], path, digest)
    if made.name in _LOADED:
        known = operators.get(made.name)
        assert isinstance(known, DeclaredOperator)
        if known.declared is made.declared:
            return known
    if declared[name].name in operators.names(shipped=True):
        raise ProblemError(f"{path}: {declared[name].name} is shipped; give yours another name")
    # Of two files that declare the same, the one named last has the search space and the kernels.
    operators.register(made)
    _LOADED[made.name] = OperatorFile(str(path), name, digest)
    return made


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ProblemError(f"{path}: cannot be read: {reason}; name an operator's file as FILE.py:NAME") from None


def _run(path: Path) -> Any:
    """The module of ``path``, run anew where its text changed. What it prints goes to stderr."""
    name = f"{_MODULE}{path.stem}"
    known = sys.modules.get(name)
    stamp = path.stat().st_mtime_ns, path.stat().st_size
    if known is not None and known.__file__ == str(path) and getattr(known, "__tuner_stamp__", None) == stamp:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # modules beside it, also those that its functions import later
    try:
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a stranger's file, and any way in which it can fail
        del sys.modules[name]
        text = str(error) if isinstance(error, ProblemError) else described(error)
        raise ProblemError(f"{where(error, path)}: {text}") from error
    module.__tuner_stamp__ = stamp  # type: ignore[attr-defined]
    return module
