"""The values that go into the store and come out of it. Frozen, and without a reference to any database."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tuner.canonical import digest
from tuner.config import Config
from tuner.device import Device, Stack
from tuner.problem import Problem
from tuner.trial import CheckReport, CompileReport, Measurement, Outcome, TrialRecord

RUNNING, INTERRUPTED, FINISHED = "running", "interrupted", "finished"
WINNER, TIE = "winner", "tie"


@dataclass(frozen=True)
class StudySpec:
    """What a study is, and this run's budget. Problem, device, stack and the space's digest are its identity.

    ``space_name`` is the operator's (or the user's) name of the space; ``max_seconds`` is wall time.
    """

    problem: Problem
    device: Device
    stack: Stack
    space_name: str
    space_digest: str
    space_text: str
    sampler: str
    seed: int
    protocol: str
    space_size: int | None = None
    max_trials: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.max_seconds is not None and not 0.0 <= self.max_seconds < math.inf:
            raise ValueError(f"`max_seconds` must be finite and not negative, but got {self.max_seconds!r}")


@dataclass(frozen=True)
class StudyRecord:
    """A study as it stands when a run of it begins. ``wall_s`` and ``gpu_busy_s`` are those of earlier runs.

    ``resumed`` says that the study was there before; ``trials`` how many it had; ``previous_state`` how it was left;
    ``others`` how many other processes run it.
    """

    id: int
    name: str
    optuna_name: str
    resumed: bool
    previous_state: str
    trials: int
    wall_s: float
    gpu_busy_s: float
    others: int


@dataclass(frozen=True)
class StoredMeasurement:
    """A measurement with its identity and when it was recorded (UTC)."""

    id: int
    measurement: Measurement
    created_at: datetime


@dataclass(frozen=True)
class StoredTrial:
    """A trial as stored. Only ``Store.study`` and ``Store.trial`` fill in the ``measurements`` (samples are large)."""

    id: int
    problem_key: str
    device_key: str
    stack_key: str
    config: Config
    variant_hash: str
    outcome: Outcome
    reason: str
    value_us: float | None
    compile_report: CompileReport | None
    check_report: CheckReport | None
    same_as: str
    seed: int
    seconds: Mapping[str, float]
    created_at: datetime
    measurements: tuple[StoredMeasurement, ...] = ()

    @property
    def binary_hash(self) -> str | None:
        """The hash of what was compiled; None where nothing was."""
        return self.compile_report.binary_hash if self.compile_report else None

    def as_record(self) -> TrialRecord:
        """The trial as it was recorded, without its measurements."""
        return TrialRecord(
            config=self.config,
            variant_hash=self.variant_hash,
            outcome=self.outcome,
            reason=self.reason,
            value_us=self.value_us,
            compile_report=self.compile_report,
            check_report=self.check_report,
            same_as=self.same_as,
            seed=self.seed,
            seconds=self.seconds,
        )


class ClaimState(StrEnum):
    """What became of a claim. ``taken``: a living process works on it. ``full``: the study's budget is used up."""

    CLAIMED = "claimed"
    KNOWN = "known"
    TAKEN = "taken"
    FULL = "full"


@dataclass(frozen=True)
class Claim:
    """The answer to a claim; ``trial`` is there where it is ``known``."""

    state: ClaimState
    trial: StoredTrial | None = None


@dataclass(frozen=True)
class KnownTrials(Mapping[str, StoredTrial]):
    """Everything known of one problem on one device and stack, whatever study found it.

    As a mapping it goes by ``Config.key`` and gives the newest source's trial. ``find`` is the one that decides whether
    a config must be run: it goes by rendered source and launch parameters.
    """

    by_config: Mapping[str, StoredTrial]
    by_program: Mapping[tuple[str, str], StoredTrial]

    @classmethod
    def of(cls, trials: tuple[StoredTrial, ...]) -> KnownTrials:
        """From trials in the order in which they were stored."""
        return cls({t.config.key: t for t in trials}, {(t.variant_hash, launch_key(t.config)): t for t in trials})

    def find(self, config: Config, variant_hash: str) -> StoredTrial | None:
        """The trial of this very source with these launch parameters."""
        return self.by_program.get((variant_hash, launch_key(config)))

    def __getitem__(self, key: str) -> StoredTrial:
        return self.by_config[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_config)

    def __len__(self) -> int:
        return len(self.by_config)


