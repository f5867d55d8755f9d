"""Runs the command line and scripts in processes of their own, with the ``tuner`` that the tests run against."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import tuner

_TESTS_PARENT = str(Path(__file__).resolve().parents[1])
_PACKAGE_PARENT = str(Path(tuner.__file__).resolve().parents[1])


def import_path(*first: Path) -> str:
    """A ``PYTHONPATH`` with ``first``, then the package, then these tests."""
    rest = filter(None, [os.environ.get("PYTHONPATH")])
    return os.pathsep.join([*map(str, first), _PACKAGE_PARENT, _TESTS_PARENT, *rest])


def environment(*first: Path, **changes: str) -> dict[str, str]:
    """This environment with the path to import from, one thread for torch, and ``changes``."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": import_path(*first), **changes}


def start(*words: str | Path, env: Mapping[str, str], cwd: Path) -> subprocess.Popen[str]:
    """Starts Python with ``words``. Ctrl-C reaches it, also where the tests run in the background of a shell, which
    ignores it."""
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(env),
        cwd=cwd,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def run(*words: str | Path, env: Mapping[str, str], cwd: Path, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs Python with ``words`` to its end."""
    process = start(*words, env=env, cwd=cwd)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def eventually(happened: Callable[[], bool], limit_s: float = 30) -> bool:
    """Whether ``happened()`` becomes true within ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_alive(process_id: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"
