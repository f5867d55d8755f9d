"""The statistics on simulated samples whose truth is known: false alarms, power, equivalence, many comparisons."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.stored_history import simulated
from tuner.regression.effect import (
    Blocks,
    adjusted,
    beyond_p_value,
    effect,
    further_blocks,
    is_faster,
    is_same,
    is_slower,
)
from tuner.trial import Measurement

THRESHOLD = 0.02


def blocks(m: Measurement) -> Blocks:
    return Blocks.of(m.samples_us, m.process, m.rounds)


def change(size: float, trial: int, **how: float) -> tuple[Blocks, Blocks]:
    return (
        blocks(simulated(50.0, f"before {size} {trial}", **how)),  # type: ignore[arg-type]
        blocks(simulated(50.0 * (1 + size), f"after {size} {trial}", **how)),  # type: ignore[arg-type]
    )


def test_the_effect_is_the_ratio_of_medians_and_the_interval_holds_the_truth_as_often_as_it_says():
    held = 0
    for trial in range(400):
        found = effect(*change(0.05, trial, process_noise=0.0))
        assert found.change == pytest.approx(0.05, abs=0.01)
        held += found.low <= 0.05 <= found.high
    assert held / 400 >= 0.94


def test_two_processes_that_differ_are_few_and_measuring_again_helps():
    def held(processes: int) -> float:
        found = [effect(*change(0.05, t, process_noise=0.003, processes=processes)) for t in range(400)]
        return sum(f.low <= 0.05 <= f.high for f in found) / len(found)

    two, four = held(2), held(4)
    assert 0.85 < two < four
    assert four > 0.9


def test_processes_that_differ_widen_the_interval():
    narrow = effect(*change(0.0, 1, noise=0.001, process_noise=0.0))
    wide = effect(*change(0.0, 1, noise=0.001, process_noise=0.02))
    assert wide.error > 3 * narrow.error


def test_without_a_change_false_alarms_are_rare():
    alarms = same = 0
    for trial in range(1000):
        found = effect(*change(0.0, trial, noise=0.01, process_noise=0.003))
        alarms += is_slower(found, THRESHOLD) or is_faster(found, THRESHOLD)
        same += is_same(found, THRESHOLD)
    assert alarms == 0
    assert same / 1000 > 0.9


def test_a_change_as_large_as_the_limit_is_called_no_more_often_than_the_level():
    called = sum(is_slower(effect(*change(THRESHOLD, trial)), THRESHOLD) for trial in range(1000))
    assert called / 1000 <= 0.03  # one side of 95 %


def test_a_change_of_five_per_cent_is_found_and_so_is_a_gain():
    slower = sum(is_slower(effect(*change(0.05, trial, noise=0.01)), THRESHOLD) for trial in range(300))
    faster = sum(is_faster(effect(*change(-0.05, trial, noise=0.01)), THRESHOLD) for trial in range(300))
    assert slower / 300 > 0.98 and faster / 300 > 0.98


def test_among_a_thousand_rows_few_of_those_called_are_false():
    truth = [0.06 if row % 10 == 0 else 0.0 for row in range(1000)]
    found = [effect(*change(size, row, noise=0.03, process_noise=0.006)) for row, size in enumerate(truth)]
    p_values = adjusted([beyond_p_value(f, THRESHOLD) for f in found])
    called = [size for size, p in zip(truth, p_values, strict=True) if p <= 0.05]
    assert len(called) > 20
    assert sum(size == 0.0 for size in called) / len(called) <= 0.05


def test_the_correction_is_benjamini_and_hochbergs():
    assert adjusted([]) == []
    assert adjusted([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])


def test_the_rounds_that_it_asks_for_settle_it():
    # 3 % with noise of 4 %: 30 blocks are too few to say that it is above 2 %.
    asked, settled = 0, 0
    for trial in range(40):
        found = effect(*change(0.03, trial, noise=0.04, process_noise=0.0))
        more = further_blocks(found, THRESHOLD)
        if is_slower(found, THRESHOLD) or is_same(found, THRESHOLD) or more is None or more > 900:
            continue
        asked += 1
        rounds = math.ceil((30 + more) / 2)
        again = effect(*change(0.03, trial + 1000, noise=0.04, process_noise=0.0, rounds=rounds))
        settled += is_slower(again, THRESHOLD)
    assert asked > 10
    assert settled / asked > 0.4  # it is planned on what was seen, which is off either way


def test_one_sample_says_nothing():
    one = Blocks.of([10.0], [1], [0])
    found = effect(one, blocks(simulated(10.0, 1)))
    assert (found.low, found.high) == (-1.0, math.inf)
    assert beyond_p_value(found, THRESHOLD) == 1.0
    assert further_blocks(found, THRESHOLD) is None
    assert not is_slower(found, THRESHOLD) and not is_same(found, THRESHOLD)


def test_samples_without_any_spread_are_decided_by_their_difference():
    flat = Blocks.of([10.0] * 4, [1, 1, 2, 2], [0, 1, 0, 1])
    slower = Blocks.of([11.0] * 4, [1, 1, 2, 2], [0, 1, 0, 1])
    assert is_same(effect(flat, flat), THRESHOLD)
    assert beyond_p_value(effect(flat, flat), THRESHOLD) == 1.0
    assert is_slower(effect(flat, slower), THRESHOLD)
    assert beyond_p_value(effect(flat, slower), THRESHOLD) < 1e-9


def test_several_samples_of_a_block_count_as_one():
    found = Blocks.of([10.0, 12.0, 11.0, 20.0], [1, 1, 1, 2], [0, 0, 0, 0])
    assert np.exp(found.logs).tolist() == pytest.approx([11.0, 20.0])
    assert found.processes == (1, 2)


def test_the_same_samples_give_the_same_numbers():
    assert effect(*change(0.01, 3)) == effect(*change(0.01, 3))


def test_no_samples_are_an_error():
    with pytest.raises(ValueError, match="at least one block on each side"):
        effect(Blocks.of([], [], []), blocks(simulated(10.0, 1)))
