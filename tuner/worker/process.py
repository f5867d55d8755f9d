"""The parent's handle on one worker process: one job at a time, under a time limit, restarted when it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tuner.own_operators.jobs import with_own_operators
from tuner.worker.messages import Died, Raised, Reply, WorkerState
from tuner.worker.zygote import Zygote

Job = Callable[[WorkerState], Any]
_LOG_TAIL_BYTES = 4000


@dataclass(frozen=True)
class OnGpu:
    """Runs ``job`` where the only GPU to be seen is ``visible``, as CUDA_VISIBLE_DEVICES names it.

    CUDA reads the name once, so all jobs of a process have the same.
    """

    visible: str
    job: Job

    def __call__(self, state: WorkerState) -> Any:
        os.environ["CUDA_VISIBLE_DEVICES"] = self.visible
        return self.job(state)


class Worker:
    """A worker of ``zygote``. It is started on the first job, and again after it died.

    ``send`` gives it a job, ``poll`` returns the reply when there is one; in between, ``fileno`` can be waited on.
    ``visible``: the only GPU that its processes see, as CUDA_VISIBLE_DEVICES names it (None: what this one sees).
    """

    def __init__(self, zygote: Zygote, log: Path, visible: str | None = None) -> None:
        self._zygote = zygote
        self._log = log
        self._visible = visible
        self._connection: Connection | None = None
        self._process_id = 0
        self._deadline = float("inf")
        self._limit_s = float("inf")
        self.busy = False
        self.busy_seconds = 0.0
        self.starts = 0
        self._sent_at = 0.0

    def fileno(self) -> int:
        """The descriptor that becomes readable when there is a reply (or the process ended)."""
        assert self._connection is not None
        return self._connection.fileno()

    @property
    def process_id(self) -> int:
        """The worker's process id; 0 before its first job."""
        return self._process_id

    @property
    def deadline(self) -> float:
        """``time.monotonic()`` at which the job in hand is out of time."""
        return self._deadline if self.busy else float("inf")

    def send(self, job: Job, limit_s: float) -> None:
        """Give it ``job``; after ``limit_s`` seconds it is killed and the reply is ``Died(timed_out=True)``."""
        assert not self.busy, "a worker takes one job at a time"
        if self._visible is not None:
            job = OnGpu(self._visible, job)
        for attempt in (1, 2):
            if self._connection is None:
                self._connection, self._process_id = self._zygote.spawn(self._log)
                self.starts += 1
            try:
                self._connection.send(with_own_operators(job))
                break
            except OSError:
                # It died between jobs (killed from outside): a fresh one takes the job.
                self.kill()
                if attempt == 2:
                    raise
        self.busy = True
        self._sent_at = time.monotonic()
        self._limit_s = limit_s
        self._deadline = self._sent_at + limit_s

    def poll(self) -> Reply | None:
        """The reply to the job in hand, or None while it is still at it.

        Raises ``MissingError`` where the zygote ended and took the process with it: that is not the job's fault.
        """
        if not self.busy:
            return None
        assert self._connection is not None
        reply: Reply | None = None
        if self._connection.poll():
            try:
                reply = self._connection.recv()
            except Exception:  # the worker's edge: it ended, or a candidate wrote nonsense into the pipe
                self._zygote.refuse_ended()
                reply = Died(timed_out=False, limit_s=self._limit_s, log=self.log_tail())
                self.kill()
        elif time.monotonic() >= self._deadline:
            reply = Died(timed_out=True, limit_s=self._limit_s, log=self.log_tail())
            self.kill()
        if reply is None:
            return None
        self.busy = False
        self.busy_seconds += time.monotonic() - self._sent_at
        if isinstance(reply, Raised):
            reply = replace(reply, log=self.log_tail())
            if not reply.usable:
                self.kill()
        return reply

    def run(self, job: Job, limit_s: float) -> Reply:
        """``send`` and wait for the reply."""
        self.send(job, limit_s)
        while True:
            assert self._connection is not None
            self._connection.poll(max(0.0, self._deadline - time.monotonic()))
            reply = self.poll()
            if reply is not None:
                return reply

    def kill(self) -> None:
        """Kill the process and all that it started. It is not waited for: one that is stuck in a driver call stays."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process_id:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process_id, signal.SIGKILL)
            self._process_id = 0
        self.busy = False

    def log_tail(self) -> str:
        """The end of what the process printed (compilers explain themselves there)."""
        try:
            data = self._log.read_bytes()
        except OSError:
            return ""
        return data[-_LOG_TAIL_BYTES:].decode(errors="replace")
