"""Noise floors, conditions and verdicts, with simulated samples whose truth is known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.stored_history import H200, problem, simulated
from tuner.regression.effect import Blocks
from tuner.regression.fairness import Conditions, fairness
from tuner.regression.judging import Evidence, compared, judged
from tuner.regression.noise import NoiseFloor, noise_floors
from tuner.regression.report import Row, Verdict
from tuner.store.history_records import Repeat, Samples
from tuner.trial import Measurement


def samples(m: Measurement) -> Samples:
    return Samples(
        m.samples_us, m.rounds, m.process,
        tuple(float(s.sm_clock_mhz) for s in m.states), tuple(float(s.memory_clock_mhz) for s in m.states),
        tuple(s.throttle_reasons for s in m.states),
    )  # fmt: skip


def evidence(*measurements: Measurement) -> Evidence:
    return Evidence.of({number: samples(m) for number, m in enumerate(measurements)})


def bare(cols: int = 1024) -> Row:
    return Row(Verdict.AMBIGUOUS, problem(cols), H200.key, H200.name, "template=online", "k", None, None)


def verdict(before: Evidence, after: Evidence, floor: NoiseFloor | None = None) -> Row:
    (row,) = judged([compared(bare(), before, after)], {H200.key: floor} if floor else {})
    return row


# the noise floor


def test_the_floor_comes_from_repeated_measurements():
    noise = random.Random(1)
    repeats = [Repeat("d", trial, 50.0 * (1 + noise.gauss(0, 0.01))) for trial in range(200) for _ in range(2)]
    floor = noise_floors(repeats, {})["d"]
    assert (floor.basis, floor.pairs) == ("repeats", 200)
    assert floor.half_width == pytest.approx(1.96 * 0.01 * 2**0.5, rel=0.2)
    assert floor.threshold == 2 * floor.half_width


def test_a_real_change_among_the_repeats_does_not_hide_itself():
    noise = random.Random(2)
    quiet = [Repeat("d", t, 50.0 * (1 + noise.gauss(0, 0.003))) for t in range(90) for _ in range(2)]
    moved = [Repeat("d", t, us) for t in range(90, 100) for us in (50.0, 60.0)]
    assert noise_floors([*quiet, *moved], {})["d"].threshold == pytest.approx(0.02, abs=0.006)


def test_without_repeats_processes_are_compared_and_without_those_five_per_cent_is_the_limit():
    blocks = [
        Blocks.of(m.samples_us, m.process, m.rounds)
        for m in (simulated(50.0, seed, process_noise=0.01) for seed in range(60))
    ]
    floor = noise_floors([], {"d": blocks})["d"]
    assert floor.basis == "processes"
    assert floor.half_width == pytest.approx(1.96 * 0.01, rel=0.4)
    few = noise_floors([], {"d": blocks[:2]})["d"]
    assert (few.basis, few.threshold) == ("none", 0.05)


# conditions


def test_like_conditions_have_nothing_to_say():
    same = Conditions.of([samples(simulated(50.0, 1))])
    assert fairness(same, same) == type(fairness(same, same))(False, False, ())


@pytest.mark.parametrize(
    ("before", "after", "cycles", "memory", "said"),
    [
        ({}, {"clock": 1755}, True, False, "SM clock 1980 -> 1755 MHz (-11.4%)"),
        ({}, {"memory_clock": 2619}, False, True, "memory clock 3201 -> 2619 MHz (-18.2%)"),
        ({}, {"clock": (1980, 1980, 1700)}, True, False, "after: the SM clock wandered from 1700 to 1980 MHz"),
        ({}, {"throttles": ("sw_power_cap",)}, False, False, "(sw_power_cap) in 0% of the rounds before, 100% after"),
        ({"throttles": ("hw_thermal",)}, {"throttles": ("hw_thermal",)}, False, False, "throttled (hw_thermal)"),
        ({}, {"clock": 0}, False, False, "no clocks were recorded"),
    ],
)  # fmt: skip
def test_unlike_conditions_are_said(before, after, cycles, memory, said):
    found = fairness(
        Conditions.of([samples(simulated(50.0, 1, **before))]), Conditions.of([samples(simulated(50.0, 2, **after))])
    )
    assert (found.use_cycles, found.memory_differs) == (cycles, memory)
    assert any(said in note for note in found.notes)


def test_a_power_cap_on_both_sides_is_how_the_card_runs():
    capped = Conditions.of([samples(simulated(50.0, 1, throttles=("sw_power_cap",)))])
    assert fairness(capped, capped).notes == ()


# verdicts


@pytest.mark.parametrize(
    ("change", "expected"),
    [(0.05, Verdict.REGRESSION), (-0.05, Verdict.IMPROVEMENT), (0.0, Verdict.SAME), (0.02, Verdict.AMBIGUOUS)],
)
def test_a_change_is_called_what_it_is(change, expected):
    row = verdict(evidence(simulated(50.0, 5)), evidence(simulated(50.0 * (1 + change), 6)))
    assert row.verdict is expected
    assert row.change == pytest.approx(change, abs=0.01)


def test_what_is_ambiguous_says_how_many_rounds_would_settle_it():
    row = verdict(evidence(simulated(50.0, 11, noise=0.03)), evidence(simulated(51.7, 12, noise=0.03)))
    assert row.verdict is Verdict.AMBIGUOUS
    assert row.further_rounds and f"{row.further_rounds} more rounds would settle it" in row.reason


def test_a_noisy_device_needs_a_larger_change():
    before, after = evidence(simulated(50.0, 1)), evidence(simulated(52.5, 2))
    assert verdict(before, after).verdict is Verdict.REGRESSION
    noisy = verdict(before, after, NoiseFloor(0.04, 50, "repeats"))
    assert (noisy.verdict, noisy.threshold) == (Verdict.SAME, 0.08)


def test_a_slower_clock_is_no_regression_of_the_kernel():
    # The kernel takes the same cycles; the card ran 10 % slower.
    row = verdict(evidence(simulated(50.0, 1)), evidence(simulated(50.0 / 0.9, 2, clock=1782)))
    assert row.verdict is Verdict.AMBIGUOUS
    assert row.reason.startswith("time says regression (+11.") and "cycles say same" in row.reason
    assert any("SM clock 1980 -> 1782 MHz" in note for note in row.notes)


def test_slower_in_time_and_in_cycles_is_a_regression_at_any_clock():
    row = verdict(evidence(simulated(50.0, 1)), evidence(simulated(70.0, 2, clock=1782)))
    assert row.verdict is Verdict.REGRESSION
    assert row.cycles is not None and row.cycles.change == pytest.approx(0.26, abs=0.01)


def test_a_faster_clock_does_not_hide_a_regression():
    row = verdict(evidence(simulated(50.0, 1, clock=1782)), evidence(simulated(50.0, 2)))
    assert row.verdict is Verdict.AMBIGUOUS and "time says same" in row.reason


def test_clocks_that_drift_within_a_run_are_flagged():
    row = verdict(evidence(simulated(50.0, 1)), evidence(simulated(53.0, 2, clock=tuple(range(1980, 1400, -40)))))
    assert any("wandered" in note for note in row.notes)
    assert row.verdict is Verdict.AMBIGUOUS


def test_another_memory_clock_leaves_it_open():
    row = verdict(evidence(simulated(50.0, 1)), evidence(simulated(60.0, 2, memory_clock=2619)))
    assert row.verdict is Verdict.AMBIGUOUS and "memory clock differs" in row.reason


def test_the_first_look_of_a_search_is_no_verdict():
    row = replace(bare(), first_look=True)
    (row,) = judged([compared(row, evidence(simulated(50.0, 1)), evidence(simulated(90.0, 2, rounds=3)))], {})
    assert row.verdict is Verdict.AMBIGUOUS and "a first look of a few samples only" in row.reason


def test_measuring_again_narrows_the_interval():
    before = evidence(simulated(50.0, 21, noise=0.03), simulated(50.0, 22, noise=0.03))
    assert len(before.time) == 60 and len(set(before.time.processes)) == 4


def test_a_thousand_unchanged_rows_give_no_alarm_and_changed_ones_are_found():
    pending, truth = [], []
    for n in range(600):
        change = 0.06 if n % 12 == 0 else 0.0
        truth.append(change)
        before = evidence(simulated(50.0, f"b{n}", session_noise=0.003))
        pending.append(
            compared(bare(n), before, evidence(simulated(50.0 * (1 + change), f"a{n}", session_noise=0.003)))
        )
    rows = judged(pending, {H200.key: NoiseFloor(0.009, 100, "repeats")})
    called = [change for change, row in zip(truth, rows, strict=True) if row.verdict is Verdict.REGRESSION]
    assert 0.0 not in called
    assert len(called) / truth.count(0.06) > 0.95
    assert not any(row.verdict is Verdict.IMPROVEMENT for row in rows)
