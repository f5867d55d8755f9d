"""``tuner.record``: tries every config of a problem's search space, and writes what became of them as a recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.errors import MissingError, UsageError
from tuner.events import Listener
from tuner.problem import Problem
from tuner.replay.table import write_table
from tuner.session import Session
from tuner.space import load_space
from tuner.store.location import default_url
from tuner.store.store import reading
from tuner.study_recording import recording_of

MOST_CONFIGS = 200_000
"""A space with more valid configs is none that anybody tries whole."""


@dataclass(frozen=True)
class RecordResult:
    """A recording that was written to ``path``: of ``configs`` valid ones, ``failed`` have no time.

    ``complete`` is False where the sweep was interrupted; nothing is written then, and the same call goes on.
    """

    path: Path
    problem: Problem
    study: str
    estimated: bool
    complete: bool
    configs: int
    failed: int
    best_us: float | None


def record(
    problem: Problem,
    output: str | Path,
    *,
    space: str | Path | None = None,
    estimated: bool = False,
    target: str | None = None,
    workers: int | None = None,
    seed: int = 0,
    db: str | None = None,
    on_event: Listener | None = None,
) -> RecordResult:
    """Try every valid config of ``problem``, and write a recording that ``tuner.replay_search`` reads (CSV; ``.gz``
    packs it). It is a study with the sampler ``exhaustive``: results are stored, and a further call goes on.

    A config that was cut short for being slow is recorded as ``pruned``, without a time. Raises ``MissingError``
    without a GPU, unless ``estimated``: estimates (for ``target``) are recorded then. ``UsageError`` where ``output``
    cannot be written; ``StudyFailedError`` where no config survives.
    """
    path = Path(output)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.absolute().parent}")
    with Session(db=db, target=target, gpu=not estimated, workers=workers) as session:
        try:
            result = session.tune(
                problem,
                space=space,
                trials=MOST_CONFIGS,
                sampler="exhaustive",
                seed=seed,
                early_stop=False,
                on_event=on_event,
            )
        except MissingError as error:
            if estimated:
                raise
            raise MissingError(f"{error}; `tuner record --estimated` records estimates") from error
    with reading(db or default_url()) as store:
        detail = store.study(result.study.name)
    bound = load_space(space or problem.operator).bind(problem, detail.device, gpu=not estimated)
    tried = [entry.trial for entry in detail.trials]
    whole = len(tried) >= bound.size() and not result.interrupted
    if whole:
        recording = recording_of(path.name, detail, bound.plain())
        try:
            write_table(recording, path)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}; choose another --output") from error
    return RecordResult(
        path=path,
        problem=problem,
        study=detail.summary.name,
        estimated=result.estimated,
        complete=whole,
        configs=len(tried),
        failed=sum(trial.value_us is None for trial in tried),
        best_us=result.study.best_us,
    )
