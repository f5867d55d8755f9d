"""Optuna's storage, in the same database as ours. Its tables and ours have different names."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from sqlalchemy.engine import make_url

from tuner.errors import StoreError
from tuner.store.network_files import network_type

SQLITE_TIMEOUT_S = 60
CREATE_ATTEMPTS = 5

_REFUSALS = (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError)


def make_storage(url: str | None) -> BaseStorage:
    """The storage at a SQLAlchemy URL, its tables made where they are missing; in memory where ``url`` is None.

    SQLite gets a write-ahead log and waits up to 60 s for another writer, so that the store and the search can write to
    one file from several processes. Raises ``StoreError`` where the database cannot be used.
    """
    if url is None:
        return InMemoryStorage()
    try:
        sqlite = make_url(url).get_backend_name() == "sqlite"
        local = sqlite and network_type(Path(make_url(url).database or "")) is None
        if local:
            _use_write_ahead_log(url)
        storage = _create(url, {"connect_args": {"timeout": SQLITE_TIMEOUT_S}} if sqlite else None)
    except (*_REFUSALS, ImportError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        raise StoreError(f"the search cannot use the database {_shown(url)}: {first}") from error
    if sqlite:
        sqlalchemy.event.listen(storage.engine, "connect", _on_connect if local else _without_log)
        sqlalchemy.event.listen(storage.engine, "begin", _on_begin)
        storage.scoped_session.remove()
        storage.engine.dispose()
    return storage


def _create(url: str, engine_kwargs: dict[str, Any] | None) -> RDBStorage:
    """Two processes may find the tables missing at the same moment; the later one then finds them there."""
    for attempt in range(CREATE_ATTEMPTS - 1):
        try:
            return RDBStorage(url, engine_kwargs=engine_kwargs)
        except _REFUSALS as error:
            if "exist" not in str(error) and "UNIQUE" not in str(error) and "locked" not in str(error):
                raise
            time.sleep(0.2 * (attempt + 1))
    return RDBStorage(url, engine_kwargs=engine_kwargs)


def quiet_optuna() -> None:
    """Optuna reports each trial on stderr by default; our own progress does that."""
    if optuna.logging.get_verbosity() < logging.WARNING:
        optuna.logging.set_verbosity(optuna.logging.WARNING)


def _use_write_ahead_log(url: str) -> None:
    engine = sqlalchemy.create_engine(url, connect_args={"timeout": SQLITE_TIMEOUT_S})
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    finally:
        engine.dispose()


def _without_log(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin as we say


def _on_connect(connection: Any, _record: Any) -> None:
    # NORMAL: with a write-ahead log a killed process loses nothing; only a power cut may lose the last commits, and
    # what the search was told is in the store's own tables, which decide.
    connection.isolation_level = None  # transactions begin as we say
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _on_begin(connection: sqlalchemy.Connection) -> None:
    # Optuna reads first and writes then; where another process wrote in between, SQLite refuses at once instead of
    # waiting. With the lock taken first it waits.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _shown(url: str) -> str:
    return make_url(url).set(query={}).render_as_string(hide_password=True)  # an option may hold one too
