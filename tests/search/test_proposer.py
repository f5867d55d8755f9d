from __future__ import annotations

import math
import statistics
import time

import optuna
import pytest

from tuner.config import Config
from tuner.errors import ConfigError, MissingError, StoreError, UsageError
from tuner.search import Proposal, Proposer, make_proposer
from tuner.trial import Outcome


def ask(proposer: Proposer) -> Proposal:
    proposal = proposer.ask()
    assert proposal is not None
    return proposal


def run(proposer: Proposer, cost, trials: int) -> list[tuple[Config, float]]:
    """Ask and tell, one in flight."""
    seen = []
    for _ in range(trials):
        proposal = ask(proposer)
        value = cost(proposal.config)
        proposer.tell(proposal, Outcome.TIMED, value)
        seen.append((proposal.config, value))
    return seen


def landscape(config: Config) -> float:
    """Microseconds with one valley: BLOCK_M 128, BLOCK_N 64, 8 warps, 3 stages, exp2, tma."""
    v = config.values
    miss = abs(math.log2(v["BLOCK_M"] / 128)) + 1.5 * abs(math.log2(v["BLOCK_N"] / 64))
    miss += abs(math.log2(v["num_warps"] / 8)) + 0.5 * (3 - v["num_stages"])
    miss += 0.5 * (not v["EXP2"]) + {"pointer": 1.0, "block": 0.5, "tma": 0.0}[v["LOADS"]]
    return 10.0 * 1.2**miss


@pytest.mark.parametrize("sampler", ["auto", "tpe", "random", "exhaustive"])
@pytest.mark.parametrize("enumerate_below", [0, 64])
def test_64_points_give_64_distinct_proposals_and_then_none(stub_space, sampler, enumerate_below):
    space = stub_space({"t": {"a": (1, 2, 4, 8), "b": (True, False), "c": (1, 2, 3, 4), "d": ("x", "y")}})
    proposer = make_proposer(space, sampler=sampler, seed=3, enumerate_below=enumerate_below)
    keys = {config.key for config, _ in run(proposer, lambda c: float(c.values["a"]), 64)}
    assert len(keys) == 64
    assert proposer.ask() is None


def test_every_proposal_is_valid(wide_space):
    proposer = make_proposer(wide_space, seed=1)
    for config, _ in run(proposer, landscape, 120):
        assert wide_space.is_valid(config.template, config.values)


def test_the_plain_config_of_each_template_comes_first(two_templates):
    proposer = make_proposer(two_templates, enumerate_below=0)
    first, second, third = ask(proposer), ask(proposer), ask(proposer)
    assert [first.config, second.config] == list(two_templates.plain())
    assert [first.source, second.source, third.source] == ["plain", "plain", "sampler"]


def test_a_plain_config_outside_the_lists_of_choices_is_still_proposed(stub_space):
    space = stub_space({"t": {"BLOCK": (1024, 2048)}}, plain={"t": {"BLOCK": 256}})
    proposer = make_proposer(space)
    blocks = [config.values["BLOCK"] for config, _ in run(proposer, lambda c: 1.0, 3)]
    assert blocks[0] == 256 and set(blocks) == {256, 1024, 2048}
    assert proposer.ask() is None


def test_a_small_space_is_walked_in_an_order_that_the_seed_decides(two_templates):
    def order(seed: int) -> list[str]:
        return [c.key for c, _ in run(make_proposer(two_templates, seed=seed), lambda c: 1.0, 60)]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))


def test_many_in_flight_are_all_different_and_may_be_told_in_any_order(wide_space):
    proposer = make_proposer(wide_space, seed=5)
    run(proposer, landscape, 20)
    open_ones = [ask(proposer) for _ in range(30)]
    assert len({p.config.key for p in open_ones}) == 30
    for proposal in reversed(open_ones):
        proposer.tell(proposal, Outcome.TIMED, landscape(proposal.config))
    assert ask(proposer).config.key not in {p.config.key for p in open_ones}


def test_one_seed_means_one_sequence_of_proposals(wide_space):
    first = [c.key for c, _ in run(make_proposer(wide_space, seed=7), landscape, 40)]
    again = [c.key for c, _ in run(make_proposer(wide_space, seed=7), landscape, 40)]
    other = [c.key for c, _ in run(make_proposer(wide_space, seed=8), landscape, 40)]
    assert first == again != other


