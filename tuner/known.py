"""What the database knows of a bound space's configs, so that nothing is run twice."""

from __future__ import annotations

from tuner.config import Config
from tuner.errors import ConfigError
from tuner.space import BoundSpace
from tuner.store.records import StoredTrial, StudySpec
from tuner.store.store import Store
from tuner.tickets import TicketOffice


def known_trials(store: Store, bound: BoundSpace, office: TicketOffice, spec: StudySpec) -> dict[str, StoredTrial]:
    """What is known of this space's configs, by key: same source, arguments, device and stack, and the same check."""
    stored = store.known_trials(spec.problem.key, spec.device.key, spec.stack.key)
    known: dict[str, StoredTrial] = {}
    for trial in stored.by_program.values():
        config = same_or_none(bound, trial.config)
        if config is None or office.variant(config).hash != trial.variant_hash:
            continue
        if trial.check_report is None or trial.check_report.promise == office.candidate(config).promise:
            known[config.key] = trial
    return known


def same_or_none(bound: BoundSpace, config: Config) -> Config | None:
    """``config`` as this bound space makes it, or None where the space does not contain it."""
    if config.template not in bound.templates:
        return None
    searched = bound.domain(config.template)
    values = config.values
    if any(name not in values for name in searched):
        return None
    try:
        same = bound.config(config.template, {name: values[name] for name in searched})
    except ConfigError:
        return None
    return same if same.key == config.key else None
