"""The study as it is kept: an Optuna study in the database, written trial by trial, that other tools can open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import optuna
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.canonical import canonical_json, digest
from tuner.errors import StoreError
from tuner.search.valid_sampler import Axes

AXES, OUTCOME = "axes", "outcome"


class StudyLog:
    """Trials in, trials out. Nobody samples from this study: reading it back for each suggestion would take longer than
    the suggestion. A started trial is written whole, in one transaction, so that a killed process leaves no half one.
    """

    def __init__(self, storage: BaseStorage, name: str, axes: Axes) -> None:
        self._storage = storage
        with store_errors():
            self._study = _open(storage, name, axes)
            self._study_id = storage.get_study_id_from_name(self._study.study_name)

    @property
    def name(self) -> str:
        """The name of the Optuna study."""
        return self._study.study_name

    def trials(self) -> list[FrozenTrial]:
        """Every trial so far."""
        with store_errors():
            return self._study.get_trials(deepcopy=False)

    def close(self) -> None:
        """Ends the storage's connections, so that the database's file is whole."""
        self._storage.remove_session()
        if isinstance(self._storage, RDBStorage):
            self._storage.engine.dispose()

    def add(self, trial: FrozenTrial) -> int:
        """Writes a trial, running or finished; returns its id in the storage."""
        with store_errors():
            return self._storage.create_new_trial(self._study_id, template_trial=trial)

    def number(self, trial_id: int) -> int:
        """The number that people see of a trial."""
        with store_errors():
            return self._storage.get_trial_number_from_id(trial_id)

    def finish(
        self,
        trial_id: int,
        state: TrialState,
        outcome: str = "",
        value: float | None = None,
        intermediate: float | None = None,
    ) -> None:
        """Closes a running trial. ``value`` and ``intermediate`` are logarithms of microseconds."""
        with store_errors():
            if outcome:
                self._storage.set_trial_user_attr(trial_id, OUTCOME, outcome)
            if intermediate is not None:
                self._storage.set_trial_intermediate_value(trial_id, 0, intermediate)
                value = intermediate  # as Optuna's own tell does for a pruned trial
            self._storage.set_trial_state_values(trial_id, state, None if value is None else [value])


def _open(storage: BaseStorage, name: str, axes: Axes) -> Study:
    """The study ``name``, or one beside it where that has other choices of values.

    Optuna cannot change a categorical parameter's choices, and an index means another value once a choice is added. So
    an extended space gets a study of its own, and the old results reach it as known ones.
    """
    values = {template: {a.name: list(a.values) for a in own} for template, own in axes.items()}
    text = canonical_json(values)
    for candidate in (name, f"{name} [{digest(values, 8)}]"):
        study = optuna.create_study(
            storage=storage,
            study_name=candidate,
            direction="minimize",
            load_if_exists=True,
            pruner=optuna.pruners.NopPruner(),
        )
        found = study.user_attrs.get(AXES)
        if found is None:
            study.set_user_attr(AXES, text)
            return study
        if found == text:
            return study
    raise StoreError(f"the Optuna study {name!r} was changed by something else; use another database or study name")


@contextmanager
def store_errors() -> Iterator[None]:
    """Turns what Optuna's storage raises into a ``StoreError``.

    Ctrl-C in the middle of a commit makes SQLAlchemy raise an error of its own: that is Ctrl-C all the same.
    """
    try:
        yield
    except optuna.exceptions.StorageInternalError as error:
        behind: BaseException | None = error
        while behind is not None:
            if isinstance(behind, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            behind = behind.__cause__ or behind.__context__
        first = str(error).strip().splitlines()[0]
        raise StoreError(f"the search cannot use its tables in the database: {first}") from error
