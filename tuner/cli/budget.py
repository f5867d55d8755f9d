"""How long a run may take, as written on the command line."""

from __future__ import annotations

import math
import re

from tuner.errors import UsageError

_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
MOST_TRIALS = 10**9


def read_trials(trials: int | None) -> int | None:
    """A number of trials. Raises ``UsageError`` unless it is at least 1, and a number that anyone can run."""
    if trials is not None and not 1 <= trials <= MOST_TRIALS:
        raise UsageError(f"--trials must be between 1 and {MOST_TRIALS}, but got {trials}")
    return trials


def read_gpus(text: str | None) -> list[int] | None:
    """The numbers of ``0,1``. Raises ``UsageError`` where one is none."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", word) for word in words):
        raise UsageError(f"--gpus: cannot read {text!r}; write numbers of GPUs such as 0,1")
    return [int(word) for word in words]


def read_seconds(text: str | None, option: str = "--time") -> float | None:
    """Seconds from ``90``, ``90s``, ``5m``, ``1h`` or ``1h30m``. Raises ``UsageError`` unless positive and finite."""
    if text is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?(?:[eE]\+?\d+)?)\s*([a-z]*)", text.strip().lower())
    whole = re.fullmatch(r"(?:\d+(?:\.\d+)?(?:e\+?\d+)?\s*[a-z]*\s*)+", text.strip().lower())
    if not whole or any(unit not in _UNITS for _, unit in parts):
        raise UsageError(f"{option}: cannot read {text!r}; write seconds, or such as 90s, 5m or 1h30m (more than zero)")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0.0 < seconds < math.inf:
        raise UsageError(f"{option} must be more than zero and finite, but got {text!r}")
    return seconds
