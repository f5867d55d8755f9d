"""A pool of workers for jobs that do not depend on one another (compilations, checks in the interpreter)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tuner.worker.messages import Died, Reply
from tuner.worker.process import Job, Worker
from tuner.worker.zygote import Zygote

Key = TypeVar("Key", bound=Hashable)


class JobQueue(Protocol):
    """What a funnel needs of a pool: a pool itself has it, and so has a share of one (``tuner.worker.shared_pool``)."""

    @property
    def size(self) -> int:
        """How many workers there are."""
        ...

    @property
    def waiting(self) -> int:
        """Jobs that no worker has taken yet."""
        ...

    @property
    def running(self) -> int:
        """Jobs that a worker is at."""
        ...

    def submit(self, key: int, job: Job) -> None:
        """Queue ``job``; its reply comes out of ``poll`` under ``key``."""
        ...

    def busy_workers(self) -> list[Worker]:
        """The workers to wait on."""
        ...

    def poll(self) -> list[tuple[int, Reply]]:
        """Replies that have come in since the last call."""
        ...

    def abandon(self) -> None:
        """Forget every job: no reply comes of them any more. A worker that is at one is killed."""
        ...


class Pool(Generic[Key]):
    """``size`` workers of one zygote. Jobs run first come first served, each under ``limit_s`` seconds.

    A job whose process ended is given to a fresh one, once: ``Died`` is the answer of a job that ended two.
    """

    def __init__(self, zygote: Zygote, size: int, limit_s: float, logs: Path, name: str) -> None:
        if size < 1:
            raise ValueError(f"`size` must be at least 1, but got {size}")
        self._workers = [Worker(zygote, logs / f"{name}-{i}.log") for i in range(size)]
        self._limit_s = limit_s
        self._queue: deque[tuple[Key, Job]] = deque()
        self._running: dict[int, tuple[Key, Job]] = {}
        self._again: set[Key] = set()

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    @property
    def waiting(self) -> int:
        """Jobs that no worker has taken yet."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Jobs that a worker is at."""
        return len(self._running)

    def submit(self, key: Key, job: Job) -> None:
        """Queue ``job``; its reply comes out of ``poll`` under ``key``."""
        self._queue.append((key, job))
        self._feed()

    def busy_workers(self) -> list[Worker]:
        """The workers to wait on."""
        return [w for w in self._workers if w.busy]

    @property
    def deadline(self) -> float:
        """The earliest ``time.monotonic()`` at which a job in hand is out of time."""
        return min((w.deadline for w in self._workers), default=float("inf"))

    def poll(self) -> list[tuple[Key, Reply]]:
        """Replies that have come in since the last call."""
        replies = []
        for place, worker in enumerate(self._workers):
            reply = worker.poll() if place in self._running else None
            if reply is None:
                continue
            key, job = self._running.pop(place)
            if isinstance(reply, Died) and not reply.timed_out and key not in self._again:
                # It may have been killed from outside (by hand, for want of memory), which says nothing of the job.
                self._again.add(key)
                self._queue.appendleft((key, job))
            else:
                self._again.discard(key)
                replies.append((key, reply))
        self._feed()
        return replies

    def abandon(self) -> None:
        """Forget every job: no reply comes of them any more. A worker that is at one is killed."""
        self.forget([*(key for key, _ in self._queue), *(key for key, _ in self._running.values())])

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget the jobs of these keys: no reply comes of them any more. A worker that is at one is killed."""
        gone = set(keys)
        self._queue = deque(entry for entry in self._queue if entry[0] not in gone)
        self._again -= gone
        for place in [place for place, (key, _) in self._running.items() if key in gone]:
            del self._running[place]
            self._workers[place].kill()

    def close(self) -> None:
        """Forget every job and kill every worker."""
        self.abandon()
        for worker in self._workers:
            worker.kill()

    def _feed(self) -> None:
        for place, worker in enumerate(self._workers):
            if self._queue and not worker.busy and place not in self._running:
                key, job = self._queue.popleft()
                worker.send(job, self._limit_s)
                self._running[place] = key, job
