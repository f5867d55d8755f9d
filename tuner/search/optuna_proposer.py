"""The proposer: plain configs, then a walk or a sampler, over a study in memory that is logged in the database."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.config import Config
from tuner.errors import UsageError
from tuner.search.base import Known, Proposal, SearchSpace, Source
from tuner.search.candidates import Point, make_candidates
from tuner.search.features import feature_matrix
from tuner.search.finite_sampler import FiniteSampler
from tuner.search.owner import owner_is_gone
from tuner.search.storage import make_storage, quiet_optuna
from tuner.search.study_log import OUTCOME, StudyLog
from tuner.search.valid_sampler import (
    ValidSampler,
    distributions,
    inner_sampler,
    params_point,
    point_params,
    suggest,
)
from tuner.trial import Outcome

OWN = "auto"
LEAST_TO_GO_BY = 10
"""Trials without which no model says what is left."""

OWNER, KEY, CONFIG, SOURCE = "owner", "config_key", "config", "source"


class OptunaProposer:
    """See ``tuner.search.make_proposer``.

    What Optuna is told: a timed config is COMPLETE with the natural logarithm of its microseconds (ratios of times are
    what matters, and the logarithm is finite). Every other outcome is PRUNED without a value, because TPE counts PRUNED
    trials and ranks those without an intermediate value behind all others: it turns away from what fails, and no
    made-up number, infinity or NaN is stored. FAIL would not do, TPE does not look at it. A config cut short for being
    slow is PRUNED with the time it had, as an intermediate value. FAIL stands for trials without a result.
    """

    def __init__(
        self,
        bound: SearchSpace,
        *,
        sampler: str,
        seed: int,
        storage: str | None,
        study_name: str,
        known: Known | None,
        similar: Sequence[Config],
        owner: str,
        enumerate_below: int,
    ) -> None:
        quiet_optuna()
        self._owner = owner
        self._candidates = make_candidates(bound)
        self._axes = self._candidates.axes
        self._distributions = distributions(self._axes)
        self._queue = self._fixed_proposals(bound, similar, sampler, enumerate_below, seed)
        self._log = StudyLog(make_storage(storage), study_name, self._axes)
        self._open: dict[int, tuple[Trial, int, Point]] = {}
        finished = self._resume(known)
        finished += self._add_known(bound, known or {}, {str(t.user_attrs.get(KEY)) for t in finished})
        # The number of trials so far is part of the seed: a study that goes on does not wish for the same again.
        rng = np.random.default_rng([seed, len(finished)])
        self._own = self._own_sampler(int(rng.integers(2**31))) if sampler == OWN else None
        inner = self._own or inner_sampler(sampler, int(rng.integers(2**31)))
        self._sampler = ValidSampler(inner, self._candidates, rng)
        self._study = optuna.create_study(sampler=self._sampler, pruner=optuna.pruners.NopPruner())
        self._study.add_trials(finished)
        ended = {params_point(trial.params, self._axes) for trial in finished}
        self._plain_left = {self._candidates.point(config) for config in bound.plain()} - ended

    @property
    def study_name(self) -> str:
        """See ``Proposer.study_name``."""
        return self._log.name

    def ask(self) -> Proposal | None:
        """See ``Proposer.ask``."""
        if self._candidates.exhausted:
            return None
        source: Source = "sampler"
        for fixed, fixed_source in self._queue:
            if self._candidates.take(fixed):
                self._sampler.force(fixed)
                source = fixed_source
                break
        trial = self._study.ask()
        _ = trial.relative_params  # makes the sampler choose: Optuna leaves it to the first parameter
        point = self._sampler.chosen
        if point is None:
            self._study.tell(trial, state=TrialState.FAIL)
            return None
        suggest(trial, point, self._axes)
        config = self._candidates.config(point)
        trial_id = self._log.add(self._logged(point, config, source))
        number = self._log.number(trial_id)
        self._open[number] = (trial, trial_id, point)
        return Proposal(number, config, source)

    def tell(self, proposal: Proposal, outcome: Outcome, value_us: float | None) -> None:
        """See ``Proposer.tell``."""
        if outcome not in (Outcome.TIMED, Outcome.PRUNED):
            value_us = None
        if outcome is Outcome.TIMED and value_us is None:
            raise ValueError(f"a timed config must have a time, but trial {proposal.number} has none")
        if value_us is not None and not 0.0 < value_us < math.inf:
            raise ValueError(f"a time must be positive and finite microseconds, but got {value_us!r}")
        trial, trial_id, point = self._close(proposal)
        self._plain_left.discard(point)
        value = None if value_us is None else math.log(value_us)
        if outcome is Outcome.TIMED:
            self._study.tell(trial, value)
            self._log.finish(trial_id, TrialState.COMPLETE, outcome, value=value)
        else:
            if value is not None:
                trial.report(value, step=0)
            self._study.tell(trial, state=TrialState.PRUNED)
            self._log.finish(trial_id, TrialState.PRUNED, outcome, intermediate=value)

    def learn(self, config: Config, outcome: Outcome, value_us: float | None) -> None:
        """See ``Proposer.learn``. The process that found it has logged it."""
        point = self._candidates.point(config)
        if self._candidates.take(point):
            self._plain_left.discard(point)
            self._study.add_trial(self._logged(point, config, "known", outcome, value_us))

    def withdraw(self, proposal: Proposal) -> None:
        """See ``Proposer.withdraw``."""
        trial, trial_id, point = self._close(proposal)
        self._candidates.release(point)
        self._study.tell(trial, state=TrialState.FAIL)
        self._log.finish(trial_id, TrialState.FAIL)

    def chance_of_better(self) -> float | None:
        """See ``Proposer.chance_of_better``."""
        if self._own is None or self._plain_left or len(self._study.get_trials(deepcopy=False)) < LEAST_TO_GO_BY:
            return None
        return self._own.chance_of_better(self._study)

    def expected_gain(self) -> float | None:
        """See ``Proposer.expected_gain``."""
        return None if self._own is None else self._own.expected_gain

    def close(self) -> None:
        """See ``Proposer.close``."""
        self._log.close()

    def _close(self, proposal: Proposal) -> tuple[Trial, int, Point]:
        if proposal.number not in self._open:
            raise ValueError(f"trial {proposal.number} is not open: it was told already, or not asked for here")
        return self._open.pop(proposal.number)

    def _own_sampler(self, seed: int) -> FiniteSampler | None:
        """The sampler of our own, where the space can be listed."""
        listed = self._candidates.points()
        if listed is None:
            return None
        points = list(listed)
        rows = [point_params(point, self._axes) for point in points]
        features = feature_matrix(self._axes, points)
        return FiniteSampler(self._distributions, rows, features, seed, logarithms=True, retry_failed=True)

    def _fixed_proposals(
        self, bound: SearchSpace, similar: Sequence[Config], sampler: str, enumerate_below: int, seed: int
    ) -> Iterator[tuple[Point, Source]]:
        """Plain configs, then similar problems' winners, then the walk where there is one.

        An iterator: it goes on where the last ask stopped.
        """
        listed = self._candidates.points()
        every = None if listed is None else list(listed)
        if sampler == "exhaustive" and every is None:
            raise UsageError(
                "the search space is too large for the sampler exhaustive; choose auto or narrow the space"
            )
        walk: list[Point] = []
        if every is not None and (sampler == "exhaustive" or len(every) <= enumerate_below):
            walk = [every[i] for i in np.random.default_rng(seed).permutation(len(every))]
        plain: list[tuple[Point, Source]] = [(self._candidates.point(c), "plain") for c in bound.plain()]
        like: list[tuple[Point, Source]] = [
            (p, "similar") for c in similar if (p := self._point_or_none(c)) is not None
        ]
        return iter([*plain, *like, *((point, "enumeration") for point in walk)])

    def _point_or_none(self, config: Config) -> Point | None:
        try:
            point = self._candidates.point(config)
        except KeyError:
            return None
        return point if self._candidates.is_valid(point) else None

    def _resume(self, known: Known | None) -> list[FrozenTrial]:
        """Takes what the study has tried, gives up what a dead process left in flight, returns what has finished.

        What a living process has in flight is not taken: who works on what is not decided here, and it may die.
        """
        finished = []
        for trial in self._log.trials():
            try:
                point = params_point(trial.params, self._axes)
            except (KeyError, ValueError):
                continue  # a trial that another tool added
            owner = str(trial.user_attrs.get(OWNER, ""))
            if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
                if known is not None and trial.user_attrs.get(KEY) not in known:
                    continue  # of a source that is no more
                self._candidates.take(point)
                finished.append(trial)
            elif trial.state is TrialState.RUNNING and (owner == self._owner or owner_is_gone(owner)):
                self._log.finish(trial._trial_id, TrialState.FAIL)
        return finished

    def _add_known(self, bound: SearchSpace, known: Known, done: set[str]) -> list[FrozenTrial]:
        """Takes every known config that this space has, and adds those that the study does not have yet."""
        added: list[FrozenTrial] = []
        if not known:
            return added
        points = self._candidates.points()
        for point in (self._candidates.point(c) for c in bound.plain()) if points is None else points:
            config = self._candidates.config(point)
            if config.key not in known:
                continue
            self._candidates.take(point)
            if config.key not in done:
                outcome, value_us = known[config.key]
                trial = self._logged(point, config, "known", outcome, value_us)
                self._log.add(trial)
                added.append(trial)
        return added

    def _logged(
        self,
        point: Point,
        config: Config,
        source: Source,
        outcome: Outcome | None = None,
        value_us: float | None = None,
    ) -> FrozenTrial:
        """The trial of a point: running where there is no outcome."""
        params = point_params(point, self._axes)
        attributes: dict[str, Any] = {KEY: config.key, CONFIG: config.label, SOURCE: source, OWNER: self._owner}
        state, value = TrialState.RUNNING, None
        if outcome is not None:
            attributes[OUTCOME] = str(outcome)
            state = TrialState.PRUNED
            if outcome is Outcome.TIMED and value_us is not None:
                state, value = TrialState.COMPLETE, math.log(value_us)
        return create_trial(
            state=state,
            value=value,
            params=params,
            distributions={name: self._distributions[name] for name in params},
            user_attrs=attributes,
        )
