"""A script run under ``capture``."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from tuner.capturing.recording import Recording
from tuner.capturing.session import capture
from tuner.errors import UsageError


def capture_script(
    script: Path, arguments: Sequence[str], path: Path | None, operators: Iterable[str] = ()
) -> Recording:
    """Run a Python script as ``python SCRIPT ARGUMENTS`` would, under ``capture``.

    Raises ``UsageError`` (file, line) where the script raises or exits with a code; what ran before that is written.
    """
    if not script.is_file():
        raise UsageError(f"{script}: no such file; give the script to run, then its arguments")
    before, folder = list(sys.argv), str(script.resolve().parent)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, folder)
    try:
        with capture(path, operators=operators) as recording:
            _run(script, path)
    finally:
        sys.argv = before
        sys.path.remove(folder)
    return recording


def _run(script: Path, path: Path | None) -> None:
    kept = f"; what ran before is in {path}" if path is not None else ""
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise UsageError(f"{script}: exited with {error.code}{kept}") from None
    except Exception as error:  # a stranger's script, and any way in which it can fail
        lines = [n for frame, n in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(script)]
        if isinstance(error, SyntaxError) and error.lineno:
            lines.append(error.lineno)
        where = f"{script}:{lines[-1]}" if lines else str(script)
        text = " ".join(str(error).split())[:300]
        raise UsageError(f"{where}: raised {type(error).__name__}{f': {text}' if text else ''}{kept}") from error
