"""Writes what was captured as a problems file, which ``tuner tune --problems`` and ``tuner coverage`` take."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from tuner.capturing.recording import CapturedProblem, Recording
from tuner.errors import UsageError
from tuner.own_operators.files import file_of

_FIRST = "# Captured by `tuner capture`: what a program ran, the most frequent first; `count` says how often."


def write_problems(path: Path, recording: Recording) -> None:
    """Write ``recording`` to ``path``, whole or not at all.

    Raises ``UsageError`` where the file cannot be written, or is there and was not captured.
    """
    try:
        if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_FIRST):
            raise UsageError(f"{path} was not written by `tuner capture`, so it is not replaced; choose another path")
        partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        partial.write_text(problems_text(recording, path.resolve().parent), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another path") from None


def problems_text(recording: Recording, folder: Path) -> str:
    """The text of the file; an operator's own file is named as seen from ``folder``."""
    lines = [_FIRST]
    lines += [
        f"# not tunable: {_one_line(o.what)} ({o.count} times): {_one_line(o.why)}" for o in recording.not_captured
    ]
    problems = recording.problems
    lines.append("problems:" if problems else "problems: []")
    for item in problems:
        lines += [f"  # {_one_line(note)}" for note in item.notes]
        lines.append(f"  - {_entry(item, folder)}")
    return "\n".join(lines) + "\n"


def _entry(item: CapturedProblem, folder: Path) -> str:
    problem = item.problem
    data: dict[str, object] = {
        "operator": file_of(problem.operator, folder),
        "shape": problem.sizes,
        "dtype": problem.dtype,
    }
    options = {name: value for name, value in problem.options if value is not None}
    if options:
        data["options"] = options
    data["count"] = item.count
    text: str = yaml.safe_dump(data, default_flow_style=True, sort_keys=False, width=2**20)
    return text.strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())