@pytest.mark.parametrize("sampler", ["auto", "tpe"])
def test_a_model_finds_better_configs_than_random_search(wide_space, sampler):
    def best(sampler: str, seed: int) -> float:
        return min(value for _, value in run(make_proposer(wide_space, sampler=sampler, seed=seed), landscape, 45))

    model = statistics.median(best(sampler, seed) for seed in range(8))
    random = statistics.median(best("random", seed) for seed in range(8))
    assert model < random


def test_tpe_turns_away_from_what_fails(wide_space):
    """Half of the space (tma) crashes; after 60 trials, fewer than a quarter of the proposals go there."""
    proposer = make_proposer(wide_space, sampler="tpe", seed=2)
    late = []
    for number in range(100):
        proposal = ask(proposer)
        crashes = proposal.config.values["LOADS"] == "tma"
        if crashes:
            proposer.tell(proposal, Outcome.CRASHED, None)
        else:
            proposer.tell(proposal, Outcome.TIMED, landscape(proposal.config))
        if number >= 60:
            late.append(crashes)
    assert sum(late) < 10


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.TIMED])
def test_what_failed_or_was_cut_short_is_never_proposed_again(stub_space, outcome):
    space = stub_space({"t": {"a": tuple(range(30))}})
    proposer = make_proposer(space, enumerate_below=0)
    keys = []
    while (proposal := proposer.ask()) is not None:
        keys.append(proposal.config.key)
        proposer.tell(proposal, outcome, None)
    assert len(keys) == len(set(keys)) == 30


def test_only_finite_values_are_stored(two_templates, tmp_path):
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    proposer = make_proposer(two_templates, storage=url, study_name="s")
    proposer.tell(ask(proposer), Outcome.TIMED, math.e**3)
    proposer.tell(ask(proposer), Outcome.WRONG, None)
    proposer.tell(ask(proposer), Outcome.PRUNED, math.e**5)
    proposer.tell(ask(proposer), Outcome.PRUNED, None)
    study = optuna.load_study(study_name="s", storage=url)
    assert [(t.state.name, t.value) for t in study.trials] == [
        ("COMPLETE", pytest.approx(3.0)),
        ("PRUNED", None),
        ("PRUNED", pytest.approx(5.0)),
        ("PRUNED", None),
    ]
    assert [t.user_attrs["outcome"] for t in study.trials] == ["timed", "wrong", "pruned", "pruned"]


@pytest.mark.parametrize("value", [None, 0.0, -1.0, math.inf, math.nan])
def test_a_time_that_is_not_positive_and_finite_is_refused(two_templates, value):
    proposer = make_proposer(two_templates)
    proposal = ask(proposer)
    with pytest.raises(ValueError, match="time"):
        proposer.tell(proposal, Outcome.TIMED, value)
    proposer.tell(proposal, Outcome.TIMED, 1.0)


def test_a_proposal_can_be_told_once(two_templates):
    proposer = make_proposer(two_templates)
    proposal = ask(proposer)
    proposer.tell(proposal, Outcome.TIMED, 1.0)
    with pytest.raises(ValueError, match="trial 0 is not open"):
        proposer.tell(proposal, Outcome.TIMED, 1.0)


def test_a_withdrawn_config_may_be_proposed_again(stub_space):
    proposer = make_proposer(stub_space({"t": {"a": (1, 2)}}), enumerate_below=0)
    first, second = ask(proposer), ask(proposer)
    assert proposer.ask() is None
    proposer.withdraw(second)
    assert ask(proposer).config == second.config != first.config


def test_the_optuna_trial_holds_exactly_the_config_that_runs(two_templates, tmp_path):
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    proposer = make_proposer(two_templates, storage=url, study_name="s", enumerate_below=0)
    seen = run(proposer, lambda c: 5.0, 25)
    study = optuna.load_study(study_name="s", storage=url)
    blocks = (512, 1024, 2048, 4096, 8192)
    for trial, (config, _) in zip(study.trials, seen, strict=True):
        assert trial.user_attrs["config"] == config.label
        assert trial.user_attrs["config_key"] == config.key
        assert trial.params["template"] == config.template
        assert all(name == "template" or name.startswith(config.template + ".") for name in trial.params)
        if config.template == "online":
            assert blocks[trial.params["online.BLOCK"]] == config.values["BLOCK"]
            assert trial.params["online.LOADS"] == config.values["LOADS"]
            assert trial.params["online.SPLIT"] is config.values["SPLIT"]


