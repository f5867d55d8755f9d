"""A worker's job, with the operators of the user's own that it speaks of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.own_operators.files import OperatorFile, load_same, loaded
from tuner.worker.messages import WorkerState

Job = Callable[[WorkerState], Any]


@dataclass(frozen=True)
class WithOwnOperators:
    """Loads ``files`` in the worker, where it has not, then runs ``job``."""

    files: tuple[OperatorFile, ...]
    job: Job

    def __call__(self, state: WorkerState) -> Any:
        load_same(self.files)
        return self.job(state)


def with_own_operators(job: Job) -> Job:
    """``job`` as a worker can run it: with what this process has loaded."""
    files = loaded()
    return WithOwnOperators(files, job) if files else job
