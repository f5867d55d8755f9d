"""How much slower one set of samples is than another, and whether that can be said. Pure functions, seeded.

The effect is the difference of the medians of log times: of two stacks no two samples share a round, so nothing is
paired across the points. Limits are bootstrapped over (process, round) blocks, as in ``tuner.deciding``. Sources:
Kalibera and Jones (2013) for effect sizes with intervals; Benjamini and Hochberg (1995) for many rows.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from tuner.statistics import student_t_quantile, student_t_upper_tail

RESAMPLES = 1000
CONFIDENCE = 0.95
FALSE_DISCOVERIES = 0.05
"""The share of false ones that is allowed among the rows that are called slower or faster."""
LEAST_THRESHOLD = 0.02
"""Differences below 2 % are not called regressions, however sure they are."""

Process = Hashable
_BEFORE, _AFTER = 0, 1


@dataclass(frozen=True)
class Blocks:
    """One number a (process, round) block: the log of the time, and the process that it was taken in."""

    logs: npt.NDArray[np.float64]
    processes: tuple[Process, ...]

    @classmethod
    def of(cls, us: Sequence[float], processes: Sequence[Process], rounds: Sequence[Hashable]) -> Blocks:
        """From samples in microseconds. Several samples of one block count as their median."""
        if len({*zip(processes, rounds, strict=True)}) == len(us):
            return cls(np.log(us), tuple(processes))
        by_block: dict[tuple[Process, Hashable], list[float]] = {}
        for sample, process, number in zip(us, processes, rounds, strict=True):
            by_block.setdefault((process, number), []).append(math.log(sample))
        logs = [block[0] if len(block) == 1 else float(np.median(block)) for block in by_block.values()]
        return cls(np.array(logs, dtype=np.float64), tuple(process for process, _ in by_block))

    @property
    def median(self) -> float:
        """The median of the logs."""
        return _median(self.logs.tolist())

    def __len__(self) -> int:
        return len(self.logs)


@dataclass(frozen=True)
class Effect:
    """The time after over the time before, less one (0.03 is 3 % slower), with 95 % limits and the blocks behind it.

    ``error`` is the standard error of the log ratio; infinite, as are the limits, where a side has one block only.
    """

    change: float
    low: float
    high: float
    error: float
    blocks_before: int
    blocks_after: int

    @property
    def log(self) -> float:
        """The log ratio."""
        return math.log1p(self.change)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the limits: those of the smaller side."""
        return min(self.blocks_before, self.blocks_after) - 1


def effect(before: Blocks, after: Blocks, seed: int = 0) -> Effect:
    """The effect of ``after`` over ``before``. Raises ``ValueError`` where a side has no block."""
    if not len(before) or not len(after):
        raise ValueError("an effect needs at least one block on each side")
    centre = after.median - before.median
    error = math.hypot(_error(before, seed, _BEFORE), _error(after, seed, _AFTER))
    n = min(len(before), len(after))
    if not math.isfinite(error):
        return Effect(math.expm1(centre), -1.0, math.inf, error, len(before), len(after))
    reach = student_t_quantile((1.0 + CONFIDENCE) / 2.0, n - 1) * error
    low, high = math.expm1(centre - reach), math.expm1(min(centre + reach, 700.0))
    return Effect(math.expm1(centre), low, high, error, len(before), len(after))


def beyond_p_value(found: Effect, threshold: float) -> float:
    """Two-sided p-value against "the change is within ``threshold`` (0.02: 2 %) either way"."""
    if not math.isfinite(found.error):
        return 1.0
    distance = abs(found.log) - math.log1p(threshold)
    if found.error == 0.0:
        return 0.0 if distance > 0.0 else 1.0
    return min(1.0, 2.0 * student_t_upper_tail(distance / found.error, found.freedom))


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p-values, in the order given."""
    count = len(p_values)
    result = [1.0] * count
    smallest = 1.0
    for rank, place in reversed(list(enumerate(sorted(range(count), key=lambda i: p_values[i]), start=1))):
        smallest = min(smallest, p_values[place] * count / rank)
        result[place] = smallest
    return result


def is_slower(found: Effect, threshold: float) -> bool:
    """Whether the whole interval is above ``threshold``."""
    return found.low > threshold


def is_faster(found: Effect, threshold: float) -> bool:
    """Whether the whole interval is below the inverse of 1 + ``threshold``."""
    return found.high < 1.0 / (1.0 + threshold) - 1.0


def is_same(found: Effect, threshold: float) -> bool:
    """Whether the whole interval is within ``threshold``: equivalence, which is more than "no difference was seen"."""
    return found.low >= 1.0 / (1.0 + threshold) - 1.0 and found.high <= threshold


def further_blocks(found: Effect, threshold: float, level: float = 1.0 - CONFIDENCE) -> int | None:
    """How many more blocks on each side would settle it, were the change what it seems; None where none would.

    The interval has to shrink, with the root of the blocks, until it no longer reaches the nearest limit. ``level`` is
    the chance of error that the interval may have: less than 5 % where many rows share it.
    """
    distance = abs(abs(found.log) - math.log1p(threshold))
    if not math.isfinite(found.error) or distance == 0.0:
        return None
    n = min(found.blocks_before, found.blocks_after)
    reach = student_t_quantile(1.0 - level / 2.0, found.freedom) * found.error
    return max(1, math.ceil(n * (reach / distance) ** 2) - n)


def _error(blocks: Blocks, seed: int, side: int) -> float:
    """Standard error of the median of one side: the bootstrap's or, where processes differ by more, that of theirs."""
    n = len(blocks)
    if n < 2:
        return math.inf
    low, high = _median_ranks(n, seed, side)
    ordered = np.sort(blocks.logs)
    bootstrapped = float(np.std((ordered[low] + ordered[high]) / 2.0)) * math.sqrt(n / (n - 1))
    by_process: dict[Process, list[float]] = {}
    for log, process in zip(blocks.logs.tolist(), blocks.processes, strict=True):
        by_process.setdefault(process, []).append(log)
    if len(by_process) < 2:
        return bootstrapped
    middles = [_median(logs) for logs in by_process.values()]
    mean = sum(middles) / len(middles)
    spread = math.sqrt(sum((m - mean) ** 2 for m in middles) / (len(middles) - 1))
    return max(bootstrapped, spread / math.sqrt(len(middles)))


@cache
def _median_ranks(n: int, seed: int, side: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each resample of ``n`` blocks, the ranks of its two middle blocks.

    A resample's median depends on which ranks were drawn only, so that the draws are made and sorted once for all rows.
    """
    draws = np.random.default_rng([seed, side, n]).integers(0, n, (RESAMPLES, n))
    draws.sort(axis=1)
    return draws[:, (n - 1) // 2], draws[:, n // 2]


def _median(values: list[float]) -> float:
    # numpy's takes longer for a few numbers, and there are thousands of rows.
    ordered, n = sorted(values), len(values)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2.0