def test_a_study_goes_on_where_it_stopped_and_repeats_nothing(wide_space, tmp_path):
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    before = {c.key for c, _ in run(make_proposer(wide_space, storage=url, study_name="s"), landscape, 15)}
    after = {c.key for c, _ in run(make_proposer(wide_space, storage=url, study_name="s"), landscape, 15)}
    assert len(before) == len(after) == 15
    assert not before & after


def test_known_results_are_learnt_from_once_and_never_proposed(wide_space, tmp_path):
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    configs = list(wide_space.configs())[::7]
    known = {c.key: (Outcome.TIMED, landscape(c)) for c in configs} | {"0" * 16: (Outcome.WRONG, None)}
    for _ in range(2):
        proposer = make_proposer(wide_space, storage=url, study_name="s", known=known)
        assert not {c.key for c, _ in run(proposer, landscape, 10)} & set(known)
    study = optuna.load_study(study_name="s", storage=url)
    added = [t for t in study.trials if t.user_attrs["source"] == "known"]
    assert len(added) == len(configs)
    assert len(study.trials) == len(configs) + 20


def test_a_known_plain_config_is_not_tried_again(two_templates):
    plain = two_templates.plain()[0]
    proposer = make_proposer(two_templates, known={plain.key: (Outcome.WRONG, None)})
    assert ask(proposer).config == two_templates.plain()[1]


def test_adding_a_value_to_a_space_keeps_the_old_results_and_asks_only_for_new_points(stub_space, tmp_path):
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    small = stub_space({"t": {"a": (2, 4), "s": ("x", "y")}})
    seen = run(make_proposer(small, storage=url, study_name="s"), lambda c: 1.0, 4)
    larger = stub_space({"t": {"a": (1, 2, 4), "s": ("x", "y", "z")}, "u": {"b": (1,)}})
    known = {c.key: (Outcome.TIMED, v) for c, v in seen}
    proposer = make_proposer(larger, storage=url, study_name="s", known=known)
    new = run(proposer, lambda c: 1.0, 6)
    assert proposer.ask() is None
    assert len({c.key for c, _ in [*seen, *new]}) == 10


def test_a_trial_of_a_dead_process_is_given_up_and_its_config_comes_back(stub_space, tmp_path):
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    space = stub_space({"t": {"a": (1, 2, 3)}})
    lost = ask(make_proposer(space, storage=url, study_name="s", owner="somewhere-else:x:1"))
    again = make_proposer(space, storage=url, study_name="s")
    assert ask(again).config == lost.config
    states = [t.state.name for t in optuna.load_study(study_name="s", storage=url).trials]
    assert states == ["FAIL", "RUNNING"]


def test_a_trial_of_a_live_process_is_left_alone_and_its_config_is_not_lost(stub_space, tmp_path):
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    space = stub_space({"t": {"a": (1, 2, 3)}})
    theirs = ask(make_proposer(space, storage=url, study_name="s", owner="another-host:17:99"))
    ours = make_proposer(space, storage=url, study_name="s")
    assert theirs.config in {ask(ours).config for _ in range(3)}
    states = [t.state.name for t in optuna.load_study(study_name="s", storage=url).trials]
    assert states == ["RUNNING"] * 4


def test_what_another_process_found_is_learnt_and_not_proposed(stub_space, tmp_path):
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    space = stub_space({"t": {"a": tuple(range(12))}})
    proposer = make_proposer(space, storage=url, study_name="s", enumerate_below=0)
    configs = [space.config("t", {"a": a}) for a in range(12)]
    open_here = ask(proposer)
    others = [c for c in configs if c.key != open_here.config.key][:9]
    for number, config in enumerate(others):
        proposer.learn(config, Outcome.TIMED if number else Outcome.WRONG, 10.0 + number if number else None)
    proposer.learn(open_here.config, Outcome.TIMED, 1.0)  # open here: it will be told
    proposer.tell(open_here, Outcome.TIMED, 5.0)
    left = [ask(proposer).config.key for _ in range(2)]
    assert sorted(left) == sorted({c.key for c in configs} - {c.key for c in others} - {open_here.config.key})
    assert proposer.ask() is None
    states = [t.state.name for t in proposer._study.trials]
    assert (states.count("COMPLETE"), states.count("PRUNED")) == (9, 1)
    # Who found it has logged it.
    assert len(optuna.load_study(study_name="s", storage=url).trials) == 3


