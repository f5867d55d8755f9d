"""What a worker's failure means for the trial that it had: the outcome, and a reason in one line."""

from __future__ import annotations

import re

from tuner.errors import MissingError
from tuner.trial import Outcome
from tuner.worker.messages import Died, Raised, Reply

_RESOURCE_TYPES = ("OutOfResources",)
_RESOURCE_TEXT = re.compile(r"out of resource|too many blocks in cooperative launch|too many resources requested", re.I)
_COMPILER_ERROR = re.compile(r"(?:^|: )(?:fatal )?error: ?(.+)|^ptxas (?:fatal|error)\s*: ?(.+)", re.M)
_LONGEST = 300


def outcome_of(reply: Reply, doing: str) -> tuple[Outcome, str]:
    """The outcome and reason of a job that raised or died while ``doing`` it (``compile``, ``run``, ...).

    Raises ``MissingError`` where the machine refused something (a full disk): that must not become a result.
    """
    compiling = doing == "compile"
    if isinstance(reply, Died):
        if reply.timed_out:
            return Outcome.TIMED_OUT, f"did not {doing} within {reply.limit_s:g} s"
        hint = _compiler_message(reply.log)
        outcome = Outcome.COMPILE_ERROR if compiling else Outcome.CRASHED
        subject = "the compiler" if compiling else "the process that ran it"
        return outcome, _short(f"{subject} crashed" + (f": {hint}" if hint else ""))
    assert isinstance(reply, Raised)
    if reply.machine:
        raise MissingError(
            f"this machine could not {doing}: {reply.machine}; put that right, then run the same command to go on"
        )
    message = _first_line(reply.message)
    if reply.type_name in _RESOURCE_TYPES or _RESOURCE_TEXT.search(reply.message):
        return Outcome.OUT_OF_RESOURCES, _short(message)
    if compiling:
        hint = _compiler_message(reply.log)
        return Outcome.COMPILE_ERROR, _short(f"{reply.type_name}: {hint or message}")
    return Outcome.CRASHED, _short(f"{reply.type_name}: {message}")


def _compiler_message(log: str) -> str:
    """The first error that the compiler printed; what follows it is usually a dump of the program."""
    found = _COMPILER_ERROR.search(log)
    return (found[1] or found[2] or "").strip() if found else ""


def _first_line(text: str) -> str:
    """The last line that says something: Triton's messages quote source first and say what is wrong last."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" ^\t")]
    return lines[-1] if lines else "no message"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
