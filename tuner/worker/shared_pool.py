"""One pool of workers for several pieces of work at once, of which those that are in front go first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from itertools import count

from tuner.worker.messages import Reply
from tuner.worker.pool import Pool
from tuner.worker.process import Job, Worker


class SharedPool:
    """Gives shares of ``pool``; each is a queue of jobs with replies of its own.

    A free worker takes the next job of the first share, by rank, that has one. ``same`` says what a job most likely
    comes to (None: nothing that is known). While a worker is at a job, another one that is the same waits: it then
    finds in the compiler's cache what the first one left there, and nothing is compiled twice at once.
    """

    def __init__(self, pool: Pool[int], same: Callable[[Job], Hashable] = lambda job: None) -> None:
        self._pool, self._same = pool, same
        self._shares: list[Share] = []
        self._numbers = count()
        self._running: dict[int, tuple[Share, int, Hashable]] = {}

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._pool.size

    def share(self) -> Share:
        """A new share, behind all others."""
        made = Share(self)
        self._shares.append(made)
        return made

    def rank(self, shares: list[Share]) -> None:
        """From now on these shares go first, in this order."""
        self._shares = [*shares, *(share for share in self._shares if share not in shares)]

    def busy_workers(self) -> list[Worker]:
        """The workers to wait on: whoever's job ends, another's may begin."""
        return self._pool.busy_workers()

    def running_of(self, share: Share) -> int:
        """How many jobs of ``share`` workers are at."""
        return sum(owner is share for owner, _, _ in self._running.values())

    def collect(self) -> None:
        """Hand out the replies that have come in, and give free workers their next jobs."""
        for number, reply in self._pool.poll():
            share, key, _ = self._running.pop(number)
            share.replies.append((key, reply))
        while len(self._running) < self._pool.size and (found := self._next()) is not None:
            share, key, job, same = found
            number = next(self._numbers)
            self._running[number] = share, key, same
            self._pool.submit(number, job)

    def forget(self, share: Share) -> None:
        """Forget the jobs of ``share`` that workers are at."""
        gone = [number for number, (owner, _, _) in self._running.items() if owner is share]
        for number in gone:
            del self._running[number]
        self._pool.forget(gone)

    def close(self, share: Share) -> None:
        """Forget ``share`` and its jobs."""
        share.abandon()
        self._shares.remove(share)

    def _next(self) -> tuple[Share, int, Job, Hashable] | None:
        at_it = {same for _, _, same in self._running.values() if same is not None}
        for share in self._shares:
            for place, (key, job) in enumerate(share.queue):
                same = self._same(job)
                if same is None or same not in at_it:
                    del share.queue[place]
                    return share, key, job, same
        return None


class Share:
    """A share of a ``SharedPool``, with the face of a pool (``JobQueue``)."""

    def __init__(self, whole: SharedPool) -> None:
        self._whole = whole
        self.queue: deque[tuple[int, Job]] = deque()
        self.replies: list[tuple[int, Reply]] = []

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._whole.size

    @property
    def waiting(self) -> int:
        """Jobs of this share that no worker has taken yet."""
        return len(self.queue)

    @property
    def running(self) -> int:
        """Jobs of this share that a worker is at."""
        return self._whole.running_of(self)

    def submit(self, key: int, job: Job) -> None:
        """Queue ``job``; its reply comes out of ``poll`` under ``key``."""
        self.queue.append((key, job))
        self._whole.collect()

    def busy_workers(self) -> list[Worker]:
        """The workers to wait on, also those that are at another share's job."""
        return self._whole.busy_workers()

    def poll(self) -> list[tuple[int, Reply]]:
        """Replies that have come in since the last call."""
        self._whole.collect()
        replies, self.replies = self.replies, []
        return replies

    def abandon(self) -> None:
        """Forget every job of this share: no reply comes of them any more. A worker that is at one is killed."""
        self.queue.clear()
        self.replies.clear()
        self._whole.forget(self)

    def close(self) -> None:
        """Forget every job, and take no more."""
        self._whole.close(self)