def test_two_studies_in_one_database_are_independent(two_templates, wide_space, tmp_path):
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    one = make_proposer(two_templates, storage=url, study_name="one")
    two = make_proposer(wide_space, storage=url, study_name="two")
    for _ in range(5):
        run(one, lambda c: 1.0, 1)
        run(two, landscape, 1)
    for name, prefixes in (("one", {"online", "whole"}), ("two", {"flash"})):
        study = optuna.load_study(study_name=name, storage=url)
        assert [t.number for t in study.trials] == [0, 1, 2, 3, 4]
        assert {t.params["template"] for t in study.trials} <= prefixes


def test_a_space_of_which_no_template_applies_is_refused_with_the_reasons(stub_space):
    with pytest.raises(ConfigError, match="split: where: cols >= 4096 is false"):
        make_proposer(stub_space({}))


def test_when_one_template_is_used_up_the_search_goes_on_in_the_others(stub_space):
    space = stub_space({"tiny": {"a": (1, 2)}, "large": {"a": tuple(range(100))}})
    proposer = make_proposer(space, seed=0)
    seen = [c.template for c, _ in run(proposer, lambda c: 1.0 if c.template == "tiny" else 9.0, 60)]
    assert seen.count("tiny") == 2 and seen.count("large") == 58


def test_an_unknown_sampler_is_refused_with_the_known_names(two_templates):
    with pytest.raises(
        UsageError, match=r"unknown sampler 'tpee' \(did you mean tpe\?\); choose one of auto, tpe, random"
    ):
        make_proposer(two_templates, sampler="tpee")


def test_a_sampler_without_its_library_says_what_to_install(two_templates, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    with pytest.raises(MissingError, match="pip install scipy"):
        make_proposer(two_templates, sampler="gp")


def test_a_file_that_is_not_a_database_is_refused_and_left_alone(two_templates, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are not the tables you are looking for" * 50)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a database"):
        make_proposer(two_templates, storage=f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_suggestion_among_20000_valid_configs_takes_less_than_20_ms(stub_space):
    space = stub_space(
        {
            "t": {
                "a": tuple(range(10)),
                "b": tuple(range(10)),
                "c": tuple(range(10)),
                "d": tuple(range(5)),
                "e": (True, False),
                "f": ("x", "y"),
            }
        }
    )
    proposer = make_proposer(space, seed=0)
    run(proposer, lambda c: 1.0 + c.values["a"], 100)
    times = []
    for _ in range(30):
        start = time.process_time()  # as on an idle machine
        proposal = ask(proposer)
        times.append(time.process_time() - start)
        proposer.tell(proposal, Outcome.TIMED, 2.0)
    assert statistics.median(times) < 0.020


def test_a_space_too_large_to_list_still_gives_valid_and_distinct_configs(stub_space):
    space = stub_space(
        {"t": {name: tuple(range(32)) for name in "abcdef"}}, valid=lambda t, c: (c["a"] + c["b"] + c["c"]) % 3 == 0
    )
    proposer = make_proposer(space, seed=0)
    seen = [c for c, _ in run(proposer, lambda c: 1.0 + c.values["d"], 60)]
    assert len({c.key for c in seen}) == 60
    assert all(space.is_valid("t", c.values) for c in seen)
    with pytest.raises(UsageError, match="too large for the sampler exhaustive"):
        make_proposer(space, sampler="exhaustive")


def test_what_the_study_tried_and_is_no_longer_known_is_proposed_again(stub_space, tmp_path):
    space = stub_space({"t": {"a": (1, 2, 4)}})
    url = f"sqlite:///{tmp_path / 'study.db'}"
    first = make_proposer(space, storage=url, known={})
    tried = run(first, lambda c: float(c.values["a"]), 3)
    first.close()
    holds, value = tried[1]
    second = make_proposer(space, storage=url, known={holds.key: (Outcome.TIMED, value)})
    again = {ask(second).config.key, ask(second).config.key}
    assert second.ask() is None
    assert again == {config.key for config, _ in tried} - {holds.key}
    second.close()


def test_a_closed_proposer_leaves_the_whole_study_in_the_file(stub_space, tmp_path):
    path = tmp_path / "study.db"
    proposer = make_proposer(stub_space({"t": {"a": (1, 2)}}), storage=f"sqlite:///{path}")
    run(proposer, lambda c: float(c.values["a"]), 2)
    proposer.close()
    assert not path.with_name("study.db-wal").exists()
