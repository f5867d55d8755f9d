"""What ``@tuner.autotune`` was told, beside the configs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tuner.autotuning.bounds import Tolerance
from tuner.autotuning.hooks import Hooks
from tuner.autotuning.pruning import Pruning
from tuner.autotuning.tuning import Timing
from tuner.errors import AutotuneError
from tuner.search import DEFAULT_SAMPLER, check_sampler


@dataclass(frozen=True)
class Settings:
    """See ``tuner.autotune``. ``db`` None: the default database; ``memory_share``: of the free memory, for copies."""

    key: tuple[str, ...]
    pruning: Pruning = field(default_factory=Pruning)
    hooks: Hooks = field(default_factory=Hooks)
    timing: Timing = field(default_factory=Timing)
    graph: bool = False
    remember: bool = True
    reference: Callable[..., Any] | None = None
    tolerance: Tolerance | None = None
    scratch: tuple[str, ...] = ()
    made_inputs: bool = True
    trials: int = 100
    sampler: str = DEFAULT_SAMPLER
    seed: int = 0
    memory_share: float = 0.4
    db: str | None = None

    def __post_init__(self) -> None:
        check_sampler(self.sampler)
        if self.trials < 1:
            raise AutotuneError(f"trials must be at least 1, but is {self.trials}")
        if not 0.0 < self.memory_share <= 1.0:
            raise AutotuneError(f"memory_share must be above 0 and at most 1, but is {self.memory_share}")
        if self.tolerance is not None and (len(self.tolerance) != 2 or min(self.tolerance) < 0.0):
            raise AutotuneError(f"tolerance must be (relative, absolute), neither negative, but is {self.tolerance}")
        if self.tolerance is not None and self.reference is None:
            raise AutotuneError("tolerance goes with a reference; name the function that gives the expected outputs")
        if self.scratch and self.reference is None:
            raise AutotuneError("scratch goes with a reference; without one nothing is compared")
        for name, value in (("warmup", self.timing.warmup_ms), ("rep", self.timing.rep_ms)):
            if not 0.0 <= value < float("inf"):
                raise AutotuneError(f"{name} must be a number of milliseconds, but is {value}")
