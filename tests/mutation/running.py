"""Runs mutants in processes of their own, in which Triton interprets."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation.mutant import Run
from tests.programs import environment

SCRIPT = Path(__file__).with_name("run_mutants.py")


@dataclass(frozen=True)
class Answer:
    """What the check said of one run.

    ``passed``, ``family``, ``problem`` and ``reason`` are of the check itself, which stops at the first family that
    fails. ``fell`` is there where families were asked for: on how many of its problems each rejects the mutant, 1 at
    most where families were named.
    """

    key: str
    seconds: float
    passed: bool = False
    family: str = ""
    problem: str = ""
    reason: str = ""
    ratio: float = 0.0
    fell: dict[str, int] | None = None


def ask(chosen: Sequence[Run], families: Sequence[Sequence[str]] | None = None, limit_s: float = 1200) -> list[Answer]:
    """One process's answers, in order. With ``families`` those of each run are run each on its own (none: all of them).

    Raises:
        RuntimeError: a run could not be made at all, which says more of the mutant or its pattern than of the check.
    """
    request = list(zip([run.key for run in chosen], families or [None] * len(chosen), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(SCRIPT), folder],
            input=json.dumps(request),
            env=environment(TRITON_INTERPRET="1"),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(lines) < len(chosen):
        where = chosen[len(lines)].key if len(lines) < len(chosen) else "the end"
        raise RuntimeError(f"{where}: {done.stderr[-2000:]}")
    return [Answer(**line) for line in lines]


def ask_in_parallel(
    chosen: Sequence[Run], every_family: bool = False, processes: int = 2, limit_s: float = 7200
) -> list[Answer]:
    """``ask`` in several processes at once; with ``every_family`` for each family on its own."""
    parts = [chosen[first::processes] for first in range(processes)]
    with ThreadPoolExecutor(processes) as threads:
        found = list(threads.map(lambda part: ask(part, [()] * len(part) if every_family else None, limit_s), parts))
    return [answer for part in found for answer in part]
