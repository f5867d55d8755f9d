"""One database and one machine's processes, for as many studies as are wanted: what ``tuner.tune`` opens for one."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.compiling import CompileJob
from tuner.errors import UsageError
from tuner.events import Listener
from tuner.gpu_holding import holding_gpu
from tuner.machine import Machine, new_machine
from tuner.many_studies import ManyStudies, Outcome, Told, Wanted
from tuner.problem import Problem
from tuner.results import TuneResult
from tuner.search import DEFAULT_SAMPLER
from tuner.space import Space, load_space
from tuner.store.location import default_url
from tuner.store.store import Store
from tuner.study_opening import OpenStudy, StudyRequest, Way, check_seconds, open_study, way_of
from tuner.worker.shared_pool import Share, SharedPool

DEFAULT_TRIALS = 200


class Session:
    """Tunes problems with the same processes, which take seconds to start: one, or many that share them.

    Use it as a context manager. ``db``: an SQLAlchemy URL or a path to an SQLite file (None: ``TUNER_DB``, else one
    file in the user's data folder). ``target``: the device to tune for (None: the GPU here, else sm_90). ``gpu``: True
    insists on measuring, False estimates without touching a GPU, None measures where it can. ``workers``: how many
    processes compile (None: what the cores allow). ``gpus``: numbers of the visible GPUs that measure, ``[0, 1]``
    (None: the one that torch would use). What is wrong with a name is raised at once; the database is opened and the
    processes are started by the first study, after its own arguments have been looked at.

    Raises:
        MissingError: no Triton.
        TargetError: nobody knows ``target``.
        UsageError: ``gpus`` are no numbers, are named twice, or may not be touched; by the first study: they differ.
    """

    def __init__(
        self,
        *,
        db: str | None = None,
        target: str | None = None,
        gpu: bool | None = None,
        workers: int | None = None,
        gpus: Sequence[int] | None = None,
    ) -> None:
        self._db = db
        self._machine = new_machine(target, gpu, workers, gpus)
        self._open = ExitStack()
        self._opened: tuple[Store, Machine] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def tune(
        self,
        problem: Problem,
        *,
        space: str | Path | None = None,
        trials: int | None = None,
        time_s: float | None = None,
        sampler: str = DEFAULT_SAMPLER,
        seed: int = 0,
        early_stop: bool = True,
        on_event: Listener | None = None,
    ) -> TuneResult:
        """Search for the fastest right config of ``problem``; arguments and errors are those of ``tuner.tune``."""
        started = clock.monotonic()
        request = StudyRequest(space, _trials(trials, time_s), time_s, sampler, seed, early_stop)
        listener = on_event or (lambda event: None)
        chosen = load_space(space or problem.operator)
        store, machine = self._started()
        opened = open_study(store, machine, problem, chosen, request, way_of(machine), listener, started)
        with closing(opened), holding_gpu(machine, listener):
            return opened.result(opened.run.run())

    def tune_many(
        self,
        problems: Sequence[Problem],
        *,
        calls: Sequence[int] | None = None,
        space: str | Path | None = None,
        trials: int | None = None,
        time_s: float | None = None,
        total_s: float | None = None,
        sampler: str = DEFAULT_SAMPLER,
        seed: int = 0,
        early_stop: bool = True,
        on_event: Told | None = None,
    ) -> list[Outcome | None]:
        """Tune ``problems`` with one set of processes: while one is at the GPU, compilers work for the next.

        ``trials`` and ``time_s`` are each problem's, as in ``tune``; ``total_s`` is one budget of seconds for all of
        them, spent where the sampler expects most of it (``tuner.time_sharing``; then ``time_s`` must be None).
        ``calls``: how often a program runs each, as ``tuner capture`` counts. With several GPUs each has a study of its
        own while there are enough. ``on_event`` gets each event with its problem.

        Returns, in order, each problem's result, or the ``StudyFailedError`` of one that no config survived; None where
        Ctrl-C came first. Raises ``UsageError`` on wrong arguments, and what ``tune`` raises beside that.
        """
        started = clock.monotonic()
        check_seconds(total_s)
        if total_s is not None and time_s is not None:
            raise UsageError("give seconds for each problem, or for all of them together, not both")
        if calls is not None and len(calls) != len(problems):
            raise UsageError(f"calls must be {len(problems)} numbers, one a problem, but got {len(calls)}")
        each = _trials(trials, total_s if time_s is None else time_s)
        request = StudyRequest(space, each, time_s, sampler, seed, early_stop)
        told = on_event or (lambda problem, event: None)
        spaces = {name: load_space(space or name) for name in {p.operator for p in problems}}
        store, machine = self._started()
        pools = [SharedPool(machine.compilers(), _same_compilation)]
        if not machine.measures:
            pools.append(SharedPool(machine.interpreters()))
        many = ManyStudies(
            [
                Wanted(p, _opening(store, machine, p, spaces[p.operator], request, told), calls[i] if calls else None)
                for i, p in enumerate(problems)
            ],
            machine.lanes if machine.measures else (), pools, told, started, total_s,
        )  # fmt: skip
        with holding_gpu(machine, lambda event: told(problems[0], event)):
            return many.run() if problems else []

    def _started(self) -> tuple[Store, Machine]:
        if self._opened is None:
            store = self._open.enter_context(Store.open(self._db or default_url()))
            self._opened = store, self._open.enter_context(self._machine)
        return self._opened


def _trials(trials: int | None, seconds: float | None) -> int | None:
    return DEFAULT_TRIALS if trials is None and seconds is None else trials


def _opening(
    store: Store, machine: Machine, problem: Problem, space: Space, request: StudyRequest, told: Told
) -> Callable[[Sequence[Share]], OpenStudy]:
    """What starts the study of ``problem`` with shares of the pools. Its time begins when it is in front."""

    def opened(shares: Sequence[Share]) -> OpenStudy:
        way = Way(shares[0], None if machine.measures else shares[1], shares_gpu=True)
        return open_study(store, machine, problem, space, request, way, partial(told, problem), math.inf)

    return opened


def _same_compilation(job: object) -> Hashable:
    return job.same_compilation if isinstance(job, CompileJob) else None
