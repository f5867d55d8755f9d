"""What is remembered of a kernel's tuning: one study a problem, device, software stack, source and list of configs.

Nothing here may stop the user's program: where the database cannot be used, tuning goes on without memory, and says so.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from tuner.config import Config
from tuner.errors import StoreError, TunerError
from tuner.problem import Problem
from tuner.store.location import default_url
from tuner.store.records import FINISHED, INTERRUPTED, StoredTrial, StudyRecord, StudySpec, WinnerRecord
from tuner.store.store import Store, reading
from tuner.trial import Measurement, Outcome, TrialRecord
from tuner.variant import Variant

_LASTING = (Outcome.COMPILE_ERROR, Outcome.OUT_OF_RESOURCES, Outcome.WRONG)


def recall(url: str | None, spec: StudySpec) -> Config | None:
    """The newest winner of this very study; None where there is none, or no database."""
    return _recalled(url, spec.problem, spec.space_digest, spec)


def recall_anywhere(url: str | None, problem: Problem, space_digest: str) -> Config | None:
    """The newest winner on any device and software: the best guess where nothing can be measured."""
    return _recalled(url, problem, space_digest, None)


def _recalled(url: str | None, problem: Problem, space_digest: str, spec: StudySpec | None) -> Config | None:
    try:
        with reading(url) as store:
            for study in store.studies(operator=problem.operator):
                if study.space_digest != space_digest or study.problem != problem:
                    continue
                if spec is not None and study.stack != spec.stack:
                    continue
                detail = store.study(study.id)
                if detail.winner is not None and (spec is None or detail.device.key == spec.device.key):
                    return detail.winner.config
    except TunerError:
        return None  # nothing is stored there yet, or it cannot be read: what writes will say so
    return None


@dataclass(frozen=True)
class Held:
    """What configs are held to: ``promise`` is a hash of the reference and the rule, empty without a reference."""

    promise: str

    def settles(self, trial: StoredTrial) -> bool:
        """Whether ``trial`` says what would be found again.

        A crash is tried again: what a launch in the user's process raises may have had other causes. Without a
        reference, what any reference found wrong stays out.
        """
        checked = trial.check_report.promise if trial.check_report is not None else ""
        if trial.outcome is Outcome.WRONG:
            return not self.promise or checked == self.promise
        if trial.outcome is Outcome.TIMED:
            return checked == self.promise if self.promise else True
        return trial.outcome in _LASTING


class Ledger:
    """A study that is open for writing. Use it as a context manager; ``url`` None: the default database.

    ``remember`` False: nothing is read or written. ``winner_there``: the study's winner where it has one by now.
    """

    def __init__(self, url: str | None, spec: StudySpec, variant: Variant, *, remember: bool) -> None:
        self._url, self._spec, self._variant, self._remember = url or default_url(), spec, variant, remember
        self._store: Store | None = None
        self._study: StudyRecord | None = None
        self._started = time.monotonic()
        self.winner_there: Config | None = None
        self._ids: dict[str, int] = {}

    def __enter__(self) -> Self:
        if self._remember:
            try:
                self._store = Store.open(self._url)
                self.winner_there = recall(self._url, self._spec)
                self._study = self._store.start_study(self._spec)
            except StoreError as error:
                self._give_up(error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is None:
            return
        if self._study is not None:
            state = FINISHED if error is None else INTERRUPTED
            self._write(lambda store, study: store.finish_study(study, state, time.monotonic() - self._started, 0.0))
        if self._store is not None:
            self._store.close()

    @property
    def storage(self) -> tuple[str | None, str]:
        """Where the search may keep its own study, and under which name; None: nowhere."""
        if self._store is None or self._study is None:
            return None, "autotune"
        return self._store.url, self._study.optuna_name

    def known(self, held: Held) -> Mapping[str, StoredTrial]:
        """By config key, what is known of this source and settles the matter."""
        if self._store is None or self._study is None:
            return {}
        spec = self._spec
        try:
            trials = self._store.known_trials(spec.problem.key, spec.device.key, spec.stack.key)
        except StoreError as error:
            self._give_up(error)
            return {}
        return {
            trial.config.key: trial
            for trial in trials.by_program.values()
            if trial.variant_hash == self._variant.hash and held.settles(trial)
        }

    def reuse(self, trial: StoredTrial) -> None:
        """Count a known trial as part of this study."""
        self._ids[trial.config.key] = trial.id
        self._write(lambda store, study: store.reuse_trial(study, trial.id))

    def record(self, record: TrialRecord) -> None:
        """Store what became of a config."""

        def write(store: Store, study: int) -> None:
            self._ids[record.config.key] = store.record_trial(study, record, self._variant)

        self._write(write)

    def record_final(self, measurements: Mapping[str, Measurement]) -> None:
        """Store the interleaved samples of the finalists, by config key."""
        found = {self._ids[key]: measurement for key, measurement in measurements.items() if key in self._ids}
        self._write(lambda store, _: [store.record_measurements(trial, [m]) for trial, m in found.items()])

    def record_winner(self, config: Config, winner: WinnerRecord) -> None:
        """Store the choice; ``winner.trial_id`` is filled in."""
        if config.key in self._ids:
            chosen = replace(winner, trial_id=self._ids[config.key])
            self._write(lambda store, study: store.record_winner(study, chosen))

    def _write(self, write: Callable[[Store, int], object]) -> None:
        if self._store is None or self._study is None:
            return
        try:
            write(self._store, self._study.id)
        except StoreError as error:
            self._give_up(error)

    def _give_up(self, error: StoreError) -> None:
        kernel = self._spec.problem.operator
        warnings.warn(f"{kernel}: what tuning finds is not remembered: {error}", stacklevel=2)
        if self._store is not None:
            self._store.close()
        self._store = self._study = None
