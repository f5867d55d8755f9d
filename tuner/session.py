"""One database and one machine's processes, for as many studies as are wanted: what ``tuner.tune`` opens for one."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.budget import Budget
from tuner.errors import UsageError
from tuner.evaluating import Candidate
from tuner.events import Listener, Notice, StudyStarted
from tuner.funnel import EstimateFunnel, Funnel, GpuFunnel
from tuner.known import known_trials
from tuner.machine import Machine, new_machine
from tuner.one_config import refuse_empty
from tuner.problem import Problem
from tuner.protocols import ESTIMATE_PROTOCOL, GRAPH_PROTOCOL
from tuner.results import TuneResult
from tuner.search import DEFAULT_SAMPLER, Proposer, check_sampler, make_proposer
from tuner.search.stopping import StoppingProposer
from tuner.similar import similar_winners
from tuner.space import load_space
from tuner.store.location import default_url
from tuner.store.records import StudySpec
from tuner.store.store import Store
from tuner.study_run import StudyRun
from tuner.tickets import TicketOffice

DEFAULT_TRIALS = 200


class Session:
    """Tunes one problem after the other with the same processes, which take seconds to start.

    Use it as a context manager. ``db``: an SQLAlchemy URL or a path to an SQLite file (None: ``TUNER_DB``, else one
    file in the user's data folder). ``target``: the device to tune for (None: the GPU here, else sm_90). ``gpu``: True
    insists on measuring, False estimates without touching a GPU, None measures where it can. ``workers``: how many
    processes compile (None: what the cores allow). What is wrong with a name is raised at once; the database is opened
    and the processes are started by the first study, after its own arguments have been looked at.

    Raises:
        MissingError: no Triton.
        TargetError: nobody knows ``target``.
    """

    def __init__(
        self,
        *,
        db: str | None = None,
        target: str | None = None,
        gpu: bool | None = None,
        workers: int | None = None,
    ) -> None:
        self._db = db
        self._machine = new_machine(target, gpu, workers)
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
        _check_budget(trials, time_s)
        check_sampler(sampler)
        if trials is None and time_s is None:
            trials = DEFAULT_TRIALS
        listener = on_event or (lambda event: None)
        chosen = load_space(space or problem.operator)
        store, machine = self._started()
        bound = chosen.bind(problem, machine.device, gpu=machine.measures, triton_version=machine.stack.triton)
        refuse_empty(bound)
        spec = StudySpec(
            problem=problem,
            device=machine.device,
            stack=machine.stack,
            space_name=problem.operator if space is None else Path(space).stem,
            space_digest=bound.digest,
            space_text=chosen.path.read_text(encoding="utf-8"),
            sampler=sampler,
            seed=seed,
            protocol=GRAPH_PROTOCOL if machine.measures else ESTIMATE_PROTOCOL,
            space_size=bound.size(),
            max_trials=trials,
            max_seconds=time_s,
        )
        study = store.start_study(spec)
        office = TicketOffice(bound, machine.workspace, machine.stack.triton)
        known = known_trials(store, bound, office, spec)
        proposer: Proposer = make_proposer(
            bound,
            sampler=sampler,
            seed=seed,
            storage=store.url,
            study_name=study.optuna_name,
            known={key: (trial.outcome, trial.value_us) for key, trial in known.items()},
            similar=similar_winners(store, bound),
        )
        if early_stop:
            proposer = StoppingProposer(proposer, len(known), lambda chance, n: listener(_stopped(chance, n)))
        listener(
            StudyStarted(
                problem=problem,
                study=study.name,
                device=machine.device.name,
                mode=machine.stack.mode,
                sampler=sampler,
                space_size=bound.size(),
                known=len(known),
                max_trials=trials,
                max_seconds=time_s,
                resumed=study.resumed,
            )
        )
        left_out = (f"template {name} is left out: {why}" for name, why in bound.refused.items())
        for text in (*store.warnings, *left_out):
            listener(Notice(text))
        with closing(proposer), holding_gpu(machine, listener):
            run = StudyRun(
                store, study, bound, office, proposer,
                make_funnel(machine, problem, office.candidate(bound.plain()[0]), seed), machine,
                Budget(None if trials is None else min(trials, bound.size()), time_s, started), seed, known, listener,
            )  # fmt: skip
            interrupted = run.run()
            chance = None if interrupted else proposer.chance_of_better()
        detail = store.study(study.id)
        return TuneResult(problem, detail.summary, detail.winner, interrupted, chance)

    def _started(self) -> tuple[Store, Machine]:
        if self._opened is None:
            store = self._open.enter_context(Store.open(self._db or default_url()))
            self._opened = store, self._open.enter_context(self._machine)
        return self._opened


def _stopped(chance: float, results: int) -> Notice:
    return Notice(
        f"stopped after {results} configs: a better one is left with a chance of {chance:.1%}, says the model; "
        "--no-early-stop goes on"
    )


def make_funnel(machine: Machine, problem: Problem, typical: Candidate, seed: int) -> Funnel:
    """The way of ``machine``'s candidates for ``problem``: to its GPU, or to the interpreter and the estimate.

    ``typical``: a candidate of the problem, whose references a GPU computes ahead.
    """
    compilers = machine.compilers()
    if machine.measures:
        return GpuFunnel(problem, machine.device, compilers, seed, machine.gpu, typical)
    machine.gpu.kill()  # it has found out what this machine is, and holds memory
    return EstimateFunnel(problem, machine.device, compilers, seed, machine.interpreters())


@contextmanager
def holding_gpu(machine: Machine, listener: Listener) -> Iterator[None]:
    """Keeps other studies from timing on the GPU of ``machine``; waits for one that is at it."""
    if not machine.measures:
        yield
        return
    notice = Notice(f"another study is timing on this {machine.device.name}; waiting for it")
    with machine.workspace.gpu_lock(machine.device.name, lambda: listener(notice)):
        yield


def _check_budget(trials: int | None, time_s: float | None) -> None:
    if trials is not None and trials < 1:
        raise UsageError(f"trials must be at least 1, but got {trials}")
    if time_s is not None and not 0.0 < time_s < float("inf"):
        raise UsageError(f"the time must be a positive number of seconds, but got {time_s}")
