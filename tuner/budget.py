"""What a run of a study may use. A pure value."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Seconds kept for the race and the finals out of a time budget: a share of it, within limits.
RESERVE_SHARE, RESERVE_LEAST_S, RESERVE_MOST_S = 0.2, 2.0, 20.0


@dataclass(frozen=True)
class Budget:
    """What a run may use: trials in the study (known ones included), and seconds of wall time. None: no limit."""

    trials: int | None
    seconds: float | None
    started: float

    @property
    def reserve_s(self) -> float:
        """Seconds of the time budget that the end of the study is given."""
        if self.seconds is None:
            return 0.0
        return min(RESERVE_MOST_S, max(RESERVE_LEAST_S, RESERVE_SHARE * self.seconds), 0.5 * self.seconds)

    @property
    def search_deadline(self) -> float:
        """``time.monotonic()`` at which the search ends."""
        return math.inf if self.seconds is None else self.started + self.seconds - self.reserve_s

    @property
    def deadline(self) -> float:
        """``time.monotonic()`` at which the run ends."""
        return math.inf if self.seconds is None else self.started + self.seconds
