"""What a comparison of two points says. Frozen values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tuner.problem import Problem
from tuner.regression.effect import Effect
from tuner.regression.fairness import Conditions
from tuner.regression.noise import NoiseFloor


class Verdict(StrEnum):
    """What became of a winner, the worst first."""

    WRONG = "wrong"
    NO_LONGER_COMPILES = "no longer compiles"
    NO_LONGER_RUNS = "no longer runs"
    REGRESSION = "regression"
    AMBIGUOUS = "ambiguous"
    MISSING = "missing"
    IMPROVEMENT = "improvement"
    SAME = "same"

    @property
    def broken(self) -> bool:
        """Whether it is of the kinds that outrank any time."""
        return self in (Verdict.WRONG, Verdict.NO_LONGER_COMPILES, Verdict.NO_LONGER_RUNS)


@dataclass(frozen=True)
class Side:
    """What was measured at one point: the median in microseconds over ``blocks`` (process, round) pairs.

    ``measurements`` are the ids in that point's database, ``conditions`` the card while they were taken.
    """

    trial_id: int
    stack: str
    variant_hash: str
    median_us: float
    blocks: int
    protocol: str
    measurements: tuple[int, ...]
    conditions: Conditions


@dataclass(frozen=True)
class Row:
    """One winner of the point before, at both points.

    ``effect`` is in time, ``cycles`` in cycles of the SM clock (only where the clocks differ); both are None where
    a side has no time, and for estimates, which have no spread: those have ``change`` alone. ``change`` is the time
    after over the time before, less one. ``plain_change`` is the plain config's, ``beside_plain`` the winner's over
    that. ``p_value`` is corrected for all rows. ``further_rounds`` on each side would settle what is ambiguous.
    ``first_look``: a side has the search's few samples only, from which no verdict is drawn.
    """

    verdict: Verdict
    problem: Problem
    device_key: str
    device: str
    config: str
    config_key: str
    before: Side | None
    after: Side | None
    change: float | None = None
    effect: Effect | None = None
    cycles: Effect | None = None
    plain_change: float | None = None
    p_value: float | None = None
    threshold: float = 0.0
    further_rounds: int | None = None
    first_look: bool = False
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def beside_plain(self) -> float | None:
        """The winner's change over the plain config's, less one."""
        if self.change is None or self.plain_change is None:
            return None
        return (1.0 + self.change) / (1.0 + self.plain_change) - 1.0

    @property
    def rank(self) -> tuple[int, float, str]:
        """Its place in a list: the worst first."""
        return list(Verdict).index(self.verdict), -(self.change or 0.0), self.problem.label


@dataclass(frozen=True)
class RegressionReport:
    """Every winner of the point before, the worst first.

    ``floors`` is the noise floor of each device by name (with a part of its key where two have one name), ``notes``
    what holds for more than one row. ``estimated``: both points are estimates, and no time is judged.
    """

    before: str
    after: str
    rows: tuple[Row, ...]
    floors: Mapping[str, NoiseFloor]
    notes: tuple[str, ...] = ()
    estimated: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict, the worst first."""
        found = Counter(row.verdict for row in self.rows)
        return {str(verdict): found[verdict] for verdict in Verdict if found[verdict]}

    @property
    def compared(self) -> int:
        """How many rows were judged: all but the missing ones."""
        return sum(row.verdict is not Verdict.MISSING for row in self.rows)

    def worse(self, over: float = 0.0) -> tuple[Row, ...]:
        """The rows that are broken, and the regressions by more than ``over`` (0.03: 3 %)."""
        return tuple(
            row
            for row in self.rows
            if row.verdict.broken or (row.verdict is Verdict.REGRESSION and (row.change or 0.0) > over)
        )
