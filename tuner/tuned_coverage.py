"""Which problems are tuned on this device and software, weighed by how often they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tuner.device import Device, Stack
from tuner.errors import UsageError
from tuner.machine import Machine
from tuner.own_operators.files import find
from tuner.problem import Problem
from tuner.problems_file import load_problems
from tuner.store.records import StoredWinner
from tuner.store.store import Store, reading
from tuner.toolchain import triton_version as installed_triton
from tuner.workspace import Workspace


class Coverage(StrEnum):
    """How a problem stands: ``tuned`` here, ``stale`` (on this device with other software), or ``untuned``."""

    TUNED = "tuned"
    STALE = "stale"
    UNTUNED = "untuned"


@dataclass(frozen=True)
class CoveredProblem:
    """One problem, how often it runs, how it stands, and what is known of it.

    ``config`` and ``us`` are the winner's, on the software that ``stack`` names; for an untuned one ``elsewhere`` lists
    the devices that have one.
    """

    problem: Problem
    count: int
    status: Coverage
    config: str = ""
    us: float | None = None
    stack: str = ""
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True)
class CoverageReport:
    """Every problem, what matters most first: not tuned before tuned, then the most frequent."""

    device: Device
    stack: Stack
    estimated: bool
    problems: tuple[CoveredProblem, ...]

    def calls(self, status: Coverage) -> int:
        """How many calls are of problems that stand so."""
        return sum(item.count for item in self.problems if item.status is status)

    def share(self, status: Coverage) -> float:
        """The part of all calls, from 0 to 1."""
        return self.calls(status) / sum(item.count for item in self.problems)

    def as_json(self) -> Mapping[str, object]:
        """Plain data for ``--json``, without the problems."""
        counts = {str(s): sum(item.status is s for item in self.problems) for s in Coverage}
        return {
            "device": self.device.name,
            "stack": self.stack.label,
            "estimated": self.estimated,
            "problems": counts,
            "calls": {str(s): self.calls(s) for s in Coverage},
            "shares": {str(s): self.share(s) for s in Coverage},
        }


def coverage(
    problems: str | Path | None = None,
    *,
    operators: Iterable[str] = (),
    target: str | None = None,
    gpu: bool | None = None,
    db: str | None = None,
) -> CoverageReport:
    """Which of the ``problems`` are tuned on this device and software, which on other software only, and which not.

    ``problems``: a problems file, as ``capture`` writes one (None: every problem that a study in the database is of,
    each counted once). ``operators``: files of your own that stored problems may be of. ``target`` and ``gpu``: as for
    ``tune``; where nothing is measured, estimated winners count and the report is ``estimated``. Nothing is run.

    Raises ``UsageError`` where there is no problem at all.
    """
    for operator in operators:
        find(operator)
    wanted = None if problems is None else {r.problem: r.count for r in load_problems(problems)}
    with reading(db) as store:
        counted = dict.fromkeys((s.problem for s in store.studies()), 1) if wanted is None else wanted
        if not counted:
            raise UsageError("no study is stored and no file of problems is given; run `tuner capture` or `tuner tune`")
        device, stack = _here(target, gpu)
        found = [_stands(store, problem, count, device, stack) for problem, count in counted.items()]
    order = {Coverage.UNTUNED: 0, Coverage.STALE: 1, Coverage.TUNED: 2}
    found.sort(key=lambda item: (order[item.status], -item.count, item.problem.label))
    return CoverageReport(device, stack, stack.mode == "estimated", tuple(found))


def _here(target: str | None, gpu: bool | None) -> tuple[Device, Stack]:
    installed_triton()  # MissingError, with what to do, before anything is started
    with Machine(Workspace(), target=target, gpu=gpu, workers=1) as machine:
        return machine.device, machine.stack


def _stands(store: Store, problem: Problem, count: int, device: Device, stack: Stack) -> CoveredProblem:
    estimated = stack.mode == "estimated"

    def winner(stack_key: str | None) -> StoredWinner | None:
        found = store.best(problem, device.key, estimated=estimated, stack_key=stack_key)
        return found if found is not None and found.record.estimated == estimated else None

    for status, known in ((Coverage.TUNED, winner(stack.key)), (Coverage.STALE, winner(None))):
        if known is not None:
            us = known.record.median_us
            return CoveredProblem(problem, count, status, known.config.label, us, known.stack.label)
    others = {s.device_name for s in store.studies(operator=problem.operator) if s.problem == problem}
    elsewhere = tuple(sorted(name for name in others if name != device.name))
    return CoveredProblem(problem, count, Coverage.UNTUNED, elsewhere=elsewhere)
