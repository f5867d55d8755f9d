"""The Python API: what the command line does, as functions. Import them from ``tuner``.

Every function takes ``db``: an SQLAlchemy URL or a path to an SQLite file (None: ``TUNER_DB``, else one file in the
user's data folder). What is wrong with the arguments, the machine or the database is raised as a ``TunerError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from tuner.errors import NoWinnerError, UsageError
from tuner.events import Listener, Notice
from tuner.files import config_file, winner_file
from tuner.gpu_holding import holding_gpu
from tuner.machine import DEFAULT_TARGET, new_machine
from tuner.one_check import check_file
from tuner.one_config import check_config, refuse_empty, time_config
from tuner.operator_summary import operator_summary
from tuner.operators import names
from tuner.own_operators.files import find, stored_name
from tuner.problem import Problem, Scalar
from tuner.querying import Filters, QueryResult, result, selection
from tuner.regression.comparing import compare
from tuner.regression.points import as_point, make_point
from tuner.regression.report import RegressionReport
from tuner.remeasurement import Remeasurement
from tuner.remeasuring import DEFAULT_RUNNERS_UP, Remeasuring, stored_winners
from tuner.reproducing import Reproduction, recipe
from tuner.reproducing import reproduce as run_again
from tuner.results import OperatorSummary, TimeResult, TuneResult
from tuner.search import DEFAULT_SAMPLER
from tuner.session import Session
from tuner.space import load_space
from tuner.store.location import default_url
from tuner.store.records import StoredWinner, StudyDetail, StudySummary
from tuner.store.store import Store, reading
from tuner.targets import target as named_target
from tuner.trial import CheckReport


def make_problem(
    operator: str, shape: Mapping[str, int], dtype: str, options: Mapping[str, Scalar] | None = None
) -> Problem:
    """A validated problem: ``make_problem("softmax", {"rows": 64, "cols": 1024}, "bf16")``. Raises ``ProblemError``.

    ``operator``: a name, or ``"my_ops.py:rmsnorm"`` for one that a file of your own declares, which is run.
    """
    return find(operator).problem(shape, dtype, options)


def tune(
    problem: Problem,
    *,
    space: str | Path | None = None,
    trials: int | None = None,
    time_s: float | None = None,
    sampler: str = DEFAULT_SAMPLER,
    seed: int = 0,
    early_stop: bool = True,
    db: str | None = None,
    target: str | None = None,
    gpu: bool | None = None,
    workers: int | None = None,
    on_event: Listener | None = None,
) -> TuneResult:
    """Search for the fastest right config of ``problem``, and store everything that was tried and the winner.

    ``space``: a search space file (None: the operator's own). ``trials``: how many configs the study may hold, those of
    earlier runs included; ``time_s``: seconds of wall time for this run, from this call on (neither: 200 trials).
    ``target``: the device to tune for (None: the GPU here, else sm_90). ``gpu``: True insists on measuring, False
    estimates without touching a GPU, None measures where it can. ``early_stop``: with the default sampler, the search
    ends by itself once its model gives a better config a negligible chance. ``on_event`` is called with the events of
    ``tuner.events``. Calling it again goes on where the last run stopped; called in several processes at once (on one
    machine, or on several that share a database), they share the study and no config is tried twice.

    Raises:
        StudyFailedError: no config survived.
        MissingError: no GPU where one is insisted on, or no Triton.
    """
    with Session(db=db, target=target, gpu=gpu, workers=workers) as session:
        return session.tune(
            problem,
            space=space,
            trials=trials,
            time_s=time_s,
            sampler=sampler,
            seed=seed,
            early_stop=early_stop,
            on_event=on_event,
        )


def best(
    problem: Problem, *, db: str | None = None, device: str | None = None, estimated: bool = False
) -> StoredWinner | None:
    """The stored winner for ``problem`` on ``device`` (a name or a unique part of it), or None.

    Measured winners only, unless ``estimated``. Raises ``UsageError`` where several devices have one and none is named.
    """
    with reading(db) as store:
        return store.best(problem, device, estimated=estimated)


def studies(*, db: str | None = None) -> list[StudySummary]:
    """Every study in the database, the newest first."""
    with reading(db) as store:
        return store.studies()


def show(study: str, *, db: str | None = None) -> StudyDetail:
    """One study by name, number or unique beginning of its name. Raises ``UsageError`` where there is none."""
    with reading(db) as store:
        return store.study(study)


def query(
    what: str = "trials",
    *,
    operator: str | None = None,
    shape: str = "",
    dtype: str | None = None,
    device: str | None = None,
    triton: str = "",
    torch: str = "",
    driver: str = "",
    stack: str = "",
    since: str | None = None,
    until: str | None = None,
    outcomes: tuple[str, ...] = (),
    template: str | None = None,
    estimated: bool = False,
    sort: Iterable[str] = (),
    group_by: Iterable[str] = (),
    limit: int | None = None,
    db: str | None = None,
) -> QueryResult:
    """Stored ``trials``, ``measurements`` or ``winners`` as a table, the newest first; times in microseconds.

    ``shape``: sizes or ranges, ``"cols=1024..8192,rows=4096"``. ``device``: part of a name. Versions are whole or up to
    a dot. ``since`` and ``until``: dates or moments (UTC). ``outcomes``: none gives what is right and timed,
    ``("all",)`` everything. ``sort``: columns or shape parameters, with ``-`` the largest first. ``group_by``: counts
    rows, with the fastest and slowest time. Measured only, or with ``estimated`` estimated only. Raises ``UsageError``.
    """
    named = {"triton": triton, "torch": torch, "driver": driver, "stack": stack, "since": since, "until": until}
    point = make_point({name: value for name, value in named.items() if value}, "query")
    filters = Filters(stored_name(operator), shape, dtype, device, point, template, outcomes, estimated)
    with reading(db) as store:
        chosen = selection(store.history.catalogue(), what, filters, sort, group_by, limit)
        return result(*store.history.rows(chosen), limit)


def regressions(
    before: str | Mapping[str, str] = "",
    after: str | Mapping[str, str] = "",
    *,
    operator: str | None = None,
    device: str | None = None,
    estimated: bool = False,
    db: str | None = None,
) -> RegressionReport:
    """What became of every winner between two points: slower, faster, the same, ambiguous, wrong, refused or missing.

    A point is ``"triton=3.6,driver=580"`` or a mapping of the same names: ``stack``, ``triton``, ``torch``, ``driver``,
    ``since``, ``until``, ``templates`` (a git revision) and ``db``. Both empty: the newest software stack of each
    device against the one before it. ``operator`` and ``device`` (part of a name) narrow it. Nothing is measured:
    everything comes from stored samples. Raises ``UsageError`` where there is nothing to compare.
    """
    old, new = as_point(before, "--before"), as_point(after, "--after")
    with ExitStack() as opened:
        first = opened.enter_context(reading(old.db or db))
        second = first if new.db == old.db else opened.enter_context(reading(new.db or db))
        history = first.history
        other = history if second is first else second.history
        return compare(history, other, old, new, operator=stored_name(operator), device=device, estimated=estimated)


def remeasure(
    *,
    operator: str | None = None,
    shape: str = "",
    dtype: str | None = None,
    space: str | Path | None = None,
    runners_up: int = DEFAULT_RUNNERS_UP,
    estimated: bool = False,
    target: str | None = None,
    seed: int = 0,
    db: str | None = None,
    on_event: Listener | None = None,
    on_result: Callable[[Remeasurement], None] | None = None,
) -> list[Remeasurement]:
    """Check and measure again, on today's stack and without searching, what is stored for this device.

    For every problem with a winner: the winner, at most ``runners_up`` runners-up and the plain config, in interleaved
    rounds in fresh processes. Each problem's is stored, then given to ``on_result``. ``operator``, ``shape`` (ranges,
    as ``query``) and ``dtype`` narrow it; ``space``: a file in place of the operators' own. Raises ``MissingError``
    without a GPU unless ``estimated``: estimates (for ``target``) are made again. ``UsageError``: nothing is stored.
    """
    listener, tell = on_event or (lambda event: None), on_result or (lambda result: None)
    filters = Filters(stored_name(operator), shape, dtype, estimated=estimated)
    processes = new_machine(target if estimated else None, not estimated, None)
    with Store.open(db or default_url(), create=False) as store, processes as machine, holding_gpu(machine, listener):
        winners = stored_winners(store, machine, filters)
        run = Remeasuring(store, machine, seed, runners_up, lambda text: listener(Notice(text)))
        results = []
        for found in run.run(winners, lambda name: load_space(space or name)):
            results.append(found)
            tell(found)
        return results


def reproduce(
    measurement: int,
    *,
    operator: str | None = None,
    space: str | Path | None = None,
    trust_source: bool = False,
    seed: int = 0,
    db: str | None = None,
) -> Reproduction:
    """Run one stored measurement (name an ``operator`` of your own) again from its stored source; nothing is stored.

    The source must be what this installation's templates render, unless ``trust_source``: running it runs its code.
    Raises ``MissingError`` without a GPU, ``UsageError`` for another device, an estimate, or a source not trusted.
    """
    stored_name(operator)
    with reading(db) as store:
        given = recipe(store, measurement)
        with new_machine(None, True, 1) as machine, holding_gpu(machine, lambda event: None):
            chosen = load_space(space or given.problem.operator)
            return run_again(given, store, machine, chosen, trust_source=trust_source, seed=seed)


def render(
    problem: Problem,
    *,
    space: str | Path | None = None,
    config: str | None = None,
    best: bool = False,
    triton_version: str | None = None,
    db: str | None = None,
    device: str | None = None,
    estimated: bool = False,
) -> str:
    """The standalone source of one config: the stored winner (``best``), ``config``, or the first plain config.

    The winner's comes from the source that is stored with it; an estimated one only with ``estimated``. Raises
    ``NoWinnerError`` where there is none. ``triton_version`` decides how the base-2 exponential is
    spelt (None: a file that finds out where it runs).
    """
    if not best:
        bound = load_space(space or problem.operator).bind(problem, named_target(device or DEFAULT_TARGET))
        refuse_empty(bound)
        return config_file(bound, bound.parse(config or ""), triton_version)
    if config is not None:
        raise UsageError("ask for the best config or name one, not both")
    with reading(db) as store:
        winner = store.best(problem, device, estimated=estimated)
        if winner is None:
            if not estimated and store.best(problem, device, estimated=True) is not None:
                raise NoWinnerError(f"only an estimated winner is stored for {problem.label}; --estimated takes it")
            raise NoWinnerError(f"nothing is stored for {problem.label}; run `tuner tune` first")
        return winner_file(store, winner, triton_version)


def check(
    problem: Problem,
    *,
    space: str | Path | None = None,
    config: str | None = None,
    file: str | Path | None = None,
    tiles: str | None = None,
    precision: str | None = None,
    target: str | None = None,
    gpu: bool | None = None,
    seed: int = 0,
) -> CheckReport:
    """Check one config (None: the first plain one), or a kernel ``file`` of your own, against the two-pass reference.

    On the GPU at the problem's own shape too; without one in Triton's interpreter, at small shapes. The report's
    ``cause`` says why a wrong one is likely wrong. With a ``file``, whose ``launch`` takes the operator's tensors,
    ``config`` is its keyword arguments, ``tiles`` elements a tile and ``precision`` fields of the precision profile,
    all as ``NAME=VALUE,...``. Raises ``KernelFailedError``, a ``TunerError``, where it cannot be
    compiled or run at all.
    """
    if file is not None or tiles or precision:
        return check_file(problem, file, space, config, tiles, precision, target=target, gpu=gpu, seed=seed)
    chosen = load_space(space or problem.operator)
    with new_machine(target, gpu, 1) as machine:
        return check_config(machine, chosen, problem, config, seed)


def time(
    problem: Problem,
    *,
    space: str | Path | None = None,
    config: str | None = None,
    gpu: bool | None = None,
    db: str | None = None,
    seed: int = 0,
) -> TimeResult:
    """Check one config (None: the first plain one), then measure it beside the plain config in interleaved rounds.

    Needs a GPU: raises ``MissingError`` without one. Nothing is stored.
    """
    chosen = load_space(space or problem.operator)
    with new_machine(None, True, 1) as machine, holding_gpu(machine, lambda event: None):
        return time_config(machine, chosen, problem, config, seed)


def list_operators(*, target: str | None = None, operator: str | None = None) -> list[OperatorSummary]:
    """What can be tuned (or ``operator`` only), with the number of valid configs of an example on ``target``."""
    wanted = names() if operator is None else (find(operator).name,)
    return [operator_summary(name, named_target(target or DEFAULT_TARGET)) for name in wanted]
