"""Blocked racing: which candidates may still be the fastest, from interleaved rounds. Pure functions.

Every surviving candidate is timed once a round, so that what drifts (clocks, temperature, neighbours) is shared within
a round and cancels in the ratio of two candidates of that round. Sources: F-Race (Birattari et al. 2002) for the
scheme; Hsu, Multiple Comparisons (1996), chapter 4, for comparing each with the best seen; Holm (1979) for many tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.statistics import MAD_TO_SIGMA, student_t_quantile, student_t_upper_tail

Round = Any
Rounds = Mapping[Round, float]
"""One candidate's samples by round: a number, or (process, number)."""

FEWEST_ROUNDS = 4
HEAVY_TAIL = 6.0
"""A log-ratio this many robust standard deviations off the median marks a heavy tail: the sign test decides then."""

CLOCK_FLOOR, ANCHOR_DRIFT, UNSTABLE_SHARE = 0.90, 0.05, 0.20


@dataclass(frozen=True)
class Race:
    """The state of a race after some rounds.

    ``survivors`` include the ``leader``, in the order given; ``dropped`` has each loser's p-value. ``settled``: all
    survivors are within the indifference zone of the leader, so that more rounds would only order ties.
    """

    leader: str
    survivors: tuple[str, ...]
    dropped: Mapping[str, float]
    settled: bool


def race_survivors(samples: Mapping[str, Rounds], level: float = 0.01, indifference: float = 0.01) -> Race:
    """Drop the candidates that are slower than the leader: paired log-ratio above 0, one-sided, Holm over all.

    ``level`` is the chance that a candidate as fast as the fastest is dropped (0.01: a 99 % limit). Candidates with
    fewer than ``FEWEST_ROUNDS`` rounds in common with the leader are kept. Raises ``ValueError`` without any.
    """
    if not samples:
        raise ValueError("a race needs at least one candidate")
    leader = fastest(samples)
    others = [name for name in samples if name != leader]
    ratios = {name: paired_log_ratios(samples[name], samples[leader]) for name in others}
    p_values = {name: slower_p_value(r) for name, r in ratios.items()}
    dropped: dict[str, float] = {}
    for step, name in enumerate(sorted(others, key=lambda n: p_values[n])):
        if p_values[name] > level / (len(others) - step):
            break
        dropped[name] = p_values[name]
    survivors = tuple(name for name in samples if name not in dropped)
    settled = all(within(ratios[name], indifference) for name in survivors if name != leader)
    return Race(leader, survivors, dropped, settled)


def fastest(samples: Mapping[str, Rounds]) -> str:
    """The candidate with the smallest median of log times, each relative to its round's median over the candidates."""
    by_round: dict[Round, list[float]] = {}
    for rounds in samples.values():
        for number, sample in rounds.items():
            by_round.setdefault(number, []).append(math.log(sample))
    centre = {number: float(np.median(logs)) for number, logs in by_round.items()}
    # A candidate that missed rounds is judged by those that it has; one without any cannot lead.
    scores = {
        name: float(np.median([math.log(s) - centre[n] for n, s in rounds.items()])) if rounds else math.inf
        for name, rounds in samples.items()
    }
    return min(samples, key=lambda name: scores[name])


def paired_log_ratios(candidate: Rounds, reference: Rounds) -> npt.NDArray[np.float64]:
    """log(candidate / reference) of every round that has both, in the candidate's order."""
    return np.array([math.log(candidate[n] / reference[n]) for n in candidate if n in reference], dtype=np.float64)


def slower_p_value(log_ratios: npt.NDArray[np.float64]) -> float:
    """One-sided p-value against "not slower": Student's t on the rounds, or the sign test where a tail is heavy."""
    n = len(log_ratios)
    if n < FEWEST_ROUNDS:
        return 1.0
    if _is_heavy_tailed(log_ratios):
        slower, moved = int(np.sum(log_ratios > 0.0)), int(np.sum(log_ratios != 0.0))
        return sum(math.comb(moved, k) for k in range(slower, moved + 1)) / 2.0**moved if moved else 1.0
    mean, error = float(np.mean(log_ratios)), float(np.std(log_ratios, ddof=1)) / math.sqrt(n)
    if error == 0.0:
        return 0.0 if mean > 0.0 else 1.0
    return student_t_upper_tail(mean / error, n - 1)


def within(log_ratios: npt.NDArray[np.float64], indifference: float, confidence: float = 0.95) -> bool:
    """Whether the true ratio is below 1 + ``indifference`` with one-sided ``confidence``."""
    n = len(log_ratios)
    if n < FEWEST_ROUNDS:
        return False
    if _is_heavy_tailed(log_ratios):
        below = int(np.sum(log_ratios < math.log1p(indifference)))
        return sum(math.comb(n, k) for k in range(below, n + 1)) / 2.0**n <= 1.0 - confidence
    error = float(np.std(log_ratios, ddof=1)) / math.sqrt(n)
    limit = float(np.mean(log_ratios)) + student_t_quantile(confidence, n - 1) * error
    return limit < math.log1p(indifference)


def unstable_rounds(clocks_mhz: Mapping[Round, Sequence[float]], anchor: Rounds) -> frozenset[Round]:
    """Rounds to discard: an SM clock below 90 % of the run's median, or an anchor time that moved by more than 5 %.

    A clock of 0 was not read and is ignored. Times are compared with the anchor's median over the run.
    """
    read = [c for clocks in clocks_mhz.values() for c in clocks if c > 0]
    floor = CLOCK_FLOOR * float(np.median(read)) if read else 0.0
    slow = {number for number, clocks in clocks_mhz.items() if any(0 < c < floor for c in clocks)}
    if anchor:
        usual = float(np.median(list(anchor.values())))
        slow |= {number for number, sample in anchor.items() if abs(sample / usual - 1.0) > ANCHOR_DRIFT}
    return frozenset(slow)


def is_machine_unstable(discarded: int, rounds: int) -> bool:
    """Whether more than a fifth of the rounds had to be discarded, so that the run should be given up."""
    return rounds > 0 and discarded > UNSTABLE_SHARE * rounds


def _is_heavy_tailed(log_ratios: npt.NDArray[np.float64]) -> bool:
    # The sign test cannot reject at 1 % with fewer than 7 rounds; with so few, an outlier widens t and that is safe.
    if len(log_ratios) < 8:
        return False
    deviations = np.abs(log_ratios - np.median(log_ratios))
    sigma = MAD_TO_SIGMA * float(np.median(deviations))
    return sigma > 0.0 and float(np.max(deviations)) > HEAVY_TAIL * sigma
