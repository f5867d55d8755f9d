"""Summaries, races and decisions on made-up and simulated samples."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.deciding import decide
from tuner.racing import (
    fastest,
    is_machine_unstable,
    paired_log_ratios,
    race_survivors,
    slower_p_value,
    unstable_rounds,
    within,
)
from tuner.statistics import (
    median,
    median_interval,
    robust_noise,
    stop_sampling,
    student_t_quantile,
    student_t_upper_tail,
    summarise,
)

POSITIVE = st.floats(min_value=1e-3, max_value=1e6)


def simulate(rng, times, rounds, noise=0.01, drift=0.0, processes=1, heavy=False):
    """Interleaved samples: {name: {(process, round): time}}; drift and process effects are shared within a round."""
    samples = {name: {} for name in times}
    for process in range(processes):
        shift = rng.normal(0.0, 0.01) if processes > 1 else 0.0
        for number in range(rounds):
            shared = math.exp(shift + drift * math.sin(number / 3.0) + drift * number / rounds)
            for name, time in times.items():
                error = rng.standard_t(1.5) if heavy else rng.normal()
                samples[name][(process, number)] = time * shared * math.exp(noise * error)
    return samples


# --- Student's t


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [  # NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2
        (0.975, 1, 12.706),
        (0.99, 3, 4.541),
        (0.975, 5, 2.571),
        (0.99, 7, 2.998),
        (0.95, 10, 1.812),
        (0.99, 15, 2.602),
        (0.999, 30, 3.385),
        (0.975, 100, 1.984),
    ],
)
def test_t_quantiles_are_those_of_the_table(probability, freedom, expected):
    assert student_t_quantile(probability, freedom) == pytest.approx(expected, abs=6e-4)


def test_t_is_symmetric():
    assert student_t_quantile(0.01, 7) == -student_t_quantile(0.99, 7)
    assert student_t_upper_tail(0.0, 4) == pytest.approx(0.5)
    assert student_t_upper_tail(-1.3, 4) == pytest.approx(1.0 - student_t_upper_tail(1.3, 4))


@given(st.floats(min_value=0.001, max_value=0.999), st.integers(min_value=1, max_value=300))
def test_tail_and_quantile_are_inverse(probability, freedom):
    t = student_t_quantile(probability, freedom)
    assert 1.0 - student_t_upper_tail(t, freedom) == pytest.approx(probability, abs=1e-9)


@pytest.mark.parametrize("probability", [0.0, 1.0, -1.0])
def test_a_probability_outside_the_open_unit_interval_is_refused(probability):
    with pytest.raises(ValueError, match="must hold"):
        student_t_quantile(probability, 3)


# --- summaries


def test_the_interval_of_ten_samples_is_second_to_ninth():
    # Conover, table A3: n = 10, p = 0.5: 97.9 % between the 2nd and the 9th
    assert median_interval([10.0, 9, 8, 7, 6, 5, 4, 3, 2, 1]) == (2.0, 9.0)


def test_few_samples_give_their_range():
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert summarise([3.0, 1.0, 2.0]).relative_half_width == math.inf


def test_the_interval_of_many_samples_is_that_of_the_normal_approximation():
    # n/2 -+ 1.96 sqrt(n)/2 of 4000 samples; powers of two beyond 1023 do not fit into a float.
    low, high = median_interval([float(i) for i in range(4000)])
    assert abs(low - (2000 - 62)) <= 1 and abs(high - (2000 + 61)) <= 1


def test_the_interval_covers_the_median_95_times_in_100():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        low, high = median_interval(list(np.exp(rng.standard_t(2, size=25))))
        covered += low <= 1.0 <= high
    assert 0.945 <= covered / 2000 <= 0.985


@given(st.lists(POSITIVE, min_size=1, max_size=60))
def test_the_interval_encloses_the_median(samples):
    low, high = median_interval(samples)
    assert min(samples) <= low <= median(samples) <= high <= max(samples)


def test_noise_ignores_outliers():
    rng = np.random.default_rng(2)
    samples = list(100.0 * (1.0 + 0.02 * rng.normal(size=400)))
    assert robust_noise(samples) == pytest.approx(0.02, rel=0.15)
    assert robust_noise([*samples, *[1e6] * 20]) == pytest.approx(0.02, rel=0.3)


def test_sampling_goes_on_until_the_interval_is_narrow():
    assert not stop_sampling([100.0] * 5, 0.01)
    assert stop_sampling([100.0] * 6, 0.01)
    assert not stop_sampling([100.0, 103.0] * 10, 0.01)
    assert stop_sampling([100.0, 100.5] * 10, 0.01)


def test_no_samples_have_no_median():
    with pytest.raises(ValueError, match="at least one sample"):
        median([])


# --- races


def test_ratios_are_paired_by_round():
    ratios = paired_log_ratios({1: 2.0, 2: 4.0, 5: 1.0}, {2: 2.0, 1: 2.0, 3: 9.0})
    assert list(ratios) == pytest.approx([0.0, math.log(2.0)])


def test_the_p_value_is_that_of_students_t():
    # mean 0.02, standard error 0.005 over 4 rounds: t = 4 with 3 degrees of freedom
    ratios = 0.02 + 0.01 * math.sqrt(3) / 2 * np.array([1.0, 1.0, -1.0, -1.0])
    assert slower_p_value(ratios) == pytest.approx(0.014, abs=2e-4)


def test_a_heavy_tail_is_judged_by_signs():
    ratios = np.array([0.02, 0.021, 0.019, 0.02, 0.022, 0.018, 0.02, 0.021, 0.02, -5.0])
    assert slower_p_value(ratios) == pytest.approx(11 / 1024)


def test_three_rounds_decide_nothing():
    samples = {"a": dict.fromkeys(range(3), 1.0), "b": dict.fromkeys(range(3), 2.0)}
    assert race_survivors(samples).survivors == ("a", "b")


def test_a_clear_loser_is_dropped_after_four_rounds():
    rng = np.random.default_rng(3)
    race = race_survivors(simulate(rng, {"slow": 110.0, "fast": 100.0, "close": 100.5}, 4))
    assert race.leader in ("fast", "close")
    assert "slow" in race.dropped
    assert set(race.survivors) == {"fast", "close"}


def test_the_leader_is_never_dropped_and_noiseless_losers_always_are():
    samples = {"a": dict.fromkeys(range(4), 1.0), "b": dict.fromkeys(range(4), 1.001)}
    race = race_survivors(samples)
    assert (race.leader, race.survivors, dict(race.dropped)) == ("a", ("a",), {"b": 0.0})
    assert race.settled


def test_the_fastest_is_rarely_dropped_among_equals():
    rng = np.random.default_rng(4)
    dropped = 0
    for _ in range(200):
        race = race_survivors(simulate(rng, {str(i): 100.0 for i in range(8)}, 8, noise=0.02))
        dropped += "0" in race.dropped
    assert dropped <= 6  # 1 % of 200, and three standard deviations


def test_drift_shared_by_a_round_does_not_matter():
    times = {"fast": 100.0, "slow": 104.0}
    still = race_survivors(simulate(np.random.default_rng(5), times, 8))
    drifting = race_survivors(simulate(np.random.default_rng(5), times, 8, drift=0.3))
    assert still.leader == drifting.leader == "fast"
    assert set(still.dropped) == set(drifting.dropped) == {"slow"}
    assert drifting.dropped["slow"] == pytest.approx(still.dropped["slow"])


def test_a_candidate_that_missed_the_slow_rounds_does_not_lead_by_that():
    drift = {n: 1.0 + n for n in range(8)}
    samples = {
        "lucky": {n: 102.0 * drift[n] for n in range(4)},
        "fast": {n: 100.0 * drift[n] for n in range(8)},
        "same": {n: 100.0 * drift[n] for n in range(8)},
    }
    assert fastest(samples) == "fast"


def test_a_race_is_settled_when_all_are_within_the_zone():
    rng = np.random.default_rng(6)
    assert race_survivors(simulate(rng, {"a": 100.0, "b": 100.1}, 32, noise=0.01)).settled
    assert not race_survivors(simulate(rng, {"a": 100.0, "b": 100.1}, 4, noise=0.05)).settled


def test_within_needs_evidence():
    assert not within(np.zeros(3), 0.01)
    assert within(np.zeros(4), 0.01)
    assert not within(np.full(4, 0.02), 0.01)


def test_a_race_of_nobody_is_refused():
    with pytest.raises(ValueError, match="at least one candidate"):
        race_survivors({})


@pytest.mark.parametrize("heavy", [False, True])
def test_two_and_three_microseconds_are_ordered_20_times_of_20(heavy):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        samples = simulate(rng, {"three": 3.0, "two": 2.0}, 16, noise=0.08, drift=0.2, heavy=heavy)
        assert fastest(samples) == "two"
        assert decide(samples).winner == "two"
        assert decide(samples).ties == ("two",)


# --- rounds to discard


def test_a_round_with_a_low_clock_is_discarded():
    clocks = {0: [1980, 1980], 1: [1980, 1700], 2: [1980], 3: [0]}
    assert unstable_rounds(clocks, {}) == {1}


def test_a_round_in_which_the_anchor_moved_is_discarded():
    assert unstable_rounds({}, {0: 100.0, 1: 101.0, 2: 106.5, 3: 94.0, 4: 100.0}) == {2, 3}


def test_more_than_a_fifth_discarded_is_an_unstable_machine():
    assert not is_machine_unstable(6, 30)
    assert is_machine_unstable(7, 30)
    assert not is_machine_unstable(0, 0)


# --- decisions


def test_a_clear_winner_is_named_with_its_margin():
    rng = np.random.default_rng(7)
    samples = simulate(rng, {"a": 100.0, "b": 103.0, "c": 110.0}, 30, processes=2)
    decision = decide(samples, anchor="c")
    assert decision.winner == "a"
    assert decision.ties == ("a",)
    assert decision.blocks == 60
    assert 1.0 < decision.ratios["b"].low < decision.ratios["b"].high < decision.ratios["c"].low
    low, high = decision.ratios["b"].low - 1, decision.ratios["b"].high - 1
    assert decision.verdict == f"a wins by {100 * low:.1f}..{100 * high:.1f} %"


@pytest.mark.parametrize("heavy", [False, True])
def test_the_limits_hold_for_all_finalists_at_once_95_times_in_100(heavy):
    held, studies = 0, 300
    for seed in range(studies):
        rng = np.random.default_rng(seed)
        samples = simulate(rng, {"a": 100.0, "b": 110.0, "c": 120.0}, 15, processes=2, heavy=heavy)
        ratios = decide(samples).ratios
        held += ratios["b"].low <= 1.1 <= ratios["b"].high and ratios["c"].low <= 1.2 <= ratios["c"].high
    assert held / studies >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / studies)


def test_less_than_the_indifference_zone_is_a_tie():
    rng = np.random.default_rng(8)
    decision = decide(simulate(rng, {"a": 100.0, "b": 100.5, "c": 120.0}, 30, processes=2))
    assert set(decision.ties) == {"a", "b"}
    assert decision.verdict.startswith("tie of 2: ")


def test_a_hundred_identical_configs_tie():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        samples = simulate(rng, {f"c{i}": 50.0 for i in range(100)}, 30, noise=0.02, processes=2)
        decision = decide(samples, anchor="c0", control="c1")
        assert len(decision.ties) == 99  # the control is no candidate
        assert decision.verdict.startswith("tie of 99: ")


def test_shared_drift_does_not_change_the_decision():
    times = {"a": 100.0, "b": 102.5, "c": 103.0}
    still = decide(simulate(np.random.default_rng(9), times, 30, processes=2))
    drifting = decide(simulate(np.random.default_rng(9), times, 30, drift=0.5, processes=2))
    assert drifting.winner == still.winner == "a"
    assert drifting.ties == still.ties
    assert drifting.ratios["b"].ratio == pytest.approx(still.ratios["b"].ratio)


def test_heavy_tailed_noise_neither_hides_a_winner_nor_invents_one():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        real = decide(simulate(rng, {"a": 100.0, "b": 106.0}, 30, noise=0.01, processes=2, heavy=True))
        assert (real.winner, real.ties) == ("a", ("a",))
        none = decide(simulate(rng, {"a": 100.0, "b": 100.0}, 30, noise=0.01, processes=2, heavy=True))
        assert set(none.ties) == {"a", "b"}


def test_an_anchor_that_differs_from_itself_spoils_the_noise_model():
    rng = np.random.default_rng(10)
    samples = simulate(rng, {"a": 100.0, "anchor": 110.0, "again": 113.0}, 30, processes=2)
    decision = decide(samples, anchor="anchor", control="again")
    assert not decision.noise_model_ok
    assert decision.verdict.startswith("not decided: the anchor, entered twice, differs from itself by ")
    assert "again" not in decision.ratios


def test_an_anchor_that_agrees_with_itself_does_not_in_199_of_200_studies():
    spoilt = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        samples = simulate(rng, {"a": 100.0, "anchor": 110.0, "again": 110.0}, 15, noise=0.015, processes=2)
        spoilt += not decide(samples, anchor="anchor", control="again").noise_model_ok
    assert spoilt <= 6


def test_the_winner_is_the_fastest_against_the_anchor_of_the_same_block():
    # "often" is faster in three blocks of five by 10 %, but its median time is worse than that of "seldom"
    samples = {
        "anchor": {0: 10.0, 1: 20.0, 2: 30.0, 3: 40.0, 4: 50.0},
        "often": {0: 9.0, 1: 18.0, 2: 33.0, 3: 36.0, 4: 55.0},
        "seldom": {0: 9.9, 1: 19.8, 2: 29.7, 3: 39.6, 4: 49.5},
    }
    assert decide(samples, anchor="anchor").winner == "often"


def test_a_decision_is_the_same_every_time():
    samples = simulate(np.random.default_rng(11), {"a": 100.0, "b": 101.0}, 20)
    assert decide(samples) == decide(samples)


def test_only_blocks_that_all_have_are_used():
    samples = {"a": {(0, n): 1.0 for n in range(6)}, "b": {(0, n): 2.0 for n in range(3, 9)}}
    assert decide(samples).blocks == 3


def test_labels_are_used_in_the_verdict():
    samples = {"k1": {0: 1.0, 1: 1.0}, "k2": {0: 2.0, 1: 2.0}}
    assert decide(samples, labels={"k1": "BLOCK=64"}).verdict == "BLOCK=64 wins by 100.0..100.0 %"


def test_a_single_finalist_wins_alone():
    assert decide({"a": {0: 1.0, 1: 1.1}}).verdict == "a is the only finalist"


def test_too_few_common_blocks_are_refused():
    with pytest.raises(ValueError, match="at least two blocks"):
        decide({"a": {0: 1.0, 1: 1.0}, "b": {1: 1.0}})


def test_an_unknown_anchor_is_refused():
    with pytest.raises(ValueError, match="not among the finalists: z"):
        decide({"a": {0: 1.0, 1: 1.0}}, anchor="z")
