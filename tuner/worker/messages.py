"""What a worker answers. Plain values, so that they cross the process boundary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class WorkerState:
    """What one worker process keeps between jobs: whatever jobs put there, by name."""

    kept: dict[str, Any] = field(default_factory=dict)

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """The value kept under ``name``, made by ``make()`` the first time."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]


@dataclass(frozen=True)
class Done:
    """A job returned."""

    value: Any
    seconds: float


@dataclass(frozen=True)
class Raised:
    """A job raised: the exception's class name, its message, and whether the process can still be used afterwards.

    ``machine``: what the machine refused (a full disk), which is not the job's fault; empty where it is.
    """

    type_name: str
    message: str
    usable: bool
    log: str = ""
    machine: str = ""


@dataclass(frozen=True)
class Died:
    """The process ended (or was killed) while it had the job. ``timed_out``: it was killed for taking too long."""

    timed_out: bool
    limit_s: float
    log: str = ""


Reply = Done | Raised | Died
