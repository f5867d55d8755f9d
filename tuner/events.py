"""What a running study tells whoever listens. Frozen values; ``tuner.progress`` turns them into a display."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.config import Config
from tuner.device import ESTIMATED
from tuner.problem import Problem
from tuner.trial import Outcome


class Stage(StrEnum):
    """Where a study is: trying configs, timing the better ones longer, or deciding between the last few."""

    SEARCH = "search"
    RACE = "race"
    FINALS = "finals"


@dataclass(frozen=True)
class StudyStarted:
    """A run of a study begins. ``known`` results are there already. A budget of None is no limit."""

    problem: Problem
    study: str
    device: str
    mode: str
    sampler: str
    space_size: int | None
    known: int
    max_trials: int | None = None
    max_seconds: float | None = None
    resumed: bool = False

    @property
    def estimated(self) -> bool:
        """Whether its times are estimates."""
        return self.mode == ESTIMATED


@dataclass(frozen=True)
class TrialFinished:
    """One trial has its outcome, and it is stored. ``improved`` says that it is the best so far."""

    number: int
    config: Config
    outcome: Outcome
    reason: str = ""
    value_us: float | None = None
    improved: bool = False
    best_label: str = ""
    best_us: float | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is; sent a few times a second. ``finished`` counts the trials of this run.

    ``gpu_busy_share`` is the part of the run's wall time in which the GPU worked (0 to 1), None without a GPU.
    """

    elapsed_s: float
    finished: int
    outcomes: Mapping[Outcome, int] = field(default_factory=dict)
    best_label: str = ""
    best_us: float | None = None
    max_trials: int | None = None
    max_seconds: float | None = None
    in_flight: int = 0
    compile_queue: int = 0
    gpu_busy_share: float | None = None
    stage: Stage = Stage.SEARCH
    estimated: bool = False

    @property
    def remaining_s(self) -> float | None:
        """Seconds left by the time budget or the pace of the trials so far, whichever is less; None where unknown."""
        left = []
        if self.max_seconds is not None:
            left.append(max(self.max_seconds - self.elapsed_s, 0.0))
        if self.max_trials is not None and self.finished > 0:
            left.append(max(self.max_trials - self.finished, 0) * self.elapsed_s / self.finished)
        return min(left, default=None)


@dataclass(frozen=True)
class FinalistsChosen:
    """The search is over; these configs (labels) are measured again, interleaved."""

    labels: tuple[str, ...]


@dataclass(frozen=True)
class StudyFinished:
    """The study is over, and its winner (if any) is stored."""

    study: str
    verdict: str
    winner_label: str = ""
    median_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    speedup: float | None = None
    estimated: bool = False


@dataclass(frozen=True)
class Notice:
    """Something that people should know: a fallback, a worker that was started again, an unstable clock."""

    text: str


@dataclass(frozen=True)
class OverallProgress:
    """How far a run over several problems is; sent every second. ``in_front``: those that have the GPUs now.

    ``done`` have ended, the ``failed`` among them without a winner. ``max_seconds``: the budget of all, if they share
    one.
    """

    elapsed_s: float
    problems: int
    done: int
    failed: int
    in_front: tuple[Problem, ...] = ()
    max_seconds: float | None = None

    @property
    def remaining_s(self) -> float | None:
        """Seconds left of the budget of all; None without one."""
        return None if self.max_seconds is None else max(self.max_seconds - self.elapsed_s, 0.0)


Event = StudyStarted | TrialFinished | Progress | FinalistsChosen | StudyFinished | Notice | OverallProgress
Listener = Callable[[Event], None]
