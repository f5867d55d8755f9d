"""Who gets the next turn, where several studies share one budget of time."""

from __future__ import annotations

from dataclasses import replace

from tuner.time_sharing import Standing, next_turn, turn_seconds

PLAIN = Standing(gain=0.02, seconds=10.0, results=20, best_us=50.0, calls=None, has_floor=True)


def test_each_problem_has_its_plain_configs_before_any_has_more():
    assert next_turn([replace(PLAIN, gain=0.9), replace(PLAIN, gain=0.0, has_floor=False)]) == 1


def test_the_turn_goes_to_the_largest_expected_gain_a_second():
    assert next_turn([PLAIN, replace(PLAIN, gain=0.03)]) == 1
    assert next_turn([PLAIN, replace(PLAIN, gain=0.03, results=10)]) == 0  # a config takes twice as long there
    assert PLAIN.rate == 0.02 * 20 / 10.0


def test_without_counts_every_problem_is_worth_the_same_and_with_them_the_time_that_a_program_spends():
    long, short = replace(PLAIN, best_us=5000.0), replace(PLAIN, gain=0.03, best_us=5.0)
    assert next_turn([long, short]) == 1
    assert next_turn([replace(long, calls=1), replace(short, calls=1)]) == 0
    assert next_turn([replace(long, calls=1), replace(short, calls=700)]) == 1


def test_where_no_model_tells_the_one_with_the_least_time_for_its_weight_goes_first():
    unknown = replace(PLAIN, gain=None)
    assert next_turn([replace(PLAIN, gain=0.9), unknown]) == 1
    assert next_turn([unknown, replace(unknown, seconds=9.0)]) == 1
    assert next_turn([replace(unknown, calls=100), replace(unknown, seconds=9.0, calls=1)]) == 0


def test_a_turn_is_an_eighth_of_an_equal_share_and_no_shorter_than_three_seconds():
    assert turn_seconds(3600.0, 4) == 112.5
    assert turn_seconds(60.0, 4) == 3.0
    assert turn_seconds(60.0, 4, set_up_s=2.0) == 10.0
