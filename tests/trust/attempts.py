"""Runs commands on hostile input and says what they must not do: a traceback, a hang, raw control characters, files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.trust.hostile import ACTING
from tuner.cli import run
from tuner.errors import TunerError
from tuner.terminal import harmless

LIMIT_S = 2.0
"""No command on hostile input may take more of a processor's time."""
STUCK_S = 20.0
"""After so much time on the clock it is said to hang: it may be waiting for something that never comes."""


class Hang(BaseException):
    """Not an ``Exception``: nothing that is tested may catch it."""


@dataclass(frozen=True)
class Attempt:
    """What a command, or a call, did. ``code`` is its exit code, ``seconds`` the processor's time that it took."""

    what: str
    code: int
    out: str
    err: str
    seconds: float
    crash: str = ""

    @property
    def faults(self) -> list[str]:
        """What it must not have done."""
        found = []
        if self.crash:
            found.append(f"raised {self.crash}")
        if self.code not in (0, 1, 2, 3):
            found.append(f"exit code {self.code}: {self.err[-300:]}")
        if "Traceback" in self.err or "internal error" in self.err:
            found.append("a traceback or an internal error")
        if self.code == 2 and len(self.err.strip().splitlines()) != 1:
            found.append(f"the error is not one line: {self.err[:300]!r}")
        # Where stdout is no terminal, CSV and sources are data for other programs.
        shown = self.err if "csv" in self.what or self.what.startswith("render") else self.out + self.err
        if raw := set(shown) & ACTING:
            found.append(f"raw {sorted(map(hex, map(ord, raw)))}")
        if self.seconds > LIMIT_S:
            found.append(f"took {self.seconds:.1f} s")
        if "--json" in self.what and self.code != 2:
            try:
                json.loads(self.out)
            except ValueError:
                found.append("stdout is not one JSON document")
        return found


def _on_alarm(number: int, frame: FrameType | None) -> None:
    raise Hang


@contextlib.contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def command(*words: str) -> Attempt:
    """Runs a command in this process."""
    return _attempt(" ".join(words), lambda: run(list(words)))


def call(what: str, function: Callable[[], object]) -> Attempt:
    """Calls the Python API; its own errors are what the command line makes of them."""

    def run_it() -> int:
        try:
            function()
        except TunerError as error:
            sys.stderr.write(harmless(" ".join(str(error).split())))
            return error.exit_code
        return 0

    return _attempt(what, run_it)


def _attempt(what: str, function: Callable[[], int]) -> Attempt:
    out, err = io.StringIO(), io.StringIO()
    code, crash, began = 99, "", time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with _no_longer_than(STUCK_S):
                code = function()
        except Hang as hang:
            crash = f"nothing for {STUCK_S} s, at {traceback.extract_tb(hang.__traceback__)[-1]}"
        except BaseException as error:  # whatever it is, it is a finding
            crash = f"{type(error).__name__}: {error} at {traceback.extract_tb(error.__traceback__)[-1]}"
    return Attempt(what, code, out.getvalue(), err.getvalue(), time.process_time() - began, crash)


def files_below(folder: Path, but: Sequence[Path] = ()) -> dict[str, bytes]:
    """Every file below ``folder`` with its content, those below ``but`` left out."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(place, name) not in but]
        for name in names:
            path = Path(place, name)
            if path not in but and path.is_file():
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found
