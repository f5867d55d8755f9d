"""Where things are printed: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any

from tuner.config import Config
from tuner.problem import Problem
from tuner.terminal import harmless, harmless_json

if TYPE_CHECKING:  # rich is loaded when something is printed
    from rich.console import Console

PLAIN_WIDTH = 160
"""Columns where stdout is no terminal: a table in a log should not be folded to 80."""


@contextmanager
def answer_only(as_json: bool) -> Iterator[None]:
    """With ``as_json``, whatever is printed to stdout inside goes to stderr, also by libraries and child processes."""
    if not as_json:
        yield
        return
    saved = _redirect_descriptor()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if saved is not None:
            sys.stdout.flush()
            os.dup2(saved, 1)
            os.close(saved)


def _redirect_descriptor() -> int | None:
    """Points descriptor 1 at stderr where Python's stdout is descriptor 1; returns a copy of the old one."""
    try:
        if sys.stdout.fileno() != 1:
            return None
        sys.stdout.flush()
        saved = os.dup(1)
        os.dup2(sys.stderr.fileno(), 1)
    except (OSError, ValueError):
        return None
    return saved


def print_json(value: object) -> None:
    """One JSON document on stdout. Infinities and NaN, which JSON lacks, become null."""
    text = json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False)
    sys.stdout.write(harmless_json(text) + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """Dataclasses, enumerations, paths and moments as plain data. Configs and problems carry their label and key."""
    if isinstance(value, Config | Problem):
        return {**plain(value.as_json()), "label": value.label, "key": value.key}
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    return value


def out() -> Console:
    """The console for the answer."""
    return _console(sys.stdout)


def err() -> Console:
    """The console for progress and messages."""
    return _console(sys.stderr)


def say(text: str) -> None:
    """One line of the answer, as it is: no markup, no colours, no folding."""
    print(harmless(text))


def note(text: str) -> None:
    """One line beside the answer, on stderr."""
    print(harmless(text), file=sys.stderr)


def print_data(text: str) -> None:
    """A file's text, or a table for programs, on stdout: as it is, but fit for a terminal where that is one."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def _console(file: IO[str]) -> Console:
    from rich.console import Console

    return Console(file=file, width=None if file.isatty() else PLAIN_WIDTH)
