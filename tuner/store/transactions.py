"""Short transactions that wait for others instead of failing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from tuner.errors import StoreError, TunerError
from tuner.store.engine import WRITES, Location
from tuner.store.failures import explained, is_busy
from tuner.store.models import VERSION_TABLE
from tuner.store.typed import typed

T = TypeVar("T")

_CONFLICTS = 10
# What making values of a row raises where its content is not what was stored.
_UNREADABLE = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Database:
    """An open database: runs a function in one transaction, again where another process was in the way.

    Once ``revision`` is set, nothing is written where the schema has another one by then: another version of this
    program may have changed it since.
    """

    def __init__(
        self, engine: Engine, location: Location, busy_timeout_s: float, leave: Callable[[], None] | None = None
    ) -> None:
        self.engine = engine
        self._leave = leave or engine.dispose
        self.location = location
        self.busy_timeout_s = busy_timeout_s
        self.revision = ""

    def close(self) -> None:
        """Closes every connection. It cannot be relied on afterwards."""
        self._leave()

    def read(self, work: Callable[[Connection], T]) -> T:
        """``work`` in a transaction that reads. Raises ``StoreError``, also for a row that nothing here wrote."""
        try:
            return typed(self._run(work, writes=False))
        except TunerError:
            raise
        except _UNREADABLE as error:
            raise StoreError(
                f"{self.location.label} has a row that cannot be read ({type(error).__name__}: {error}); "
                "it was damaged or edited: restore a backup, or use another database"
            ) from None

    def snapshot(self, work: Callable[[Connection], T]) -> T:
        """``work`` in one transaction that reads, and that sees the database as it was when it began."""
        options = {} if self.engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
        connecting = self.engine.connect().execution_options(**options)
        with explained(self.location.label), connecting as connection, connection.begin():
            return work(connection)

    def compact(self) -> None:
        """Gives the space of deleted rows back, where that is not done by itself (SQLite)."""
        if self.location.path is not None:
            with explained(self.location.label), self.engine.connect() as connection:
                # As the driver's own statement: it must not be in a transaction, and every connection here begins one.
                connection.connection.driver_connection.execute("VACUUM")  # type: ignore[union-attr]

    def write(self, work: Callable[[Connection], T]) -> T:
        """``work`` in a transaction that writes; it must give the same when it is run again. Raises ``StoreError``."""
        return self._run(work, writes=True)

    def _run(self, work: Callable[[Connection], T], *, writes: bool) -> T:
        deadline = time.monotonic() + self.busy_timeout_s
        conflicts = 0
        with explained(self.location.label):
            while True:
                try:
                    with self.engine.connect().execution_options(**{WRITES: writes}) as connection, connection.begin():
                        if writes and self.revision:
                            self._refuse_other_revision(connection)
                        return work(connection)
                except IntegrityError:
                    # Two processes added the same row at once (not on SQLite, which lets in one at a time).
                    conflicts += 1
                    if not writes or conflicts > _CONFLICTS:
                        raise
                except DBAPIError as error:
                    if not is_busy(error) or time.monotonic() > deadline:
                        raise
                time.sleep(random.uniform(0.005, 0.05))

    def _refuse_other_revision(self, connection: Connection) -> None:
        found = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()
        if found != self.revision:
            raise StoreError(
                f"{self.location.label}: another version of this program changed its schema meanwhile (from "
                f"{self.revision!r} to {found!r}); nothing was written: run the same command again with that version"
            )
