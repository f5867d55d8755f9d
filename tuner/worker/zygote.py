"""Starts workers by fork from a process that has already imported torch and triton.

Importing them takes seconds in every fresh process, and forking after CUDA has started does not work; so one process
imports them once, never touches CUDA, and forks a worker on request. It also keeps the user's script out of the
workers: nothing here imports ``__main__``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from tuner.errors import MissingError
from tuner.worker.child import die_with_parent, serve

_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])

# There are as many workers as cores. numpy's products, of which Triton's interpreter makes many small ones, would take
# all cores each otherwise, and be several times slower.
_ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


class Zygote:
    """The parent's handle: ``spawn(log)`` gives a connection to a new worker and its process id.

    ``environment`` is added to the zygote's (``TRITON_CACHE_DIR``, ``TRITON_INTERPRET``, ...), before it imports
    triton.
    """

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        search = [_PACKAGE_PARENT, *filter(None, [os.environ.get("PYTHONPATH")])]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tuner.worker.zygote", str(theirs.fileno())],
                env={**_ONE_THREAD, **os.environ, **environment, "PYTHONPATH": os.pathsep.join(search)},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        theirs.close()
        self._log = log

    @property
    def process_id(self) -> int:
        """The zygote's own process id."""
        return self._process.pid

    def spawn(self, log: Path) -> tuple[Connection, int]:
        """A new worker whose output goes to ``log``. Raises ``MissingError`` where the zygote is gone."""
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        reply = b""
        try:
            with contextlib.suppress(OSError):  # a broken pipe: it is gone
                socket.send_fds(self._ours, [b"f"], [theirs.fileno(), descriptor])
                reply = self._ours.recv(8)
        finally:
            theirs.close()
            os.close(descriptor)
        if len(reply) != 8:
            ours.close()
            raise self._ended()
        return Connection(ours.detach()), int.from_bytes(reply, "little")

    def refuse_ended(self) -> None:
        """Raises ``MissingError`` where the zygote has ended, and so has killed its workers."""
        if self._process.poll() is not None:
            raise self._ended()

    def _ended(self) -> MissingError:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        said = f" ({lines[-1].strip()})" if lines else ""
        return MissingError(f"the process that starts workers ended{said}; run the same command to go on")

    def close(self) -> None:
        """End the zygote; workers that still run die with it."""
        self._ours.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _preload() -> None:
    """Import what workers need. A missing triton or torch is reported by the first job that needs it."""
    try:
        import torch
        import triton  # noqa: F401

        import tuner.checking
        import tuner.compiling
        import tuner.evaluating
        import tuner.reference_cache  # noqa: F401

        torch.set_num_threads(1)
    except ImportError as error:
        print(f"preload: {error}", file=sys.stderr)


def _work(sock: socket.socket) -> None:
    """Fork a worker for each request until the parent closes the socket."""
    _preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended workers are reaped by the kernel
    while True:
        message, descriptors, _, _ = socket.recv_fds(sock, 1, 2)
        if not message:
            return
        connection, log = descriptors
        pid = os.fork()
        if pid == 0:
            sock.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # compilers run as subprocesses, and are waited for
            os.setpgid(0, 0)
            die_with_parent()
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            serve(Connection(connection))
            os._exit(0)
        os.close(connection)
        os.close(log)
        # On both sides of the fork, so that its group can be killed from the first moment on.
        with contextlib.suppress(ProcessLookupError):
            os.setpgid(pid, pid)
        sock.sendall(pid.to_bytes(8, "little"))


if __name__ == "__main__":
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _work(socket.socket(fileno=int(sys.argv[1])))
