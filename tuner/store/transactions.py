"""Short transactions that wait for others instead of failing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from tuner.store.engine import WRITES, Location
from tuner.store.failures import explained, is_busy

T = TypeVar("T")

_CONFLICTS = 10


class Database:
    """An open database: runs a function in one transaction, again where another process was in the way."""

    def __init__(self, engine: Engine, location: Location, busy_timeout_s: float) -> None:
        self.engine = engine
        self.location = location
        self.busy_timeout_s = busy_timeout_s

    def read(self, work: Callable[[Connection], T]) -> T:
        """``work`` in a transaction that reads. Raises ``StoreError``."""
        return self._run(work, writes=False)

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
