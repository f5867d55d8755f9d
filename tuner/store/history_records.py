"""The values that ``tuner.store.history`` gives out: what comparisons over time and stacks are made from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tuner.config import Config
from tuner.device import Device, Stack
from tuner.problem import Problem
from tuner.trial import Outcome

CONFIRMED_STAGES = ("final", "remeasure")
"""Stages of interleaved rounds in fresh processes. Others are first looks of a few samples."""

Key = tuple[str, str, str, str]
"""Problem key, device key, stack key, config key."""


@dataclass(frozen=True)
class StackUse:
    """A software stack with trials on a device; ``since`` is when the stack was first stored."""

    device_key: str
    stack_key: str
    stack: Stack
    since: datetime


@dataclass(frozen=True)
class WinnerAt:
    """A winner as comparisons need it. ``outcome`` is its trial's today: one that was found wrong later says so."""

    id: int
    study_id: int
    trial_id: int
    problem_key: str
    device_key: str
    stack_key: str
    config: Config
    variant_hash: str
    template_hash: str
    outcome: Outcome
    reason: str
    median_us: float
    plain_key: str
    created_at: datetime
    changed_at: datetime
    uid: str
    replaces: tuple[str, ...]

    def __post_init__(self) -> None:
        _refuse_no_time(f"winner {self.id}", self.median_us)


@dataclass(frozen=True)
class TrialAt:
    """A trial without its reports. ``same_as`` is the config key of the twin that was measured in its place."""

    id: int
    problem_key: str
    device_key: str
    stack_key: str
    config_key: str
    variant_hash: str
    template_hash: str
    outcome: Outcome
    reason: str
    same_as: str
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True)
class MeasurementHead:
    """A measurement without its samples; the median in microseconds."""

    id: int
    trial_id: int
    stage: str
    protocol: str
    median_us: float
    sample_count: int
    created_at: datetime

    def __post_init__(self) -> None:
        _refuse_no_time(f"measurement {self.id}", self.median_us)

    @property
    def confirmed(self) -> bool:
        """Whether it is of interleaved rounds in fresh processes."""
        return self.stage in CONFIRMED_STAGES


@dataclass(frozen=True)
class Samples:
    """A measurement's samples in microseconds, with round, process, clocks (MHz, 0: not read) and throttle reasons.

    All are of one length, or empty where nothing was recorded; there is a sample at least. Raises ``ValueError`` where
    there is none, or one is not positive and finite.
    """

    us: tuple[float, ...]
    rounds: tuple[int, ...]
    processes: tuple[int, ...]
    sm_clocks: tuple[float, ...]
    memory_clocks: tuple[float, ...]
    throttles: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not self.us:
            raise ValueError("a measurement has no sample")
        for sample in self.us:
            _refuse_no_time("a sample", sample)


@dataclass(frozen=True)
class Repeat:
    """One of several confirmed measurements of a trial: what the noise floor of a device is taken from."""

    device_key: str
    trial_id: int
    median_us: float

    def __post_init__(self) -> None:
        _refuse_no_time(f"a measurement of trial {self.trial_id}", self.median_us)


@dataclass(frozen=True)
class Catalogue:
    """What the keys of the other values stand for."""

    problems: Mapping[str, Problem]
    devices: Mapping[str, Device]
    stacks: Mapping[str, Stack]


def _refuse_no_time(what: str, us: float) -> None:
    """A logarithm is taken of every one of them."""
    if not 0.0 < us < math.inf:
        raise ValueError(f"the time of {what} must be positive and finite microseconds, but is {us!r}")
