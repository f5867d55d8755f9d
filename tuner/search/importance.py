"""Which parameters of a study mattered: Optuna's evaluators, over the trials of one template at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.importance import (
    BaseImportanceEvaluator,
    FanovaImportanceEvaluator,
    PedAnovaImportanceEvaluator,
    get_param_importances,
)
from optuna.trial import create_trial

from tuner.config import Value
from tuner.errors import MissingError
from tuner.search.candidates import Axis
from tuner.search.storage import quiet_optuna
from tuner.search.valid_sampler import axis_distribution, axis_parameter

_SEED = 0


def shares(values: Sequence[Mapping[str, Value]], times_us: Sequence[float], evaluator: str) -> dict[str, float]:
    """By parameter that varies, its share of what is explained (they add up to 1), the largest first.

    ``values`` are the parameters of timed configs, all with the same names; ``times_us`` their times in microseconds,
    of which the logarithms are looked at. ``evaluator``: a name of ``tuner.study_importance.EVALUATORS``. Empty where
    fewer than two configs differ. Raises ``MissingError`` where the evaluator lacks a library.
    """
    quiet_optuna()
    axes = [Axis.of(name, tuple(row[name] for row in values)) for name in (values[0] if values else {})]
    axes = [axis for axis in axes if len(axis.values) > 1]
    if not axes or len(set(times_us)) < 2:
        return {}
    study = optuna.create_study()
    for row, time_us in zip(values, times_us, strict=True):
        parameters: dict[str, Any] = {
            axis.name: axis_parameter(axis, axis.values.index(row[axis.name])) for axis in axes
        }
        distributions = {axis.name: axis_distribution(axis) for axis in axes}
        study.add_trial(create_trial(params=parameters, distributions=distributions, value=math.log(time_us)))
    try:
        found = get_param_importances(study, evaluator=_EVALUATORS[evaluator](), normalize=True)
    except ImportError as error:
        raise MissingError(
            f"the evaluator {evaluator} needs scikit-learn, which is not installed; run `pip install scikit-learn`, or "
            "take ped-anova"
        ) from error
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


_EVALUATORS: dict[str, Callable[[], BaseImportanceEvaluator]] = {
    "ped-anova": PedAnovaImportanceEvaluator,
    "fanova": lambda: FanovaImportanceEvaluator(seed=_SEED),
}
