"""When two configs are one program: then one is measured and both have its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuner.trial import CheckReport, CompileReport


class Tried(Protocol):
    """What a trial says of its program, as it is recorded or stored."""

    @property
    def compile_report(self) -> CompileReport | None:
        """What the compiler said; None where it did not get that far."""

    @property
    def check_report(self) -> CheckReport | None:
        """What the check said; None where it did not get that far."""


@dataclass(frozen=True)
class Program:
    """What two configs must share to be one program: the binary, and what it is checked for.

    The same machine code under a stricter promise (another precision profile, other tiles) may be wrong.
    """

    binary_hash: str
    promise: str

    @classmethod
    def of(cls, trial: Tried) -> Program | None:
        """The program of a trial; None where nothing was compiled."""
        if trial.compile_report is None:
            return None
        return cls(trial.compile_report.binary_hash, trial.check_report.promise if trial.check_report else "")
