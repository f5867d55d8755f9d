"""Who is running a study, and whether that process still lives."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Owner:
    """A process: host name, process id, and the kernel's start time of it, so that a reused id is not taken for it."""

    host: str
    pid: int
    start: str

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _start_time(pid) or "")

    def is_local(self) -> bool:
        """Whether it runs, or ran, on this host, where its id can be looked up."""
        return self.host == socket.gethostname() and sys.platform != "win32"

    def is_alive(self) -> bool:
        """Whether that very process runs on this host. Meaningful only where ``is_local()``."""
        if Path("/proc/self/stat").exists():
            start = _start_time(self.pid)
            return start is not None and (not self.start or start == self.start)
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def _start_time(pid: int) -> str | None:
    """Clock ticks from boot to the start of process ``pid`` (proc(5), field 22); None where it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields[19]
