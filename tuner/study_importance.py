"""``tuner.importance``: which parameters of a study mattered, and which values were never good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.config import Value
from tuner.errors import UsageError
from tuner.store.records import StoredTrial
from tuner.store.store import reading
from tuner.trial import Outcome

EVALUATORS = {
    "ped-anova": "how much a parameter decides whether a config is among the best tenth",
    "fanova": "how much of the times' variance a parameter explains (needs scikit-learn)",
}

LEAST_TRIED = 5
"""A value is called never good only where at least so many configs with it were tried."""

NEVER_GOOD = 1.1
"""And where the best of them is this many times slower than the best of the study, or none has a time."""

LEAST_TIMED = 8
"""Timed configs of a template without which nothing is said about its parameters."""


@dataclass(frozen=True)
class ValueRecord:
    """One value of a parameter: how many configs with it were tried, and how many have a time. ``best_ratio``: the best
    of their times over the study's best (None: none has a time)."""

    value: Value
    tried: int
    timed: int
    best_ratio: float | None

    @property
    def never_good(self) -> bool:
        """Whether it was tried often enough, and was never within 10 % of the best."""
        return self.tried >= LEAST_TRIED and (self.best_ratio is None or self.best_ratio > NEVER_GOOD)


@dataclass(frozen=True)
class ParameterImportance:
    """``share``: of what the template's parameters explain together (None: too few timed configs to say)."""

    name: str
    share: float | None
    values: tuple[ValueRecord, ...]

    @property
    def never_good(self) -> tuple[Value, ...]:
        """The values that can be left out of the search space, as far as this study saw."""
        return tuple(record.value for record in self.values if record.never_good)


@dataclass(frozen=True)
class TemplateImportance:
    """One template of the study, with the parameters that vary in it. ``best_ratio`` as of a value."""

    template: str
    tried: int
    timed: int
    best_ratio: float | None
    parameters: tuple[ParameterImportance, ...]


@dataclass(frozen=True)
class StudyImportance:
    """``estimated``: whether its times are estimates. Templates come in the order of their best times."""

    study: str
    evaluator: str
    estimated: bool
    best_us: float
    templates: tuple[TemplateImportance, ...]


def importance(study: str, *, evaluator: str = "ped-anova", db: str | None = None) -> StudyImportance:
    """Which parameters of a stored study mattered, and which of their values were never good.

    ``study``: a name, number or unique beginning of a name. ``evaluator``: ``ped-anova`` or ``fanova``; both are
    Optuna's. A value that the sampler turned away from was tried less often: the counts are there to judge by. Raises
    ``UsageError`` where there is no such study, evaluator, or timed config; ``MissingError`` for a missing library.
    """
    if evaluator not in EVALUATORS:
        raise UsageError(f"unknown evaluator {evaluator!r}; choose one of {', '.join(EVALUATORS)}")
    with reading(db) as store:
        detail = store.study(study)
    tried = [entry.trial for entry in detail.trials]
    times = [trial.value_us for trial in tried if _time_us(trial) is not None]
    best_us = min((time for time in times if time is not None), default=None)
    if best_us is None:
        raise UsageError(f"no config of {detail.summary.name} has a time yet; let `tuner tune` go on")
    by_template: dict[str, list[StoredTrial]] = {}
    for trial in tried:
        by_template.setdefault(trial.config.template, []).append(trial)
    found = [_template(name, trials, best_us, evaluator) for name, trials in by_template.items()]
    found.sort(key=lambda t: (t.best_ratio is None, t.best_ratio))
    return StudyImportance(detail.summary.name, evaluator, detail.summary.estimated, best_us, tuple(found))


def _template(name: str, trials: Sequence[StoredTrial], best_us: float, evaluator: str) -> TemplateImportance:
    from tuner.search.importance import shares

    names = [n for n in trials[0].config.chosen if all(n in trial.config.values for trial in trials)]
    timed = [(trial, time) for trial in trials if (time := _time_us(trial)) is not None]
    explained: dict[str, float] = {}
    if len(timed) >= LEAST_TIMED:
        values = [{n: trial.config.values[n] for n in names} for trial, _ in timed]
        explained = shares(values, [time for _, time in timed], evaluator)
    parameters = []
    for parameter in names:
        records = _values(parameter, trials, best_us)
        if len(records) > 1:
            share = explained.get(parameter, 0.0) if explained else None
            parameters.append(ParameterImportance(parameter, share, records))
    parameters.sort(key=lambda p: -(p.share or 0.0))
    best = min((time for _, time in timed), default=None)
    return TemplateImportance(
        name, len(trials), len(timed), None if best is None else best / best_us, tuple(parameters)
    )


def _values(name: str, trials: Sequence[StoredTrial], best_us: float) -> tuple[ValueRecord, ...]:
    groups: dict[tuple[bool, Value], list[StoredTrial]] = {}
    for trial in trials:
        value = trial.config.values[name]
        groups.setdefault((isinstance(value, bool), value), []).append(trial)
    records = []
    for (_, value), having in groups.items():
        times = [time for trial in having if (time := _time_us(trial)) is not None]
        records.append(ValueRecord(value, len(having), len(times), min(times) / best_us if times else None))
    return tuple(sorted(records, key=lambda r: (isinstance(r.value, str), r.value)))


def _time_us(trial: StoredTrial) -> float | None:
    return trial.value_us if trial.outcome is Outcome.TIMED else None
