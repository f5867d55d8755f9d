"""The command line. It reads arguments, calls ``tuner.api`` and prints; it decides nothing."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from tuner.errors import MissingError, TunerError
from tuner.machine_faults import REFUSALS
from tuner.terminal import harmless

EXIT_WORSE = 3  # `tuner regressions --fail-over`: something is worse
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + SIGINT
TRACEBACK_VARIABLE = "TUNER_TRACEBACK"

_MOST_CHARACTERS = 4000
_REFUSALS = REFUSALS | {errno.EACCES, errno.EPERM}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command and exits: 0, or what the error says (``tuner.errors``), 130 on Ctrl-C, 70 for a bug of ours."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit code. Every error is one line on stderr."""
    _open_closed_streams()
    from tuner.cli.app import command

    try:
        code = command()(arguments or ["--help"], prog_name="tuner", standalone_mode=False)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except TunerError as error:
        return _report(error, str(error), error.exit_code)
    except Exception as error:  # the outermost edge: a traceback would tell the user nothing
        usage = getattr(error, "format_message", None)
        if usage is not None:  # an error of the argument parser
            return _report(error, usage(), getattr(error, "exit_code", 2))
        if isinstance(error, OSError) and error.errno in _REFUSALS:
            did = f"cannot use {error.filename}" if error.filename else "cannot write"
            return _report(error, f"{did}: {error.strerror}", MissingError.exit_code)
        text = f"internal error: {type(error).__name__}: {error} (set {TRACEBACK_VARIABLE}=1 for the traceback)"
        return _report(error, text, EXIT_INTERNAL)
    if code == EXIT_INTERRUPTED:
        print("interrupted", file=sys.stderr)
    return code if isinstance(code, int) else 0


def _open_closed_streams() -> None:
    """Python leaves None where a caller closed stdout or stderr (``>&-``, some schedulers); libraries expect a file."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, for the life of the process


def _report(error: BaseException, text: str, code: int) -> int:
    if os.environ.get(TRACEBACK_VARIABLE, "") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    line = harmless(" ".join(text[:_MOST_CHARACTERS].split()))
    print(line if line.startswith("internal error") else f"error: {line}", file=sys.stderr)
    return code
