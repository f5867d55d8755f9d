from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest

import tuner
from tuner.cli import run
from tuner.errors import UsageError
from tuner.replay.reading import read_recording
from tuner.replay.report import Found, found_after, found_within, overheads_ms, typical_seconds
from tuner.replay.simulating import Step, simulate
from tuner.search import SAMPLERS

ONE = (Step(math.inf, 1.0, 0.001), Step(8.0, 2.0, 0.003), Step(4.0, 4.0, 0.002))
TWO = (Step(16.0, 1.0, 0.001), Step(4.0, 2.0, 0.004), Step(2.0, 3.0, 0.001))


def test_the_median_and_the_10th_percentile_are_of_best_over_found():
    assert found_after([ONE, TWO], 2.0, 1) == Found(pytest.approx(0.0625), pytest.approx(0.0125))
    assert found_after([ONE, TWO], 2.0, 2) == Found(pytest.approx(0.375), pytest.approx(0.275))
    assert found_after([ONE, TWO], 2.0, 9) == Found(pytest.approx(0.75), pytest.approx(0.55))


def test_a_search_is_also_looked_at_after_recorded_time():
    assert found_within([ONE, TWO], 2.0, 0.5) == Found(0.0, 0.0)
    assert found_within([ONE, TWO], 2.0, 3.5).median == pytest.approx((0.25 + 1.0) / 2)
    assert typical_seconds([ONE, TWO]) == 3.5


def test_the_overhead_is_the_mean_and_the_longest_of_all_suggestions():
    assert overheads_ms([ONE, TWO]) == (pytest.approx(2.0), pytest.approx(4.0))


@pytest.mark.parametrize("sampler", ["auto", "tpe", "random", "exhaustive"])
def test_a_replayed_search_tries_each_config_once_and_ends_at_the_best(recorded, sampler):
    recording = read_recording(recorded)
    steps = simulate(recording, sampler, 1000, 0)
    assert len(steps) == 93
    assert steps[-1].best_us == 2000.0
    assert steps[-1].cost_s == pytest.approx(89 * 2.0 + 4 * 0.5)
    assert all(later.best_us <= earlier.best_us for earlier, later in pairwise(steps))


def test_the_default_sampler_finds_the_best_of_a_toy_in_a_third_of_it(recorded):
    (result,) = tuner.replay_search([recorded], budget=30, seeds=6)
    assert result.by_evaluations[-1].found.tenth == 1.0


def test_replay_says_what_it_found_as_json(recorded, capsys):
    command = ["replay", str(recorded), "--sampler", "random", "--sampler", "auto", "--budget", "20", "--seeds", "3"]
    assert run([*command, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [(r["space"], r["sampler"], r["seeds"], r["failed"]) for r in results] == [
        ("toy", "random", 3, 4),
        ("toy", "auto", 3, 4),
    ]
    for result in results:
        assert [at["evaluations"] for at in result["by_evaluations"]] == [10, 20]
        assert len(result["by_time"]) == 4
        assert 0.0 < result["by_evaluations"][0]["found"]["tenth"] <= result["by_evaluations"][1]["found"]["median"]
        assert 0.0 < result["overhead_ms"] <= result["slowest_ms"]


def test_replay_prints_tables(recorded, capsys):
    assert run(["replay", str(recorded), "--sampler", "random", "--budget", "93", "--seeds", "2"]) == 0
    text = capsys.readouterr().out
    assert "100.0 %" in text and "by recorded time" in text
    assert (
        "toy: 93 valid configs, 4 of them fail, best 2000 us; percent: best recorded over best found, 2 seeds" in text
    )


def test_a_wrong_call_is_refused_in_one_line(recorded, capsys):
    assert run(["replay", str(recorded), "--sampler", "tpee"]) == 2
    assert "unknown sampler 'tpee' (did you mean tpe?)" in capsys.readouterr().err
    assert run(["replay", str(recorded) + "x"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(UsageError, match="the budget must be at least 1, but is 0"):
        tuner.replay_search([recorded], budget=0)
    assert "auto" in SAMPLERS
