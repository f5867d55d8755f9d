"""The sampler of our own, for Optuna: a model over every config of a finite space, of which each is tried once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.candidates import Axis, Point
from tuner.search.choosing import Chooser, Seen
from tuner.search.features import Matrix, feature_matrix

_WHOLE = "space"
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


class FiniteSampler(BaseSampler):
    """Proposes rows of a table of valid parameters, none twice, learning from the trials of its study.

    It works in any Optuna study of one objective: ``FiniteSampler.over`` makes one from distributions. A trial that was
    pruned without an intermediate value, or that failed, counts as the slowest seen; trials that are running are
    expected to be what the model says, so that parallel ones differ. Where all rows were tried, it repeats at random.
    """

    def __init__(
        self,
        space: Mapping[str, BaseDistribution],
        rows: Sequence[Mapping[str, Any]],
        features: Matrix,
        seed: int,
        *,
        logarithms: bool = False,
        retry_failed: bool = False,
    ) -> None:
        """``rows``: the parameters of each valid config, in Optuna's external form, with its ``features``.

        ``logarithms``: objective values are logarithms already; else their logarithms are taken where all are positive.
        ``retry_failed``: a failed trial says nothing about its config, which may be proposed again.
        """
        if len(rows) != len(features) or not rows:
            raise ValueError(f"there must be one row of features for each of the rows, and at least one ({len(rows)})")
        self._space, self._rows = dict(space), rows
        self._place = {frozenset(row.items()): at for at, row in enumerate(rows)}
        self._rng = np.random.default_rng(seed)
        self._chooser = Chooser(features, self._rng)
        self._other = RandomSampler(seed=seed)
        self._logarithms, self._retry_failed = logarithms, retry_failed

    @classmethod
    def over(
        cls,
        space: Mapping[str, BaseDistribution],
        valid: Callable[[Mapping[str, Any]], bool] = lambda parameters: True,
        seed: int = 0,
    ) -> FiniteSampler:
        """A sampler over every combination that ``valid`` accepts, for a study whose values are times.

        ``space``: a distribution a parameter, of categories, whole numbers, or numbers with a step. Categories that are
        all numbers are taken to be ordered. Raises ``ValueError`` where a distribution is continuous, or nothing is
        valid.
        """
        axes = tuple(Axis.of(name, _values(name, distribution)) for name, distribution in space.items())
        points, rows = [], []
        for indices in product(*(range(len(axis.values)) for axis in axes)):
            row = {axis.name: axis.values[at] for axis, at in zip(axes, indices, strict=True)}
            if valid(row):
                points.append(Point(_WHOLE, indices))
                rows.append(row)
        return cls(space, rows, feature_matrix({_WHOLE: axes}, points), seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        seen, free = self._seen(study, trial.number)
        if not free.any():
            return dict(self._rows[int(self._rng.integers(len(self._rows)))])
        return dict(self._rows[self._chooser.choose(seen, free)])

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A parameter that the table does not have: at random."""
        return self._other.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Does nothing: Optuna calls it for parallel ``optimize`` only, and here a seed decides the proposals."""

    @property
    def expected_gain(self) -> float | None:
        """See ``Proposer.expected_gain``."""
        return self._chooser.expected_gain

    def chance_of_better(self, study: Study) -> float:
        """How likely it is, says the model, that a row is left that is 1 % faster than the best or more: 0 to 1."""
        seen, free = self._seen(study, -1)
        return self._chooser.chance_of_better(seen, free)

    def _seen(self, study: Study, asking: int) -> tuple[Seen, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        """What is known but for the trial ``asking``, and which rows are untried."""
        values: dict[int, float] = {}
        pending: dict[int, None] = {}
        for trial in study.get_trials(deepcopy=False):
            if trial.number == asking:
                continue
            # A trial in flight has its parameters from us before it has suggested them.
            given = trial.params or trial.system_attrs.get("relative_params", {})
            row = self._place.get(frozenset(given.items()))
            if row is None or (trial.state is TrialState.FAIL and self._retry_failed):
                continue
            if trial.state in (TrialState.RUNNING, TrialState.WAITING):
                pending[row] = None
            else:
                values[row] = _value(trial) if trial.state in _FINISHED else math.nan
        free = np.ones(len(self._rows), dtype=bool)
        free[[*values, *pending]] = False
        logs = self._logs(np.array(list(values.values()), dtype=np.float64), study.direction)
        return Seen(list(values), logs, [row for row in pending if row not in values]), free

    def _logs(self, values: np.ndarray[tuple[int], np.dtype[np.float64]], direction: StudyDirection) -> list[float]:
        timed = values[np.isfinite(values)]
        if not self._logarithms and bool((timed > 0.0).all()):
            values = np.log(values)
        return list(-values if direction is StudyDirection.MAXIMIZE else values)


def _value(trial: FrozenTrial) -> float:
    """What a finished trial was told; NaN where it has no value."""
    value = trial.value if trial.state is TrialState.COMPLETE else None
    if value is None and trial.intermediate_values:
        value = trial.intermediate_values[max(trial.intermediate_values)]
    return math.nan if value is None or not math.isfinite(value) else value


def _values(name: str, distribution: BaseDistribution) -> tuple[Any, ...]:
    if isinstance(distribution, CategoricalDistribution):
        return tuple(distribution.choices)
    if isinstance(distribution, IntDistribution):
        return tuple(range(distribution.low, distribution.high + 1, distribution.step))
    if isinstance(distribution, FloatDistribution) and distribution.step is not None:
        steps = round((distribution.high - distribution.low) / distribution.step)
        return tuple(distribution.low + at * distribution.step for at in range(steps + 1))
    raise ValueError(f"the space of {name} is continuous; give it a step or categories")
