"""Work that waits for worker processes, cut into steps, so that one loop can drive several pieces of it at once."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from inspect import GEN_CLOSED, getgeneratorstate
from multiprocessing.connection import wait
from typing import TypeVar

from tuner.worker.messages import Reply
from tuner.worker.process import Job, Worker

_BLINK_S = 0.01


@dataclass(frozen=True)
class Pause:
    """Nothing to do until one of ``workers`` has answered, or ``seconds`` have passed."""

    workers: Sequence[Worker] = ()
    seconds: float = _BLINK_S


Result = TypeVar("Result")
Steps = Generator[Pause, None, Result]
"""Work in steps: it yields what it waits for, and returns its result."""


def finish(steps: Steps[Result]) -> Result:
    """Drive ``steps`` to the end. Ctrl-C is raised inside them, where they wait."""
    stop: KeyboardInterrupt | None = None
    while True:
        try:
            pause = next(steps) if stop is None else steps.throw(stop)
            stop = None
            rest((pause,))
        except StopIteration as end:
            result: Result = end.value
            return result
        except KeyboardInterrupt as pressed:
            if getgeneratorstate(steps) == GEN_CLOSED:
                raise
            stop = pressed


def rest(pauses: Iterable[Pause]) -> None:
    """Wait until one of the pauses is over: a worker has answered or is out of time, or the shortest time is up."""
    pauses = tuple(pauses)
    busy = list({id(worker): worker for pause in pauses for worker in pause.workers if worker.busy}.values())
    seconds = min((pause.seconds for pause in pauses), default=_BLINK_S)
    if busy:
        seconds = min(seconds, min(worker.deadline for worker in busy) - time.monotonic())
        wait(busy, max(0.0, seconds))  # type: ignore[arg-type]
    else:
        time.sleep(max(0.0, seconds))


def reply_in_steps(worker: Worker, job: Job, limit_s: float) -> Steps[Reply]:
    """Give ``worker`` the ``job`` and wait for its reply, as ``Worker.run`` does."""
    worker.send(job, limit_s)
    while (reply := worker.poll()) is None:
        yield Pause((worker,), 1.0)
    return reply
