"""Stand-ins for what needs a GPU: a worker that answers from a function, a pool that compiles nothing, rounds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tuner.compiling import CompileJob
from tuner.evaluating import EvaluateJob, Evaluation, RoundsJob, RoundsResult, SetUpJob, entry_names
from tuner.trial import (
    CheckReport,
    CompileReport,
    DeviceState,
    FamilyReport,
    KernelResources,
    Measurement,
)
from tuner.worker.messages import Died, Done, Reply
from tuner.worker.process import Job

RIGHT = CheckReport((FamilyReport("randn", "softmax rows=9 cols=99 fp32", True, 0.4, 1e-3, 2.5e-3),), 0, 0.1)
STATE = DeviceState(sm_clock_mhz=1980)


def wrong(reason: str) -> CheckReport:
    """A check that failed."""
    return CheckReport((FamilyReport("randn", "softmax rows=9", False, 7.0, 0.7, 0.1, reason=reason),), 0, 0.1)


def timed(us: float, *, pruned: bool = False) -> Evaluation:
    """An evaluation of a right config."""
    return Evaluation(RIGHT, Measurement("screen", "graph-1", (us,) * 3, us, us, us), pruned, seconds={"check": 0.1})


class FakeWorker:
    """The face of ``tuner.worker.process.Worker``; ``answer(job)`` gives the reply, or None for one that never comes.

    ``jobs`` are those it was sent. A reply ``Died`` ends its process, as does ``kill``.
    """

    def __init__(self, answer: Callable[[Any], Reply | None]) -> None:
        self._answer = answer
        self._reply: Reply | None = None
        self._ends = os.pipe()
        self.jobs: list[Any] = []
        self.kills = self.starts = self.process_id = 0
        self.busy, self.busy_seconds, self.deadline = False, 0.0, float("inf")

    def send(self, job: Job, limit_s: float) -> None:
        assert not self.busy
        if self.process_id == 0:
            self.starts += 1
            self.process_id = 1000 + self.starts
        self.jobs.append(job)
        self.busy, self._reply = True, self._answer(job)
        if self._reply is not None:
            os.write(self._ends[1], b".")

    def poll(self) -> Reply | None:
        if not self.busy or self._reply is None:
            return None
        os.read(self._ends[0], 1)
        self.busy = False
        self.busy_seconds += 0.5
        reply, self._reply = self._reply, None
        if isinstance(reply, Died):
            self.process_id = 0
        return reply

    def run(self, job: Job, limit_s: float) -> Reply:
        self.send(job, limit_s)
        reply = self.poll()
        assert reply is not None
        return reply

    def fileno(self) -> int:
        return self._ends[0]

    def kill(self) -> None:
        self.kills += 1
        if self.busy and self._reply is not None:
            os.read(self._ends[0], 1)
        self.process_id, self.busy, self._reply = 0, False, None


@dataclass
class FakeCompilers:
    """The face of a pool: every compilation is done at once, to what ``binary`` names its launch arguments."""

    binary: Callable[[CompileJob], str] = lambda job: repr(sorted(job.launch_arguments.items())) + job.source_path
    size: int = 2
    waiting: int = 0
    running: int = 0
    jobs: list[CompileJob] = field(default_factory=list)
    _replies: list[tuple[Hashable, Reply]] = field(default_factory=list)

    def submit(self, key: Hashable, job: CompileJob) -> None:
        self.jobs.append(job)
        kernel = KernelResources("kernel", 40, 0, 1024, 32 * int(job.launch_arguments["num_warps"]))
        self._replies.append((key, Done(CompileReport(self.binary(job), (kernel,), 0.1, (), (8,)), 0.1)))

    def poll(self) -> list[tuple[Hashable, Reply]]:
        replies, self._replies = self._replies, []
        return replies

    def busy_workers(self) -> list[Any]:
        return []

    def abandon(self) -> None:
        self._replies.clear()

    def forget(self, keys: Iterable[Hashable]) -> None:
        gone = set(keys)
        self._replies = [reply for reply in self._replies if reply[0] not in gone]


def evaluating(answers: Callable[[EvaluateJob], Reply | None]) -> Callable[[Any], Reply | None]:
    """A GPU that sets up at once and evaluates as ``answers`` says."""

    def answer(job: Any) -> Reply | None:
        if isinstance(job, SetUpJob):
            return Done(0.1, 0.1)
        assert isinstance(job, EvaluateJob)
        return answers(job)

    return answer


def rounds(
    job: RoundsJob,
    us: Callable[[str, int], float],
    *,
    process_id: int,
    failed: dict[str, str] | None = None,
    clock_mhz: Callable[[int], int] = lambda number: 1980,
) -> RoundsResult:
    """What ``RoundsJob`` returns, with the time ``us(entry, round)``; ``failed`` says which keys fail the check now."""
    failed = failed or {}
    checks = {c.key: wrong(failed[c.key]) if c.key in failed else RIGHT for c in job.candidates}
    running = [c for c in job.candidates if not (job.check_first and c.key in failed)]
    numbers = range(job.first_round, job.first_round + job.rounds)
    return RoundsResult(
        samples={name: {n: us(name, n) for n in numbers} for name in entry_names(running)},
        states={n: DeviceState(sm_clock_mhz=clock_mhz(n)) for n in numbers},
        protocols={c.key: "graph-1" for c in running} | {f"{c.key}/again": "graph-1" for c in running},
        checks=checks if job.check_first else {},
        process_id=process_id,
    )


def until(happened: Callable[[], bool]) -> None:
    """Waits until ``happened()``."""
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline
