"""Opens a study: its space is bound, what is known of it is read, its sampler and its funnel are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.budget import Budget
from tuner.errors import UsageError
from tuner.estimate_funnel import EstimateFunnel
from tuner.evaluating import Candidate
from tuner.events import Listener, Notice, StudyStarted
from tuner.funnel import Funnel
from tuner.gpu_funnel import GpuFunnel
from tuner.gpu_lane import Lane
from tuner.known import known_trials
from tuner.machine import Machine
from tuner.one_config import refuse_empty
from tuner.problem import Problem
from tuner.protocols import ESTIMATE_PROTOCOL, GRAPH_PROTOCOL
from tuner.results import TuneResult
from tuner.search import DEFAULT_SAMPLER, Proposer, check_sampler, make_proposer
from tuner.search.stopping import StoppingProposer
from tuner.similar import similar_winners
from tuner.space import Space
from tuner.store.records import StudySpec
from tuner.store.store import Store
from tuner.study_end import StudyPlace
from tuner.study_run import StudyRun
from tuner.tickets import TicketOffice
from tuner.worker.pool import JobQueue


@dataclass(frozen=True)
class StudyRequest:
    """How a study is wanted; the fields are the arguments of ``tuner.tune``. Raises ``UsageError`` on wrong ones."""

    space: str | Path | None = None
    trials: int | None = None
    time_s: float | None = None
    sampler: str = DEFAULT_SAMPLER
    seed: int = 0
    early_stop: bool = True

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"trials must be at least 1, but got {self.trials}")
        check_seconds(self.time_s)
        check_sampler(self.sampler)


@dataclass(frozen=True)
class Way:
    """Where a study's configs go: compilers, interpreters (without a GPU), and the GPUs that it starts with."""

    compilers: JobQueue
    interpreters: JobQueue | None = None
    lanes: Sequence[Lane] = ()
    shares_gpu: bool = False


@dataclass(frozen=True)
class OpenStudy:
    """A study that was started: ``run`` is its run, ``close`` ends its sampler."""

    problem: Problem
    run: StudyRun
    proposer: Proposer

    def close(self) -> None:
        """End the sampler's connections. The study's run must have ended."""
        self.proposer.close()

    def result(self, interrupted: bool) -> TuneResult:
        """How the study stands after its run."""
        chance = None if interrupted else self.proposer.chance_of_better()
        place = self.run.place
        detail = place.store.study(place.study.id)
        return TuneResult(self.problem, detail.summary, detail.winner, interrupted, chance)


def open_study(
    store: Store,
    machine: Machine,
    problem: Problem,
    space: Space,
    request: StudyRequest,
    way: Way,
    listener: Listener,
    started: float,
) -> OpenStudy:
    """Start (or go on with) the study of ``problem`` over ``space``, which is the request's.

    Its time runs from ``started`` (``time.monotonic()``).

    Raises ``ConfigError`` where no template applies, and what a space, a sampler or the database raises.
    """
    trials = request.trials
    bound = space.bind(problem, machine.device, gpu=machine.measures, triton_version=machine.stack.triton)
    refuse_empty(bound)
    spec = StudySpec(
        problem=problem,
        device=machine.device,
        stack=machine.stack,
        space_name=problem.operator if request.space is None else Path(request.space).stem,
        space_digest=bound.digest,
        space_text=space.path.read_text(encoding="utf-8"),
        sampler=request.sampler,
        seed=request.seed,
        protocol=GRAPH_PROTOCOL if machine.measures else ESTIMATE_PROTOCOL,
        space_size=bound.size(),
        max_trials=trials,
        max_seconds=request.time_s,
    )
    study = store.start_study(spec)
    office = TicketOffice(bound, machine.workspace, machine.stack.triton)
    known = known_trials(store, bound, office, spec)
    proposer: Proposer = make_proposer(
        bound,
        sampler=request.sampler,
        seed=request.seed,
        storage=store.url,
        study_name=study.optuna_name,
        known={key: (trial.outcome, trial.value_us) for key, trial in known.items()},
        similar=similar_winners(store, bound),
    )
    if request.early_stop:
        proposer = StoppingProposer(proposer, len(known), lambda chance, n: listener(_stopped(chance, n)))
    listener(
        StudyStarted(
            problem=problem,
            study=study.name,
            device=machine.device.name,
            mode=machine.stack.mode,
            sampler=request.sampler,
            space_size=bound.size(),
            known=len(known),
            max_trials=trials,
            max_seconds=request.time_s,
            resumed=study.resumed,
        )
    )
    left_out = (f"template {name} is left out: {why}" for name, why in bound.refused.items())
    for text in (*store.warnings, *left_out):
        listener(Notice(text))
    budget = Budget(None if trials is None else min(trials, bound.size()), request.time_s, started)
    funnel = funnel_of(machine, problem, office.candidate(bound.plain()[0]), request.seed, way)
    place = StudyPlace(store, study, bound, office, machine, request.seed, listener, way.shares_gpu)
    return OpenStudy(problem, StudyRun(place, proposer, funnel, budget, known), proposer)


def way_of(machine: Machine) -> Way:
    """All of ``machine`` for one study."""
    if machine.measures:
        return Way(machine.compilers(), lanes=machine.lanes)
    return Way(machine.compilers(), machine.interpreters())


def make_funnel(machine: Machine, problem: Problem, typical: Candidate, seed: int) -> Funnel:
    """The way of ``machine``'s candidates for ``problem``: to its GPU, or to the interpreter and the estimate.

    ``typical``: a candidate of the problem, whose references a GPU computes ahead.
    """
    return funnel_of(machine, problem, typical, seed, way_of(machine))


def funnel_of(machine: Machine, problem: Problem, typical: Candidate, seed: int, way: Way) -> Funnel:
    """A funnel of ``way`` for ``problem``."""
    if way.interpreters is None:
        return GpuFunnel(problem, machine.device, way.compilers, seed, way.lanes, typical)
    machine.gpu.kill()  # it has found out what this machine is, and holds memory
    return EstimateFunnel(problem, machine.device, way.compilers, seed, way.interpreters)


def check_seconds(seconds: float | None) -> None:
    """Raises ``UsageError`` where a time budget is not positive and finite."""
    if seconds is not None and not 0.0 < seconds < float("inf"):
        raise UsageError(f"the time must be a positive number of seconds, but got {seconds}")


def _stopped(chance: float, results: int) -> Notice:
    return Notice(
        f"stopped after {results} configs: a better one is left with a chance of {chance:.1%}, says the model; "
        "--no-early-stop goes on"
    )
