"""What the Python API hands back, beside the records of ``tuner.store.records``. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.config import Config
from tuner.device import ESTIMATED, Device, Stack
from tuner.operators.base import Option, ShapeParameter
from tuner.problem import Problem
from tuner.store.records import StoredWinner, StudySummary
from tuner.trial import CheckReport, Measurement


@dataclass(frozen=True)
class TuneResult:
    """How a study stands after a run of it.

    ``winner`` is None where no config survived, or where the run was ``interrupted`` before there was one; the study's
    summary then has the best so far. ``chance_of_better`` (0 to 1): how likely it is, says the sampler's model, that an
    untried config is faster than the best by 1 % or more; None where no model can tell.
    """

    problem: Problem
    study: StudySummary
    winner: StoredWinner | None
    interrupted: bool = False
    chance_of_better: float | None = None

    @property
    def estimated(self) -> bool:
        """Whether its times are estimates."""
        return self.study.estimated


@dataclass(frozen=True)
class TimeResult:
    """One config, checked and then measured. ``measurement`` is None where the check failed.

    ``anchor`` is the fixed kernel that was timed beside it in the same run, where there is one.
    """

    problem: Problem
    config: Config
    device: Device
    stack: Stack
    check: CheckReport
    measurement: Measurement | None
    anchor: Measurement | None = None

    @property
    def estimated(self) -> bool:
        """Whether the time is an estimate."""
        return self.stack.mode == ESTIMATED


@dataclass(frozen=True)
class OperatorSummary:
    """An operator as ``tuner operators`` lists it. ``valid_configs`` are those of ``example`` on ``target``."""

    name: str
    summary: str
    shape_parameters: tuple[ShapeParameter, ...]
    options: tuple[Option, ...]
    dtypes: tuple[str, ...]
    templates: tuple[str, ...]
    example: Problem
    target: str
    valid_configs: int
