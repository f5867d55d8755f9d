"""The race and the finals, with made-up times whose truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine_jobs import PROBLEM
from tests.fakes import FakeWorker, rounds
from tuner.config import Config
from tuner.evaluating import Candidate, RoundsJob, SetUpJob
from tuner.finals import FINAL_ROUNDS, MOST_RACERS, Contender, Finals, Rounds, affordable, choose_racers
from tuner.precision import PrecisionProfile
from tuner.steps import finish
from tuner.store.records import TIE, WINNER
from tuner.targets import target
from tuner.trial import CompileReport, KernelResources
from tuner.worker.messages import Died, Done, Reply

DEVICE = target("h200")
TRUTH = {"a": 10.0, "b": 10.05, "c": 11.0, "d": 10.02, "plain": 14.0}
"""Microseconds: a, b and d are within half a per cent, c is 10 % slower."""


def contender(name: str, *, registers: int = 40, screen_us: float | None = None) -> Contender:
    config = Config("t", (), (("NAME", name),), ("NAME",))
    profile = PrecisionProfile(input="fp32", output="fp32")
    candidate = Candidate(config.key, f"/{name}.py", {}, {}, {}, profile)
    compiled = CompileReport(name, (KernelResources("k", registers, 0, 0, 128),), 1.0)
    return Contender(config, candidate, screen_us or TRUTH[name], compiled, is_plain=name == "plain")


NAMES = {contender(name).key: name for name in TRUTH}


def noisy(scale: float = 0.002) -> Callable[[str, int], float]:
    """The truth, with noise of each sample and a drift that all samples of a round share."""

    def us(entry: str, number: int) -> float:
        drift = 1.0 + 0.01 * math.sin(number)
        noise = random.Random(f"{entry}/{number}").gauss(1.0, scale)
        return TRUTH[NAMES[entry.removesuffix("/again")]] * drift * noise

    return us


def gpu(process_id: int, **how: Any) -> FakeWorker:
    us = how.pop("us", noisy())

    def answer(job: Any) -> Reply:
        if isinstance(job, SetUpJob):
            return Done(0.1, 0.1)
        return Done(rounds(job, us, process_id=process_id, **how), 1.0)

    return FakeWorker(answer)


def dead() -> FakeWorker:
    return FakeWorker(lambda job: Died(False, 120.0))


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def finals(said) -> Finals:
    return Finals(PROBLEM, DEVICE, 3, said.append)


def test_a_clear_winner_wins_by_what_was_measured(finals, said):
    a, c, plain = contender("a"), contender("c"), contender("plain")
    workers = [gpu(1), gpu(2)]
    outcome, wrong = finish(finals.finals(workers, [c, a], plain))
    assert outcome is not None and wrong == {} and said == []
    assert outcome.winner is a
    assert outcome.kind == WINNER
    assert outcome.verdict.startswith("template=t,NAME=a wins by ")
    assert not outcome.unstable
    assert outcome.decision.ratios[c.key].ratio == pytest.approx(1.1, abs=0.005)
    assert set(outcome.measurements) == {a.key, c.key, plain.key}
    measured = outcome.measurements[a.key]
    assert (measured.stage, measured.protocol) == ("final", "graph-1")
    assert measured.median_us == pytest.approx(10.0, rel=0.01)
    assert len(measured.samples_us) == 2 * FINAL_ROUNDS
    assert set(measured.process) == {1, 2}


def test_each_process_of_the_finals_is_asked_for_a_check_with_inputs_of_its_own_and_ends_after_it(finals):
    workers = [gpu(1), gpu(2)]
    plain = contender("plain")
    finish(finals.finals(workers, [contender("a")], plain))
    jobs = [job for worker in workers for job in worker.jobs]
    assert all(isinstance(job, RoundsJob) and job.check_first for job in jobs)
    assert [job.seed for job in jobs] == [4, 5]
    assert [candidate.key for candidate in jobs[0].candidates].count(plain.key) == 2  # the A/A control
    assert [worker.kills for worker in workers] == [1, 1]


def test_among_ties_the_simplest_is_chosen_and_the_verdict_says_so(finals):
    a, b, d = contender("a", registers=90), contender("b", registers=30), contender("d", registers=60)
    outcome, _ = finish(finals.finals([gpu(1), gpu(2)], [a, b, d], contender("plain")))
    assert outcome is not None
    assert outcome.winner is b
    assert outcome.kind == TIE
    assert set(outcome.decision.ties) == {a.key, b.key, d.key}
    assert outcome.verdict.startswith("tie of 3: ")
    assert outcome.verdict.endswith("; the simplest of them is chosen: template=t,NAME=b")


def test_the_plain_config_wins_a_tie_whatever_it_takes(finals, monkeypatch):
    monkeypatch.setitem(TRUTH, "plain", 10.03)
    plain = contender("plain", registers=255)
    outcome, _ = finish(finals.finals([gpu(1), gpu(2)], [contender("a")], plain))
    assert outcome is not None and outcome.winner is plain


def test_a_finalist_that_is_wrong_in_one_process_is_left_out_and_named(finals):
    a, c, plain = contender("a"), contender("c"), contender("plain")
    outcome, wrong = finish(finals.finals([gpu(1), gpu(2, failed={a.key: "NaN in row 3"})], [a, c], plain))
    assert outcome is not None
    assert outcome.winner is c
    assert wrong == {a.key: "randn at softmax rows=9: NaN in row 3"}
    assert a.key not in outcome.measurements


def test_a_wrong_anchor_leaves_a_decision_without_control(finals):
    a, c, plain = contender("a"), contender("c"), contender("plain")
    failed = {plain.key: "off"}
    outcome, wrong = finish(finals.finals([gpu(1, failed=failed), gpu(2, failed=failed)], [a, c], plain))
    assert outcome is not None and outcome.winner is a
    assert outcome.decision.control is None
    assert set(wrong) == {plain.key}


def test_without_a_right_finalist_there_is_no_outcome_and_every_reason(finals):
    a, plain = contender("a"), contender("plain")
    failed = {a.key: "off", plain.key: "off too"}
    outcome, wrong = finish(finals.finals([gpu(1, failed=failed), gpu(2, failed=failed)], [a], plain))
    assert outcome is None
    assert set(wrong) == {a.key, plain.key}


def test_a_process_that_dies_leaves_the_decision_to_the_other_and_is_reported(finals, said):
    a, plain = contender("a"), contender("plain")
    outcome, _ = finish(finals.finals([dead(), gpu(2)], [a], plain))
    assert outcome is not None and outcome.winner is a
    assert set(outcome.measurements[a.key].process) == {2}
    assert said == ["a process of the final re-measurement ended; its rounds are left out"]


def test_two_dead_processes_leave_no_outcome(finals, said):
    assert finish(finals.finals([dead(), dead()], [contender("a")], contender("plain"))) == (None, {})
    assert len(said) == 2


def test_rounds_in_which_the_clock_fell_are_left_out(finals):
    def clock(number: int) -> int:
        return 1200 if number in (3, 4) else 1980

    def us(entry: str, number: int) -> float:
        return noisy()(entry, number) * (1.6 if number in (3, 4) else 1.0)

    how = {"us": us, "clock_mhz": clock}
    outcome, _ = finish(finals.finals([gpu(1, **how), gpu(2, **how)], [contender("a")], contender("plain")))
    assert outcome is not None and not outcome.unstable
    measured = outcome.measurements[contender("a").key]
    assert len(measured.samples_us) == 2 * (FINAL_ROUNDS - 2)
    assert max(measured.samples_us) < 11


def test_a_card_that_is_never_steady_gives_no_clear_winner_and_says_so(finals):
    def clock(number: int) -> int:
        return 1200 if number % 3 == 0 else 1980

    workers = [gpu(1, clock_mhz=clock), gpu(2, clock_mhz=clock)]
    outcome, _ = finish(finals.finals(workers, [contender("a")], contender("plain")))
    assert outcome is not None and outcome.unstable
    assert outcome.kind == TIE
    assert outcome.verdict.startswith("the card was unsteady (clocks or anchor moved in over a fifth of the rounds); ")


def test_an_anchor_that_differs_from_itself_makes_no_clear_winner(finals):
    def us(entry: str, number: int) -> float:
        return noisy()(entry, number) * (1.04 if entry.endswith("/again") else 1.0)

    outcome, _ = finish(finals.finals([gpu(1, us=us), gpu(2, us=us)], [contender("a")], contender("plain")))
    assert outcome is not None
    assert outcome.kind == TIE
    assert outcome.verdict.startswith("not decided: the anchor, entered twice, differs from itself")


def test_the_race_drops_the_slow_and_returns_the_fastest_first(finals):
    raced = Rounds()
    worker = gpu(1)
    a, b, c = contender("a", screen_us=10.4), contender("b"), contender("c", screen_us=9.9)
    survivors = finish(finals.race(worker, [c, b, a], raced, math.inf))
    assert survivors == [a, b]
    assert [job.first_round for job in worker.jobs][:2] in ([0], [0, 4])
    assert not any(job.check_first for job in worker.jobs)


def test_the_race_goes_on_from_the_rounds_that_were_run_before(finals):
    raced = Rounds()
    a, c = contender("a"), contender("c")
    job = RoundsJob(PROBLEM, DEVICE, (a.candidate, c.candidate), 0, 2, 3)
    raced.add(rounds(job, noisy(), process_id=1))
    worker = gpu(1)
    finish(finals.race(worker, [a, c], raced, math.inf))
    assert worker.jobs[0].first_round == 2
    assert {number for _, number in raced.samples[a.key]} >= set(range(6))


def test_a_race_without_time_goes_by_the_first_times(finals):
    worker = gpu(1)
    survivors = finish(finals.race(worker, [contender("c"), contender("a")], Rounds(), deadline=0.0))
    assert [NAMES[s.key] for s in survivors] == ["a", "c"]
    assert worker.jobs == []


def test_a_race_whose_process_dies_keeps_everyone_and_says_so(finals, said):
    survivors = finish(finals.race(dead(), [contender("c"), contender("a")], Rounds(), math.inf))
    assert [NAMES[s.key] for s in survivors] == ["a", "c"]
    assert said == ["the GPU process ended during the race; it goes on with the rounds before"]


def test_processes_are_set_up_side_by_side_each_with_its_seed(finals):
    workers = [gpu(1), gpu(2)]
    finish(finals.set_up(workers, contender("a")))
    assert [[(type(job), job.seed) for job in worker.jobs] for worker in workers] == [[(SetUpJob, 4)], [(SetUpJob, 5)]]
    assert not any(worker.busy for worker in workers)


def test_racers_are_those_within_six_per_cent_of_the_best_and_not_too_many():
    assert [c.screen_us for c in choose_racers([contender("c"), contender("b"), contender("a")])] == [10.0, 10.05]
    many = [contender("a", screen_us=10.0 + i / 1000) for i in range(100)]
    assert len(choose_racers(many)) == MOST_RACERS == 24


def test_as_many_finalists_as_there_is_time_for_and_the_fastest_two_in_any_case():
    six = [contender("a", screen_us=10.0 + at) for at in range(6)]
    assert affordable(six, 0.1, math.inf) == six
    assert affordable(six, 0.1, 1.4) == six  # two processes, seven checks each
    assert affordable(six, 0.1, 1.1) == six[:5]
    assert affordable(six, 0.5, 1.0) == affordable(six, 0.5, -3.0) == six[:2]
    assert affordable(six[:1], 0.5, -3.0) == six[:1]
    assert affordable(six, 0.0, 0.1) == six