def launch_key(config: Config) -> str:
    """A hash of the launch parameters alone."""
    return digest(dict(config.launch))


@dataclass(frozen=True)
class WinnerRecord:
    """What the final re-measurement chose: trial ``trial_id``, with its median and 95 % interval in microseconds.

    ``margin`` is by how much it beats the next (a fraction: 0.03 is 3 %), ``interval`` the 95 % interval of that.
    ``tie_set`` are the config keys that cannot be told apart; ``plain_*`` the plain config of the same comparison, and
    ``speedup`` its time over the winner's.
    """

    trial_id: int
    kind: str
    verdict: str
    median_us: float
    low_us: float
    high_us: float
    estimated: bool
    margin: float | None = None
    interval: tuple[float, float] | None = None
    tie_set: tuple[str, ...] = ()
    plain_key: str = ""
    plain_us: float | None = None
    speedup: float | None = None
    finalists: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in (WINNER, TIE):
            raise ValueError(f"`kind` must be winner or tie, but got {self.kind!r}")
        times = (self.median_us, self.low_us, self.high_us, self.plain_us, self.speedup)
        if bad := [t for t in times if t is not None and not 0.0 < t < math.inf]:
            raise ValueError(f"a winner's times and speed-up must be positive and finite, but got {bad[0]!r}")
        margins = (self.margin, *(self.interval or ()))
        if bad := [m for m in margins if m is not None and not math.isfinite(m)]:
            raise ValueError(f"`margin` and `interval` must be finite, but got {bad[0]!r}")


@dataclass(frozen=True)
class StoredWinner:
    """A winner with everything that a caller needs to use it or to trace it."""

    id: int
    study_id: int
    study_name: str
    problem: Problem
    device: Device
    stack: Stack
    config: Config
    variant_hash: str
    record: WinnerRecord
    created_at: datetime


@dataclass(frozen=True)
class StudySummary:
    """One line about a study. ``best_us`` is the winner's time, or the fastest trial's where none is chosen yet.

    ``state`` is ``interrupted`` also where the study says ``running`` and its process is gone. ``outcomes`` counts the
    trials by outcome, ``reused`` those that were known before.
    """

    id: int
    name: str
    problem: Problem
    device_name: str
    stack: Stack
    mode: str
    state: str
    sampler: str
    seed: int
    protocol: str
    space_digest: str
    space_size: int | None
    max_trials: int | None
    max_seconds: float | None
    trials: int
    reused: int
    outcomes: Mapping[str, int]
    best_us: float | None
    best_label: str
    plain_us: float | None
    speedup: float | None
    verdict: str
    wall_s: float
    gpu_busy_s: float
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None

    @property
    def estimated(self) -> bool:
        """Whether its times are estimates."""
        return self.mode == "estimated"


@dataclass(frozen=True)
class StudyTrial:
    """A trial's place in a study."""

    ordinal: int
    reused: bool
    trial: StoredTrial


@dataclass(frozen=True)
class Refusal:
    """Configs that ended alike: ``reason`` and ``example`` (a config's label) are those of the first of ``count``."""

    outcome: Outcome
    reason: str
    count: int
    example: str


@dataclass(frozen=True)
class StudyDetail:
    """Everything about one study. ``refusals`` has the most frequent first; ``winner`` is the newest."""

    summary: StudySummary
    device: Device
    space_name: str
    space_text: str
    optuna_name: str
    trials: tuple[StudyTrial, ...]
    refusals: tuple[Refusal, ...]
    winner: StoredWinner | None
