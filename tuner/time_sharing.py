"""Which of several studies gets the next turn, where all share one budget of time. Pure values.

The rule: the turn goes where a second of search is worth most. What the next config of a study is expected to gain is
its sampler's expected improvement, a share of the best time (Jones, Schonlau and Welch, 1998); divided by the seconds
that a config has taken, it is a rate. Where a program's calls were counted, a share of a kernel's time is worth the
time that the program spends in that kernel: calls times the best time so far. Where nothing was counted, every problem
is worth the same: a list of shapes says that each is to be fast, not that the long ones are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

TURN_S = 3.0
_TURNS_EACH, _SET_UPS = 8, 5.0
"""Of an equal share of the budget, so many turns; but no turn is shorter than ``TURN_S``, or than so many times what it
takes to set up the GPU for it."""


@dataclass(frozen=True)
class Standing:
    """How a study stands. ``gain``: the share of its best time that the next config is expected to save, None where no
    model tells; ``seconds`` and ``results`` of its turns so far; ``best_us``: None where nothing was timed; ``calls``:
    how often a program runs the problem, None where that was not counted. ``has_floor``: its plain configs have ended.
    """

    gain: float | None
    seconds: float
    results: int
    best_us: float | None
    calls: int | None
    has_floor: bool

    @property
    def weight(self) -> float:
        """What a share of its time is worth: the microseconds that the counted calls take, or 1."""
        return 1.0 if self.calls is None else self.calls * (self.best_us or 1.0)

    @property
    def rate(self) -> float:
        """What a second of its search is expected to save; infinite where that is not known."""
        if self.gain is None or not self.results or not self.seconds:
            return math.inf
        return self.weight * self.gain * self.results / self.seconds


def next_turn(standings: Sequence[Standing]) -> int:
    """The place of the study that gets the next turn.

    First those whose plain configs have not ended, in order: each problem has them, whatever it promises. Then those of
    which no model tells anything yet, the one with the least time for its weight before the others; then the largest
    rate. Raises ``ValueError`` where there is none.
    """
    for place, standing in enumerate(standings):
        if not standing.has_floor:
            return place
    return min(range(len(standings)), key=lambda at: _order(standings[at]))


def turn_seconds(total_s: float, problems: int, set_up_s: float = 0.0) -> float:
    """How long a turn takes, of a budget of ``total_s`` seconds for so many problems; ``set_up_s``: to begin one."""
    return max(TURN_S, total_s / (_TURNS_EACH * problems), _SET_UPS * set_up_s)


def _order(standing: Standing) -> tuple[float, float]:
    return -standing.rate, standing.seconds / standing.weight
