"""The noise floor of a device: how far repeated measurements of one and the same thing lie apart. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.regression.effect import LEAST_THRESHOLD, Blocks
from tuner.statistics import MAD_TO_SIGMA
from tuner.store.history_records import Repeat

FEWEST_PAIRS = 5
"""With fewer pairs of repeated measurements, the two processes of single measurements are compared."""
_NORMAL_95 = 1.96


@dataclass(frozen=True)
class NoiseFloor:
    """Half the width within which 95 % of repeated measurements agree (0.01: 1 %), and the pairs it was taken from.

    ``basis``: ``repeats`` (measurements at different times), ``processes`` (processes of one measurement) or ``none``.
    """

    half_width: float
    pairs: int
    basis: str

    @property
    def threshold(self) -> float:
        """The smallest change that is called one on this device."""
        return max(LEAST_THRESHOLD, 2.0 * self.half_width)


NO_FLOOR = NoiseFloor(0.0, 0, "none")
UNKNOWN_FLOOR = NoiseFloor(0.025, 0, "none")
"""Where nothing was repeated: sessions on one card, with the same software, have been seen to differ by 2 to 3 %."""


def noise_floors(repeats: Iterable[Repeat], singles: Mapping[str, Sequence[Blocks]]) -> dict[str, NoiseFloor]:
    """The floor of each device, by key. ``singles`` are measurements by device, for devices without repeats.

    Repeats are ordered by time within a trial. The spread is taken robustly about zero: a real change among the
    repeats, which must not hide itself, moves it little.
    """
    pairs: dict[str, list[float]] = {}
    last: dict[tuple[str, int], float] = {}
    for repeat in repeats:
        log = math.log(repeat.median_us)
        place = (repeat.device_key, repeat.trial_id)
        if place in last:
            pairs.setdefault(repeat.device_key, []).append(log - last[place])
        last[place] = log
    floors: dict[str, NoiseFloor] = {}
    for device in pairs.keys() | singles.keys():
        found = pairs.get(device, [])
        if len(found) >= FEWEST_PAIRS:
            floors[device] = NoiseFloor(_half_width(found), len(found), "repeats")
            continue
        within = [gap for blocks in singles.get(device, ()) if (gap := _between_processes(blocks)) is not None]
        if len(within) >= FEWEST_PAIRS:
            # Two measurements average over two processes each, so they agree better by the root of two.
            floors[device] = NoiseFloor(_half_width(within) / math.sqrt(2.0), len(within), "processes")
        else:
            floors[device] = UNKNOWN_FLOOR
    return floors


def _half_width(log_ratios: Sequence[float]) -> float:
    return float(math.expm1(_NORMAL_95 * MAD_TO_SIGMA * float(np.median(np.abs(log_ratios)))))


def _between_processes(blocks: Blocks) -> float | None:
    """The log ratio of the first two processes' medians."""
    by_process: dict[object, list[float]] = {}
    for log, process in zip(blocks.logs.tolist(), blocks.processes, strict=True):
        by_process.setdefault(process, []).append(log)
    if len(by_process) < 2:
        return None
    first, second = list(by_process.values())[:2]
    return float(np.median(second) - np.median(first))
