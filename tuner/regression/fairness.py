"""Whether two sets of samples were taken under like conditions: clocks and throttling. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.store.history_records import Samples

CLOCK_SHIFT = 0.01
"""Medians of the SM clock that differ by more make times incomparable; cycles are then looked at too."""
CLOCK_SPREAD = 0.05
"""A clock whose middle 80 % spread over more than this was not steady."""
THROTTLE_SHARE = 0.20
"""A throttle reason in force for this share of the rounds is said."""
SLOWING = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
"""Reasons that make any measurement suspect. A power cap is how a large card normally runs under load."""


@dataclass(frozen=True)
class Conditions:
    """The card over the rounds of one side: clocks in MHz (0: not read), and the share of rounds of each reason."""

    sm_clock: float
    sm_clock_low: float
    sm_clock_high: float
    memory_clock: float
    throttles: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, samples: Sequence[Samples]) -> Conditions:
        """The conditions of a side's measurements together."""
        sm = sorted(clock for s in samples for clock in s.sm_clocks if clock > 0)
        memory = sorted(clock for s in samples for clock in s.memory_clocks if clock > 0)
        reasons = Counter(reasons for s in samples for reasons in s.throttles)
        rounds = max(1, reasons.total())
        names = {name for found in reasons for name in found}
        shares = tuple((name, sum(n for f, n in reasons.items() if name in f) / rounds) for name in sorted(names))
        return cls(_at(sm, 0.5), _at(sm, 0.1), _at(sm, 0.9), _at(memory, 0.5), shares)

    @property
    def steady(self) -> bool:
        """Whether the clock kept to its median; True where it was not read."""
        return self.sm_clock == 0.0 or (self.sm_clock_high - self.sm_clock_low) / self.sm_clock <= CLOCK_SPREAD


@dataclass(frozen=True)
class Fairness:
    """What makes a comparison unfair. ``use_cycles``: SM clocks differ or wandered, so cycles must agree with times.

    ``memory_differs``: the memory clock differs, which no count of SM cycles makes up for. ``notes`` say all of it.
    """

    use_cycles: bool
    memory_differs: bool
    notes: tuple[str, ...]


def fairness(before: Conditions, after: Conditions) -> Fairness:
    """Compare the conditions of two sides."""
    notes: list[str] = []
    use_cycles = memory_differs = False
    if before.sm_clock and after.sm_clock:
        shift = after.sm_clock / before.sm_clock - 1.0
        if abs(shift) > CLOCK_SHIFT:
            use_cycles = True
            notes.append(f"SM clock {before.sm_clock:.0f} -> {after.sm_clock:.0f} MHz ({shift:+.1%})")
    else:
        notes.append("no clocks were recorded: whether the comparison is fair is not known")
    for name, side in (("before", before), ("after", after)):
        if not side.steady:
            use_cycles = True
            notes.append(f"{name}: the SM clock wandered from {side.sm_clock_low:.0f} to {side.sm_clock_high:.0f} MHz")
    if before.memory_clock and after.memory_clock:
        shift = after.memory_clock / before.memory_clock - 1.0
        if abs(shift) > CLOCK_SHIFT:
            memory_differs = True
            notes.append(f"memory clock {before.memory_clock:.0f} -> {after.memory_clock:.0f} MHz ({shift:+.1%})")
    old, new = dict(before.throttles), dict(after.throttles)
    for reason in sorted(old.keys() | new.keys()):
        was, is_now = old.get(reason, 0.0), new.get(reason, 0.0)
        slowed = reason in SLOWING and max(was, is_now) >= THROTTLE_SHARE
        if slowed or abs(is_now - was) >= THROTTLE_SHARE:
            notes.append(f"throttled ({reason}) in {was:.0%} of the rounds before, {is_now:.0%} after")
    return Fairness(use_cycles, memory_differs, tuple(notes))


def _at(ordered: Sequence[float], share: float) -> float:
    """The value with ``share`` of the values below it; 0 where there are none."""
    return ordered[round(share * (len(ordered) - 1))] if ordered else 0.0
