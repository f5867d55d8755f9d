"""An Optuna sampler whose proposals are always valid and never repeated, around any sampler of Optuna's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.errors import MissingError
from tuner.search.candidates import Axis, Candidates, Point

TEMPLATE = "template"


class ValidSampler(BaseSampler):
    """Asks ``inner`` parameter by parameter what it would like, and takes the nearest untried valid config to that.

    Optuna's parameters are ``template`` and, of the chosen template only, ``<template>.<name>``. Numbers are their
    index in the sorted list of choices (so that TPE smooths over neighbours, and 1024 is as near to 2048 as 2048 to
    4096); booleans and strings are categories. A whole config is fixed in ``sample_relative``, before the trial
    suggests its first parameter, so the trial's parameters are exactly those that run.
    """

    def __init__(self, inner: BaseSampler, candidates: Candidates, rng: np.random.Generator) -> None:
        self._inner = inner
        self._candidates = candidates
        self._rng = rng
        self._forced: Point | None = None
        self._chosen: Point | None = None
        self._distributions = distributions(candidates.axes)

    def force(self, point: Point) -> None:
        """The next trial gets this point, whatever the inner sampler would like."""
        self._forced = point

    @property
    def chosen(self) -> Point | None:
        """The point that the last trial got; None where no untried config was found."""
        return self._chosen

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        point, self._forced = self._forced, None
        if point is None:
            point = self._candidates.nearest(self._wish(study, trial), self._rng)
        self._chosen = point
        if point is None:
            return {}
        self._candidates.take(point)
        return point_params(point, self._candidates.axes)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._inner.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._inner.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Does nothing: Optuna calls it for parallel ``optimize`` only, and here a seed decides the proposals."""

    def _wish(self, study: Study, trial: FrozenTrial) -> Point:
        relative = self._inner.sample_relative(study, trial, self._inner.infer_relative_search_space(study, trial))

        def value(name: str) -> Any:
            if name in relative:
                return relative[name]
            distribution = self._distributions[name]
            if distribution.single():
                return 0 if isinstance(distribution, IntDistribution) else distribution.to_external_repr(0)
            return self._inner.sample_independent(study, trial, name, distribution)

        template = value(TEMPLATE)
        still_open = self._candidates.open_templates()
        if still_open and template not in still_open:
            template = still_open[int(self._rng.integers(len(still_open)))]
        axes = self._candidates.axes[template]
        return Point(template, tuple(_index(a, value(f"{template}.{a.name}")) for a in axes))


Axes = Mapping[str, tuple[Axis, ...]]


def distributions(axes: Axes) -> dict[str, BaseDistribution]:
    """The Optuna distribution of every parameter by name, ``template`` first."""
    out: dict[str, BaseDistribution] = {TEMPLATE: CategoricalDistribution(tuple(axes))}
    for template, own in axes.items():
        for axis in own:
            out[f"{template}.{axis.name}"] = axis_distribution(axis)
    return out


def axis_distribution(axis: Axis) -> BaseDistribution:
    """Ordered values by their index, others as categories."""
    return IntDistribution(0, len(axis.values) - 1) if axis.ordered else CategoricalDistribution(axis.values)


def axis_parameter(axis: Axis, index: int) -> Any:
    """What the distribution of ``axis`` calls the value at ``index``."""
    return index if axis.ordered else axis.values[index]


def point_params(point: Point, axes: Axes) -> dict[str, Any]:
    """The Optuna parameters of a point."""
    own = zip(axes[point.template], point.indices, strict=True)
    return {
        TEMPLATE: point.template,
        **{f"{point.template}.{a.name}": axis_parameter(a, i) for a, i in own},
    }


def suggest(trial: Trial, point: Point, axes: Axes) -> None:
    """Records the parameters of a point, which the sampler has fixed, in its trial."""
    trial.suggest_categorical(TEMPLATE, tuple(axes))
    for axis in axes[point.template]:
        name = f"{point.template}.{axis.name}"
        if axis.ordered:
            trial.suggest_int(name, 0, len(axis.values) - 1)
        else:
            trial.suggest_categorical(name, axis.values)


def params_point(params: dict[str, Any], axes: Axes) -> Point:
    """The inverse of ``point_params``. Raises ``KeyError`` or ``ValueError`` where the trial is of another space."""
    template = params[TEMPLATE]
    return Point(template, tuple(_index(a, params[f"{template}.{a.name}"]) for a in axes[template]))


def _index(axis: Axis, value: Any) -> int:
    return int(value) if axis.ordered else axis.values.index(value)


def inner_sampler(name: str, seed: int) -> BaseSampler:
    """Optuna's sampler of that name (``tuner.search.names``). Raises ``MissingError`` where it lacks a library."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ExperimentalWarning, of options that we have read
            return _INNER[name](seed)
    except ImportError as error:
        raise MissingError(
            f"the sampler {name} needs {error.name or 'a library'}, which is not installed; "
            f"run `pip install {error.name or 'scipy'}` or choose --sampler auto"
        ) from error


def _tpe(seed: int) -> BaseSampler:
    # group: each template has parameters of its own, and the values of one template are judged together.
    # constant_liar: configs in flight count as bad ones, so that parallel proposals spread out.
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)


def _gp(seed: int) -> BaseSampler:
    import scipy  # noqa: F401  (Optuna only notices its absence at the first suggestion)
    import torch  # noqa: F401

    return optuna.samplers.GPSampler(seed=seed)


def _qmc(seed: int) -> BaseSampler:
    import scipy  # noqa: F401

    return optuna.samplers.QMCSampler(
        seed=seed, scramble=True, warn_independent_sampling=False, warn_asynchronous_seeding=False
    )


_INNER: dict[str, Callable[[int], BaseSampler]] = {
    "auto": _tpe,  # where the space is too large to be listed
    "tpe": _tpe,
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "exhaustive": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "gp": _gp,
    "qmc": _qmc,
}
