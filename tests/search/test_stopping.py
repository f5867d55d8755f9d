from __future__ import annotations

import math

import pytest

from tuner.search import make_proposer
from tuner.search.stopping import StoppingProposer
from tuner.trial import Outcome


class Model:
    """A proposer without end whose model says what a test wants it to say."""

    study_name = "a study"

    def __init__(self, says) -> None:
        self.says, self.asked, self.told = says, 0, 0

    def ask(self):
        self.asked += 1
        return object()

    def tell(self, proposal, outcome, value_us):
        self.told += 1

    def learn(self, config, outcome, value_us):
        self.told += 1

    def chance_of_better(self):
        return self.says(self.told)


def results_until_it_stops(says, known: int = 0, most: int = 200, tell: str = "tell") -> tuple[int, list]:
    stopped: list = []
    proposer = StoppingProposer(Model(says), known, lambda *what: stopped.append(what))  # type: ignore[arg-type]
    for number in range(most):
        proposal = proposer.ask()
        if proposal is None:
            assert proposer.ask() is None
            return number, stopped
        getattr(proposer, tell)(proposal, Outcome.TIMED, 1.0)
    return most, stopped


def test_it_stops_after_three_looks_on_end_that_see_nothing_better():
    assert results_until_it_stops(lambda told: 0.01 if told >= 35 else 0.5) == (60, [(0.01, 60)])
    assert results_until_it_stops(lambda told: 0.01, tell="learn") == (40, [(0.01, 40)])


def test_one_look_that_sees_something_starts_the_count_anew():
    assert results_until_it_stops(lambda told: 0.3 if told == 50 else (0.5 if told < 30 else 0.0))[0] == 80


@pytest.mark.parametrize("chance", [0.02, 0.5, None])
def test_it_goes_on_while_something_better_may_be_left_or_nobody_can_tell(chance):
    assert results_until_it_stops(lambda told: chance) == (200, [])


def test_results_that_were_known_before_count_and_this_run_looks_for_itself():
    assert results_until_it_stops(lambda told: 0.0, known=500) == (30, [(0.0, 530)])


def cost(config) -> float:
    v = config.values
    return 10.0 * 1.2 ** (abs(math.log2(v["BLOCK_M"] / 128)) + abs(math.log2(v["BLOCK_N"] / 64)) + 3 - v["num_stages"])


def test_a_search_ends_by_itself_with_the_best_and_far_from_the_whole_space(wide_space):
    proposer = StoppingProposer(make_proposer(wide_space, seed=0), 0, lambda chance, results: None)
    found = []
    while (proposal := proposer.ask()) is not None:
        found.append(cost(proposal.config))
        proposer.tell(proposal, Outcome.TIMED, found[-1])
    assert min(found) == 10.0
    assert 40 <= len(found) < 150
    chance = proposer.chance_of_better()
    assert chance is not None and chance < 0.02


def test_before_the_plain_configs_have_ended_and_with_other_samplers_nobody_can_tell(two_templates):
    proposer = make_proposer(two_templates, seed=0, enumerate_below=0)
    first, *others = [proposer.ask() for _ in range(14)]
    assert first is not None and first.source == "plain"
    for proposal in others:
        proposer.tell(proposal, Outcome.TIMED, 5.0)
    assert proposer.chance_of_better() is None
    proposer.tell(first, Outcome.WRONG, None)
    chance = proposer.chance_of_better()
    assert chance is not None and 0.0 <= chance <= 1.0
    other = make_proposer(two_templates, sampler="tpe", seed=0)
    for _ in range(12):
        other.tell(other.ask(), Outcome.TIMED, 5.0)
    assert other.chance_of_better() is None


def test_a_space_that_was_tried_whole_has_nothing_left(stub_space):
    proposer = make_proposer(stub_space({"t": {"a": tuple(range(12))}}))
    while (proposal := proposer.ask()) is not None:
        proposer.tell(proposal, Outcome.TIMED, 1.0 + proposal.config.values["a"])
    assert proposer.chance_of_better() == 0.0
