"""The store: the one door to the database. Values go in, values come out; every write is one short transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self

from tuner.config import Config
from tuner.device import Device, Stack
from tuner.errors import OlderSchemaError
from tuner.problem import Problem
from tuner.store import claims, queries, runs, studies, trials, winners
from tuner.store.history import History
from tuner.store.location import default_url
from tuner.store.network_files import network_warnings
from tuner.store.opening import open_database
from tuner.store.records import (
    Claim,
    KnownTrials,
    StoredTrial,
    StoredWinner,
    StudyDetail,
    StudyRecord,
    StudySpec,
    StudySummary,
    WinnerRecord,
)
from tuner.store.transactions import Database
from tuner.trial import Measurement, TrialRecord
from tuner.variant import Variant

__all__ = ["BUSY_TIMEOUT_S", "Store", "default_url", "reading"]

BUSY_TIMEOUT_S = 60.0
"""How long to wait for another process's lock."""


class Store:
    """An open database. Use as a context manager, or ``close()`` it. It may be shared between threads.

    Every method raises ``StoreError`` where the database cannot be used; what was asked for is then not done at all.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(
        cls, url: str, *, create: bool = True, write: bool = True, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> Store:
        """Opens ``url`` (any SQLAlchemy URL, or a path ending in .db, .sqlite, .sqlite3) at the newest schema.

        Without ``create`` a database that is not there is an error; without ``write`` nothing at all is changed, so a
        read-only file will do. Raises ``StoreError`` with one line, never with the URL's password, and leaves the
        database as it was: not a database, damaged, foreign, from a newer program, locked, or not writable.
        """
        return cls(open_database(url, create=create, write=write, busy_timeout_s=busy_timeout_s))

    def close(self) -> None:
        """Closes every connection. The store cannot be relied on afterwards."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The SQLAlchemy URL, password included: for Optuna's storage, not for people."""
        return self._database.location.url.render_as_string(hide_password=False)

    @property
    def label(self) -> str:
        """The database's path or URL for people, without a password."""
        return self._database.location.label

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its user should know of where the database lies; mostly nothing."""
        return network_warnings(self._database.location.path)

    # Writes

    def start_study(self, spec: StudySpec) -> StudyRecord:
        """Starts the study, or goes on with the one of the same problem, device, stack, space and mode.

        Other processes may be running it: ``claim`` decides who works on what. One process runs a study once at a time.
        """
        return self._database.write(partial(studies.start, spec=spec))

    def heartbeat(self, study_id: int, wall_s: float | None = None, gpu_busy_s: float | None = None) -> bool:
        """A sign of life of this process's run, with its seconds so far (those of other runs are added).

        False where this process runs no such study.
        """
        return self._database.write(lambda c: runs.sign_of_life(c, study_id, wall_s, gpu_busy_s))

    def claim(
        self, study_id: int, config: Config, variant_hash: str, promise: str, *, most: int | None = None
    ) -> Claim:
        """Takes a config for this process, so that of all that run on this database none else works on it.

        ``known``: it has a result that holds for ``promise``, which now belongs to the study. ``taken``: a living
        process works on it. ``full``: the study holds ``most`` trials, with those that its runs work on. The claim ends
        with ``record_trial``, ``give_back``, ``finish_study`` or the process: what a dead one held may be claimed
        again, on its host at once and on others after a minute without a sign of life.
        """
        return self._database.write(lambda c: claims.claim(c, study_id, config, variant_hash, promise, most))

    def give_back(self, study_id: int, config: Config, variant_hash: str) -> None:
        """Ends this process's claim without a result."""
        self._database.write(lambda c: claims.give_back(c, study_id, config, variant_hash))

    def record_trial(self, study_id: int, record: TrialRecord, variant: Variant) -> int:
        """Stores a trial with its variant and measurements, and links it to the study. Returns the trial's id.

        One key is one trial: recorded again, the better-informed outcome stays (wrong, then timed, then other failures,
        then pruned) and new measurements are added. Raises ``ValueError`` on a number that is not finite.
        """
        values, measurements = trials.prepared(record, variant)
        return self._database.write(lambda c: trials.record(c, study_id, values, measurements, variant))

    def record_result(
        self, problem: Problem, device: Device, stack: Stack, record: TrialRecord, variant: Variant
    ) -> int:
        """As ``record_trial``, for a result that belongs to no study: what is known of it is shared all the same."""
        values, measurements = trials.prepared(record, variant)
        place = (problem, device, stack)
        return self._database.write(lambda c: trials.record_alone(c, place, values, measurements, variant))

    def reuse_trial(self, study_id: int, trial_id: int) -> None:
        """Links a trial that another study, or an earlier run, found."""
        self._database.write(lambda c: trials.reuse(c, study_id, trial_id))

    def record_measurements(self, trial_id: int, measurements: Iterable[Measurement]) -> tuple[int, ...]:
        """Adds later measurements to a trial; the same twice is kept once. Returns their ids, in the order given."""
        given = tuple(measurements)
        return self._database.write(lambda c: trials.add_measurements(c, trial_id, given))

    def record_winner(self, study_id: int, winner: WinnerRecord) -> int:
        """Adds a winner of the study. Raises ``ValueError`` unless its trial was timed, for that study's problem."""
        return self._database.write(lambda c: winners.record(c, study_id, winner))

    def finish_study(self, study_id: int, state: str, wall_s: float, gpu_busy_s: float) -> None:
        """Ends this process's run as ``finished`` or ``interrupted``, with its seconds (those of other runs are added).

        Its claims are given back. The study stays ``running`` while others run it.
        """
        self._database.write(lambda c: studies.finish(c, study_id, state, wall_s, gpu_busy_s))

    # Reads

    def known_trials(self, problem_key: str, device_key: str, stack_key: str) -> KnownTrials:
        """What any study has found: a mapping by ``Config.key``, and ``find(config, variant_hash)``.

        Without measurements (``trial`` has them).
        """
        return self._database.read(lambda c: trials.known(c, problem_key, device_key, stack_key))

    def timed_binaries(self, problem_key: str, device_key: str, stack_key: str) -> dict[str, StoredTrial]:
        """The timed trial of each compiled binary, by binary hash."""
        return self._database.read(lambda c: trials.timed_binaries(c, problem_key, device_key, stack_key))

    def trials_since(self, study_id: int, ordinal: int) -> list[tuple[int, StoredTrial]]:
        """The study's trials from the place ``ordinal`` on, in order, with their places and without measurements."""
        return self._database.read(lambda c: trials.since(c, study_id, ordinal))

    def trial(self, trial_id: int) -> StoredTrial:
        """One trial, with its measurements."""
        return self._database.read(lambda c: trials.one(c, trial_id))

    def best(
        self, problem: Problem, device_name: str | None, *, estimated: bool = False, stack_key: str | None = None
    ) -> StoredWinner | None:
        """The winner for the problem on the device; None where there is none.

        Of each study only its newest winner counts; of those on the stack that was used last, the fastest is given.
        ``device_name``: in any case, whole or a part that only one has; also a device's key. With ``estimated`` an
        estimated winner is given where no measured one is. Raises ``UsageError`` listing the devices where several fit.
        """
        return self._database.read(lambda c: winners.best(c, problem, device_name, estimated, stack_key))

    def studies(
        self,
        *,
        operator: str | None = None,
        device: str | None = None,
        state: str | None = None,
        limit: int | None = None,
    ) -> list[StudySummary]:
        """The studies, last changed first. ``device`` is part of a device's name."""
        return self._database.read(lambda c: queries.studies(c, operator, device, state, limit))

    def study(self, reference: str | int) -> StudyDetail:
        """Everything about a study, by name, id, or the beginning of a name. Raises ``UsageError`` with close names."""
        return self._database.read(lambda c: queries.study(c, reference))

    @property
    def history(self) -> History:
        """The reads of comparisons over time and stacks."""
        return History(self._database)

    def variant(self, hash_or_prefix: str) -> Variant:
        """A variant by its hash, or the beginning of it. Raises ``UsageError``."""
        return self._database.read(lambda c: trials.variant(c, hash_or_prefix))

    def variant_origin(self, variant_hash: str) -> str | None:
        """The database that a variant was merged from; None where it was rendered by who wrote to this one."""
        return self._database.read(lambda c: trials.variant_origin(c, variant_hash))

    def variant_source(self, hash_or_prefix: str) -> str:
        """The source of ``variant``."""
        return self.variant(hash_or_prefix).source


@contextmanager
def reading(url: str | None) -> Iterator[Store]:
    """The database at ``url`` (None: the default one) for reading; it must be there. Raises ``StoreError``.

    One of an older schema is upgraded on the way, where it may be written; the results in it stay as they are.
    """
    url = url or default_url()
    try:
        store = Store.open(url, create=False, write=False)
    except OlderSchemaError:
        Store.open(url, create=False).close()
        store = Store.open(url, create=False, write=False)
    with store:
        yield store
