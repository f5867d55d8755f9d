"""The sampler of our own in plain Optuna studies."""

from __future__ import annotations

import math

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from tuner.search.finite_sampler import FiniteSampler

SPACE = {
    "BLOCK": CategoricalDistribution((64, 128, 256, 512, 1024, 2048)),
    "num_stages": IntDistribution(1, 6),
    "LOADS": CategoricalDistribution(("pointer", "tma")),
}


def valid(parameters) -> bool:
    return parameters["BLOCK"] * parameters["num_stages"] <= 4096


def parameters(trial: optuna.Trial) -> dict[str, object]:
    return {
        "BLOCK": trial.suggest_categorical("BLOCK", (64, 128, 256, 512, 1024, 2048)),
        "num_stages": trial.suggest_int("num_stages", 1, 6),
        "LOADS": trial.suggest_categorical("LOADS", ("pointer", "tma")),
    }


def cost(p) -> float:
    """3 at BLOCK 512, 4 stages, tma."""
    return 3.0 * 1.5 ** (abs(math.log2(p["BLOCK"] / 512)) + abs(p["num_stages"] - 4) + (p["LOADS"] == "pointer"))


def study(direction: str = "minimize", seed: int = 0) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=FiniteSampler.over(SPACE, valid, seed), direction=direction)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_it_finds_the_best_of_60_in_24_valid_and_distinct_trials(direction):
    sign = 1.0 if direction == "minimize" else -1.0
    made = study(direction)
    made.optimize(lambda trial: sign * cost(parameters(trial)), n_trials=24)
    assert made.best_value == sign * 3.0
    assert all(valid(trial.params) for trial in made.trials)
    assert len({tuple(sorted(trial.params.items())) for trial in made.trials}) == 24


def test_every_config_is_tried_once_and_then_they_repeat():
    made = study()
    made.optimize(lambda trial: cost(parameters(trial)), n_trials=60)
    assert len({tuple(sorted(trial.params.items())) for trial in made.trials}) == 60
    made.optimize(lambda trial: cost(parameters(trial)), n_trials=1)
    assert valid(made.trials[-1].params)


def test_trials_in_flight_differ():
    made = study()
    made.optimize(lambda trial: cost(parameters(trial)), n_trials=8)
    running = [parameters(made.ask()) for _ in range(8)]
    assert len({tuple(sorted(p.items())) for p in running}) == 8


def test_failed_and_pruned_trials_are_not_tried_again_and_are_learnt_from():
    made = study()

    def objective(trial: optuna.Trial) -> float:
        p = parameters(trial)
        if p["LOADS"] == "tma" and p["num_stages"] > 2:
            raise optuna.TrialPruned if p["BLOCK"] > 256 else RuntimeError("no")
        return cost(p)

    made.optimize(objective, n_trials=40, catch=(RuntimeError,))
    assert len({tuple(sorted(trial.params.items())) for trial in made.trials}) == 40
    assert {t.state for t in made.trials} == {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL}
    assert made.best_value == 4.5


def test_one_seed_means_one_sequence():
    first, again, other = study(seed=1), study(seed=1), study(seed=2)
    for made in (first, again, other):
        made.optimize(lambda trial: cost(parameters(trial)), n_trials=12)
    assert [t.params for t in first.trials] == [t.params for t in again.trials] != [t.params for t in other.trials]


def test_a_parameter_outside_of_the_table_is_sampled_at_random():
    made = study()
    made.optimize(lambda trial: cost(parameters(trial)) + trial.suggest_float("extra", 0.0, 1e-9), n_trials=3)
    assert all(0.0 <= trial.params["extra"] <= 1e-9 for trial in made.trials)


def test_the_chance_of_better_falls_as_the_study_goes_on():
    made = study()
    sampler = made.sampler
    assert isinstance(sampler, FiniteSampler)
    assert sampler.chance_of_better(made) == 1.0
    made.optimize(lambda trial: cost(parameters(trial)), n_trials=50)
    assert sampler.chance_of_better(made) < 0.05


def test_a_step_makes_a_number_finite_and_a_continuous_one_is_refused():
    stepped = FiniteSampler.over({"x": FloatDistribution(0.0, 1.0, step=0.25)})
    made = optuna.create_study(sampler=stepped)
    made.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0, step=0.25) + 1.0, n_trials=5)
    assert sorted(trial.params["x"] for trial in made.trials) == [0.0, 0.25, 0.5, 0.75, 1.0]
    with pytest.raises(ValueError, match="the space of x is continuous; give it a step or categories"):
        FiniteSampler.over({"x": FloatDistribution(0.0, 1.0)})
    with pytest.raises(ValueError, match="at least one"):
        FiniteSampler.over(SPACE, lambda p: False)
