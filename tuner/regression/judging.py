"""From the samples of two sides to a verdict. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.regression.effect import (
    CONFIDENCE,
    FALSE_DISCOVERIES,
    Blocks,
    Effect,
    adjusted,
    beyond_p_value,
    effect,
    further_blocks,
    is_faster,
    is_same,
    is_slower,
)
from tuner.regression.fairness import Conditions, Fairness, fairness
from tuner.regression.noise import NO_FLOOR, NoiseFloor
from tuner.regression.report import Row, Verdict
from tuner.store.history_records import Samples

MOST_ROUNDS = 10_000
"""More further rounds than this are no plan, and are not named."""


_SEEN_ONCE = "seen in one measurement; `tuner remeasure` once more confirms it or not"


@dataclass(frozen=True)
class Evidence:
    """The blocks of one side, and the card's conditions. ``clocks`` are in MHz: one a block, or none were read."""

    time: Blocks
    clocks: tuple[float, ...]
    conditions: Conditions

    @classmethod
    def of(cls, measurements: Mapping[int, Samples]) -> Evidence:
        """From the measurements of one side by id. Processes of two measurements are never the same one."""
        us = [sample for s in measurements.values() for sample in s.us]
        processes = [(number, p) for number, s in measurements.items() for p in _numbers(s.processes, s)]
        rounds = [r for s in measurements.values() for r in _numbers(s.rounds, s, distinct=True)]
        clocks = [clock for s in measurements.values() for clock in s.sm_clocks]
        time = Blocks.of(us, processes, rounds)
        # Where blocks hold several samples, which were taken at several clocks, cycles are not counted.
        known = len(clocks) == len(us) == len(time) and all(clock > 0 for clock in clocks)
        return cls(time, tuple(clocks) if known else (), Conditions.of(tuple(measurements.values())))

    @property
    def median_us(self) -> float:
        """The median of the blocks, in microseconds."""
        return math.exp(self.time.median)

    def cycles(self) -> Blocks | None:
        """The blocks in cycles of the SM clock; None where its clocks are not known."""
        return Blocks(self.time.logs + np.log(self.clocks), self.time.processes) if self.clocks else None


def compared(row: Row, before: Evidence, after: Evidence) -> tuple[Row, Fairness]:
    """``row`` with its effects, still without a verdict, and what makes it unfair."""
    found = effect(before.time, after.time)
    fair = fairness(before.conditions, after.conditions)
    cycles = None
    if fair.use_cycles and (old := before.cycles()) is not None and (new := after.cycles()) is not None:
        cycles = effect(old, new)
    return replace(row, change=found.change, effect=found, cycles=cycles, notes=(*row.notes, *fair.notes)), fair


def judged(rows: Iterable[tuple[Row, Fairness | None]], floors: Mapping[str, NoiseFloor]) -> list[Row]:
    """The rows, with the verdict of those that have a fairness, corrected for all of these.

    ``floors`` are by device key.
    """
    given = list(rows)
    entries = [(row, fair, floors.get(row.device_key, NO_FLOOR).threshold) for row, fair in given if fair is not None]
    p_values = [beyond_p_value(_effect(row), threshold) for row, _, threshold in entries]
    found = [
        _verdict(replace(row, p_value=p, threshold=threshold), fair)
        for (row, fair, threshold), p in zip(entries, adjusted(p_values), strict=True)
    ]
    return [*(row for row, fair in given if fair is None), *found]


def _verdict(row: Row, fair: Fairness) -> Row:
    found, threshold = _effect(row), row.threshold
    if row.first_look:
        reason = "a first look of a few samples only; `tuner remeasure` takes more"
        return replace(row, verdict=Verdict.AMBIGUOUS, reason=reason)
    verdict = _direction(found, threshold)
    if verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT) and (row.p_value or 0.0) > FALSE_DISCOVERIES:
        # What this row may err is its share of what all rows together may.
        share = beyond_p_value(found, threshold) / (row.p_value or 1.0)
        return _unsettled(row, "not beyond doubt among so many rows", FALSE_DISCOVERIES * share)
    if verdict is Verdict.AMBIGUOUS:
        return _unsettled(row, f"the interval reaches over the limit of {threshold:.1%}")
    if fair.memory_differs:
        return replace(row, verdict=Verdict.AMBIGUOUS, reason="the memory clock differs; measure both at one clock")
    if fair.use_cycles:
        if row.cycles is None:
            return replace(row, verdict=Verdict.AMBIGUOUS, reason="clocks differ; measure both at one clock")
        counted = _direction(row.cycles, threshold)
        if counted is not verdict:
            reason = f"time says {verdict} ({found.change:+.1%}), cycles say {counted} ({row.cycles.change:+.1%})"
            return replace(row, verdict=Verdict.AMBIGUOUS, reason=f"{reason}: measure both at one clock")
    once = verdict is Verdict.REGRESSION and row.after is not None and len(row.after.measurements) == 1
    return replace(row, verdict=verdict, notes=(*row.notes, _SEEN_ONCE) if once else row.notes)


def _direction(found: Effect, threshold: float) -> Verdict:
    if is_slower(found, threshold):
        return Verdict.REGRESSION
    if is_faster(found, threshold):
        return Verdict.IMPROVEMENT
    return Verdict.SAME if is_same(found, threshold) else Verdict.AMBIGUOUS


def _unsettled(row: Row, reason: str, level: float = 1.0 - CONFIDENCE) -> Row:
    rounds = further_blocks(_effect(row), row.threshold, level)
    if rounds is None or rounds > MOST_ROUNDS:
        return replace(row, verdict=Verdict.AMBIGUOUS, reason=f"{reason}; too close to it for more rounds to settle")
    return replace(
        row, verdict=Verdict.AMBIGUOUS, further_rounds=rounds, reason=f"{reason}; {rounds} more rounds would settle it"
    )


def _effect(row: Row) -> Effect:
    assert row.effect is not None
    return row.effect


def _numbers(recorded: Sequence[int], samples: Samples, *, distinct: bool = False) -> Sequence[int]:
    """``recorded`` where there is one for each sample; else the same, or a ``distinct``, number for each."""
    if len(recorded) == len(samples.us):
        return recorded
    return range(len(samples.us)) if distinct else [0] * len(samples.us)
