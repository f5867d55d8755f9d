from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from tuner.search.choosing import Chooser, Seen

GRID = np.array(list(product(np.linspace(0, 1, 12), repeat=2)), dtype=np.float32)
LOGS = 4.0 * np.square(GRID.astype(np.float64) - [0.727, 0.273]).sum(axis=1)  # best: rank 8 and rank 3
BEST = 8 * 12 + 3


def search(tries: int, fails=lambda row: False, seed: int = 0) -> tuple[list[int], Chooser, Seen, np.ndarray]:
    chooser, free = Chooser(GRID, np.random.default_rng(seed)), np.ones(len(GRID), dtype=bool)
    rows: list[int] = []
    logs: list[float] = []
    for _ in range(tries):
        row = chooser.choose(Seen(rows, logs), free)
        assert free[row]
        free[row] = False
        rows.append(row)
        logs.append(math.nan if fails(row) else float(LOGS[row]))
    return rows, chooser, Seen(rows, logs), free


@pytest.mark.parametrize("seed", range(3))
def test_the_best_of_144_is_found_in_20(seed):
    assert BEST in search(20, seed=seed)[0]


def test_the_first_rows_are_spread_over_the_space():
    rows, *_ = search(6)
    assert np.std(GRID[rows], axis=0).min() > 0.2


def test_every_row_is_chosen_once():
    assert sorted(search(len(GRID))[0]) == list(range(len(GRID)))


@pytest.mark.parametrize("seed", range(3))
def test_what_fails_is_turned_away_from(seed):
    """Nothing works in one half of the space; without learning, 7 of 14 would go there."""
    rows, *_ = search(20, fails=lambda row: GRID[row, 0] > 0.5, seed=seed)
    assert sum(GRID[row, 0] > 0.5 for row in rows[6:]) <= 3


def test_rows_in_flight_are_spread_out():
    _, chooser, seen, free = search(12)
    pending: list[int] = []
    for _ in range(6):
        row = chooser.choose(Seen(seen.rows, seen.logs, pending), free)
        free[row] = False
        pending.append(row)
    assert len(set(pending)) == 6
    apart = np.square(GRID[pending][:, None] - GRID[pending][None]).sum(axis=2)
    assert np.sqrt(apart.max()) > 0.3


def test_where_everything_failed_so_far_or_all_is_equal_it_still_chooses():
    assert len(set(search(20, fails=lambda row: True)[0])) == 20
    chooser = Chooser(GRID, np.random.default_rng(0))
    free = np.ones(len(GRID), dtype=bool)
    free[:10] = False
    assert chooser.choose(Seen(list(range(10)), [1.0] * 10), free) >= 10


def test_the_chance_of_better_is_high_in_the_beginning_and_small_once_the_best_is_found():
    _, early, seen, free = search(8, seed=1)
    assert early.chance_of_better(seen, free) > 0.2
    _, late, seen, free = search(60, seed=1)
    assert late.chance_of_better(seen, free) < 0.02


def test_without_a_time_anything_may_be_better_and_without_a_free_row_nothing():
    chooser = Chooser(GRID, np.random.default_rng(0))
    assert chooser.chance_of_better(Seen([1], [math.nan]), np.ones(len(GRID), dtype=bool)) == 1.0
    assert chooser.chance_of_better(Seen([1], [2.0]), np.zeros(len(GRID), dtype=bool)) == 0.0


def test_what_the_next_row_is_expected_to_gain_is_known_with_a_model_and_shrinks_as_the_best_is_found():
    assert search(6)[1].expected_gain is None  # spread over the space, without a model
    early, late = search(9)[1].expected_gain, search(60)[1].expected_gain
    assert early is not None and late is not None
    assert early > 0.02 > 10.0 * late > 0.0
