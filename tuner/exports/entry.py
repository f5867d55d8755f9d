"""What a table is made from: winners with the source, the check and the stored times behind them. Frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tuner.config import Value
from tuner.device import Device
from tuner.exports.rules import Rules
from tuner.problem import Problem, Scalar
from tuner.store.records import StoredWinner, launch_key
from tuner.trial import CheckReport
from tuner.variant import Variant

# A factor of the logits is an argument of every launch: no config depends on it.
_NOT_IN_A_GROUP = ("scale",)

Times = Mapping[tuple[str, str], float]
"""Microseconds by variant hash and launch key (``tuner.store.records.launch_key``)."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One winner. ``arguments`` is what the variant's ``launch()`` takes of its config.

    ``rules`` is the part of its search space that says where its template may be used and what follows from a shape
    (None: the stored text cannot be read any more). ``times`` are all stored times of its problem on its device and
    stack. ``others``, where they were asked for, are the fastest of each other template, the fastest first, for a
    format that has no words for the winner.
    """

    winner: StoredWinner
    variant: Variant
    check: CheckReport
    arguments: Mapping[str, Value]
    rules: Rules | None
    space_digest: str
    times: Times
    others: tuple[Entry, ...] = ()

    @property
    def problem(self) -> Problem:
        """What it was tuned for."""
        return self.winner.problem

    @property
    def device(self) -> Device:
        """What it was tuned on."""
        return self.winner.device

    @property
    def us(self) -> float:
        """Its time in microseconds."""
        return self.winner.record.median_us

    @property
    def group(self) -> tuple[str, str, str, tuple[tuple[str, Scalar], ...]]:
        """Device, operator, dtype and options: entries of one group differ in shape alone."""
        options = tuple((name, value) for name, value in self.problem.options if name not in _NOT_IN_A_GROUP)
        return self.device.key, self.problem.operator, self.problem.dtype, options

    @cached_property
    def program(self) -> tuple[str, str]:
        """The key of its own time in ``times``."""
        return self.variant.hash, launch_key(self.winner.config)

    def program_at(self, other: Entry) -> tuple[str, str] | None:
        """The key in ``other.times`` of this config at ``other``'s problem; None where it does not apply there."""
        if self.rules is None:
            return None
        config = self.rules.config_at(self.winner.config, other.problem, other.device)
        return None if config is None else (self.variant.hash, launch_key(config))

    def loss_at(self, other: Entry) -> float | None:
        """By how much this config is slower than the winner at ``other``'s problem, as a fraction; None: not stored."""
        program = self.program_at(other)
        us = None if program is None else other.times.get(program)
        return None if us is None else max(0.0, us / other.us - 1.0)


@dataclass(frozen=True)
class LeftOut:
    """Something that is not in the table, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Selection:
    """The entries that a table is made from, in the order of device, operator, dtype, options and shape."""

    entries: tuple[Entry, ...]
    left_out: tuple[LeftOut, ...] = ()
    devices: tuple[Device, ...] = field(default=())
