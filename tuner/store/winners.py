"""Winners: writing one, and the best for a problem. Each function is one transaction's work."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Select, func, insert, select

from tuner.device import ESTIMATED
from tuner.errors import UsageError
from tuner.problem import Problem
from tuner.store import studies, trials
from tuner.store.models import DeviceRow, ProblemRow, StackRow, StudyRow, TrialRow, WinnerRow
from tuner.store.records import StoredWinner, WinnerRecord
from tuner.store.rows import now, winner_of, winner_values
from tuner.trial import Outcome


def record(connection: Connection, study_id: int, winner: WinnerRecord) -> int:
    """Adds a winner. Raises ``ValueError`` where its trial was not timed, or is of another problem, device or stack."""
    study = studies.locked(connection, study_id)
    trial = trials.one(connection, winner.trial_id)
    if trial.outcome is not Outcome.TIMED:
        raise ValueError(f"a winner must be a timed trial, but trial {trial.id} ended as {trial.outcome}")
    if (trial.problem_key, trial.device_key, trial.stack_key) != (study.problem_key, study.device_key, study.stack_key):
        raise ValueError(f"trial {trial.id} is of another problem, device or stack than the study {study.name}")
    if winner.estimated != (study.mode == ESTIMATED):
        raise ValueError(f"`estimated` must be that of the study ({study.mode}), but got {winner.estimated}")
    place = {"problem_key": study.problem_key, "device_key": study.device_key, "stack_key": study.stack_key}
    # The newest is found by its moment; a clock that was set back must not hide it behind an older one.
    last = connection.execute(
        select(func.max(WinnerRow.created_at)).where(
            WinnerRow.problem_key == study.problem_key,
            WinnerRow.device_key == study.device_key,
            WinnerRow.estimated == winner.estimated,
        )
    ).scalar_one()
    moment = now() if last is None else max(now(), last + timedelta(microseconds=1))
    known = select(WinnerRow.uid).where(WinnerRow.study_id == study_id).order_by(WinnerRow.created_at, WinnerRow.id)
    values = {
        **place,
        **winner_values(winner),
        "uid": uuid.uuid4().hex,
        "created_at": moment,
        "replaces": list(connection.execute(known).scalars()),
    }
    done = connection.execute(insert(WinnerRow).values(study_id=study_id, **values))
    assert done.inserted_primary_key is not None
    return int(done.inserted_primary_key[0])


def best(
    connection: Connection, problem: Problem, device_name: str | None, estimated: bool, stack_key: str | None
) -> StoredWinner | None:
    """See ``Store.best``."""
    valid = [WinnerRow.problem_key == problem.key, TrialRow.outcome == Outcome.TIMED.value]
    if not estimated:
        valid.append(WinnerRow.estimated.is_(False))
    if stack_key is not None:
        valid.append(WinnerRow.stack_key == stack_key)
    devices = connection.execute(
        select(DeviceRow.key, DeviceRow.name)
        .join(WinnerRow, WinnerRow.device_key == DeviceRow.key)
        .join(TrialRow, TrialRow.id == WinnerRow.trial_id)
        .where(*valid)
        .distinct()
    )
    keys = _matching([(row.key, row.name) for row in devices], problem, device_name)
    statement = statement_for_winners().where(*valid, WinnerRow.device_key.in_(keys))
    rows = connection.execute(
        statement.order_by(WinnerRow.estimated, WinnerRow.created_at.desc(), WinnerRow.id.desc())
    ).all()
    if not rows:
        return None
    here = [row for row in rows if row.estimated == rows[0].estimated and row.stack_key == rows[0].stack_key]
    return winner_of(counting(here))


class Choice(Protocol):
    """What ``counting`` looks at."""

    @property
    def uid(self) -> str: ...
    @property
    def replaces(self) -> Sequence[str] | None: ...
    @property
    def median_us(self) -> float: ...
    @property
    def created_at(self) -> datetime: ...


C = TypeVar("C", bound=Choice)


def counting(winners: Iterable[C]) -> C:
    """The fastest of ``winners`` (one at least, of one stack) that none of the others replaces.

    A winner replaces those of its study that were known when it was chosen, even faster ones. What databases that are
    joined chose without one another stands side by side. As in the view ``winners``.
    """
    every = list(winners)
    replaced = {uid for winner in every for uid in winner.replaces or ()}
    standing = [winner for winner in every if winner.uid not in replaced]
    return min(standing, key=lambda winner: (winner.median_us, winner.created_at, winner.uid))


@cache
def statement_for_winners() -> Select[Any]:
    """Winners with what ``winner_of`` needs."""
    return (
        select(
            WinnerRow.__table__,
            StudyRow.name.label("study_name"),
            ProblemRow.operator,
            ProblemRow.shape,
            ProblemRow.dtype,
            ProblemRow.options,
            DeviceRow.data.label("device_data"),
            StackRow.data.label("stack_data"),
            TrialRow.config,
            TrialRow.variant_id,
        )
        .join(StudyRow, StudyRow.id == WinnerRow.study_id)
        .join(TrialRow, TrialRow.id == WinnerRow.trial_id)
        .join(ProblemRow, ProblemRow.key == WinnerRow.problem_key)
        .join(DeviceRow, DeviceRow.key == WinnerRow.device_key)
        .join(StackRow, StackRow.key == WinnerRow.stack_key)
    )


def _matching(devices: list[tuple[str, str]], problem: Problem, wanted: str | None) -> list[str]:
    """The keys of the devices of one name: the one wanted (whole, or a part of one only), or the only one."""
    if wanted is None:
        chosen = devices
        question = f"{problem.label} has winners on several devices"
    else:
        low = wanted.strip().lower()
        chosen = [d for d in devices if low in (d[0], d[1].lower())] or [d for d in devices if low in d[1].lower()]
        question = f"{wanted!r} is part of several devices' names"
    names = sorted({name for _, name in chosen})
    if len({name.lower() for name in names}) > 1:
        raise UsageError(f"{question}: {', '.join(names)}; say which with --device")
    return [key for key, _ in chosen]
