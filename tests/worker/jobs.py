"""Jobs that the tests of the worker processes send; a worker imports this module to read them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.worker.child import UnusableError
from tuner.worker.messages import WorkerState


@dataclass(frozen=True)
class Add:
    left: int
    right: int

    def __call__(self, state: WorkerState) -> int:
        return self.left + self.right


@dataclass(frozen=True)
class ProcessId:
    def __call__(self, state: WorkerState) -> int:
        return os.getpid()


@dataclass(frozen=True)
class Setting:
    """The value of an environment variable in the process."""

    name: str

    def __call__(self, state: WorkerState) -> str:
        return os.environ.get(self.name, "")


@dataclass(frozen=True)
class Count:
    """How many jobs this process has had."""

    def __call__(self, state: WorkerState) -> int:
        seen: list[int] = state.keep("seen", list)
        seen.append(1)
        return len(seen)


@dataclass(frozen=True)
class Fail:
    message: str

    def __call__(self, state: WorkerState) -> None:
        sys.stderr.write("the compiler says: bad luck\n")
        sys.stderr.flush()
        raise KeyError(self.message)


@dataclass(frozen=True)
class Poison:
    def __call__(self, state: WorkerState) -> None:
        raise UnusableError("GpuError", "an illegal memory access was encountered")


@dataclass(frozen=True)
class End:
    """Ends its process: ``exit``, ``_exit`` or ``kill``."""

    how: str

    def __call__(self, state: WorkerState) -> None:
        if self.how == "exit":
            sys.exit(0)
        if self.how == "_exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class EndOften:
    """Ends its process by SIGKILL while there are fewer than ``times`` lines in the file ``ends``; then the count."""

    times: int
    ends: str

    def __call__(self, state: WorkerState) -> int:
        path = Path(self.ends)
        before = len(path.read_text().splitlines()) if path.exists() else 0
        if before < self.times:
            with path.open("a") as file:
                file.write("ended\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return before


@dataclass(frozen=True)
class Refused:
    """Raises what the machine does where a disk is full: ``directly``, or as the cause of another error."""

    directly: bool

    def __call__(self, state: WorkerState) -> None:
        full = OSError(errno.ENOSPC, "No space left on device", "/cache/kernel.cubin")
        if self.directly:
            raise full
        raise RuntimeError("the compiler failed") from full


@dataclass(frozen=True)
class Unpicklable:
    def __call__(self, state: WorkerState) -> Any:
        return lambda: None


@dataclass(frozen=True)
class Sleep:
    """Starts a child that sleeps as well, writes both process ids to ``ids`` (where one is given), and sleeps."""

    seconds: float
    ids: str = ""

    def __call__(self, state: WorkerState) -> int:
        if self.ids:
            child = subprocess.Popen([sys.executable, "-S", "-c", f"import time; time.sleep({self.seconds})"])
            partial = Path(f"{self.ids}.tmp")
            partial.write_text(f"{os.getpid()} {child.pid}")
            partial.rename(self.ids)
        time.sleep(self.seconds)
        return os.getpid()


@dataclass(frozen=True)
class MainModule:
    """What ``__main__`` is in a worker, and whether torch was imported for it."""

    def __call__(self, state: WorkerState) -> tuple[str, bool]:
        return str(sys.modules["__main__"].__file__), "torch" in sys.modules
