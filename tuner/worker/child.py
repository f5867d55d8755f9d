"""The loop that runs in a worker process: take a job, run it, answer."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection

from tuner.loading import VARIANT_MODULE
from tuner.machine_faults import machine_fault
from tuner.worker.messages import Done, Raised, WorkerState

_PR_SET_PDEATHSIG = 1


class UnusableError(Exception):
    """Raised by a job whose process must not be used again (a poisoned CUDA context, for one)."""

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(message)
        self.type_name = type_name


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, however it dies. Elsewhere the closed pipe ends it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _place(error: BaseException) -> str:
    """Where in a variant's source it was raised: `` (line 12 of FILE)``, or nothing where no variant was running."""
    seen: set[int] = set()
    place = ""
    pending: BaseException | None = error
    while pending is not None and id(pending) not in seen:
        seen.add(id(pending))
        for frame, line in traceback.walk_tb(pending.__traceback__):
            if str(frame.f_globals.get("__name__", "")).startswith(VARIANT_MODULE):
                place = f" (line {line} of {os.path.basename(frame.f_code.co_filename)})"
        pending = pending.__cause__ or pending.__context__
    return place


def _raised(error: BaseException, usable: bool, place: str = "") -> Raised:
    """The answer that says what was raised.

    A candidate's own class may give a subclass of str, which the parent could not unpickle; joining makes a plain one.
    """
    name, message = "".join([type(error).__name__]), "".join([str(error), place])
    return Raised(name, message, usable, machine=machine_fault(error))


def serve(connection: Connection) -> None:
    """Answer jobs until the parent closes the connection. Never raises: what a job raises is an answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    state = WorkerState()
    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            return
        started = time.perf_counter()
        try:
            answer: Done | Raised = Done(job(state), time.perf_counter() - started)
        except UnusableError as error:
            answer = Raised(error.type_name, str(error), usable=False)
        except (MemoryError, RecursionError) as error:
            answer = _raised(error, usable=False)
        except Exception as error:  # the worker's edge: whatever a candidate raises becomes its outcome
            answer = _raised(error, usable=True, place=_place(error))
        try:
            connection.send(answer)
        except OSError:
            return
        if isinstance(answer, Raised) and not answer.usable:
            # Skip atexit handlers: tearing down a poisoned CUDA context can hang.
            os._exit(1)
