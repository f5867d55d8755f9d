"""From a URL or a path to a SQLAlchemy engine. The one module with SQL that only SQLite understands."""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import QueuePool, StaticPool

from tuner.errors import StoreError
from tuner.plain_json import read_json, write_json
from tuner.store.failures import is_busy
from tuner.store.location import without_password
from tuner.store.network_files import network_type

SUFFIXES = (".db", ".sqlite", ".sqlite3")
WRITES = "tuner_writes"
"""The execution option of a connection whose transactions write."""

MOST_VALUE_BYTES = 32 * 2**20
"""No text or row of a SQLite file that is longer is read or written: one value must not fill memory."""

_JSON: dict[str, Any] = {"json_serializer": write_json, "json_deserializer": read_json}
_BUSY_PAUSE_S = 0.02
_EXAMPLES = "give a path ending in .db, sqlite:///file.db or postgresql+psycopg://user:password@host/name"


@dataclass(frozen=True)
class Location:
    """Where a database is. ``path`` is set for a SQLite file. ``label`` is for people, without password or options."""

    url: URL
    path: Path | None
    label: str

    @property
    def is_memory(self) -> bool:
        """Whether it is a SQLite database that ends with its connection."""
        return self.path is None and self.url.get_backend_name() == "sqlite"


def locate(text: str) -> Location:
    """Reads ``text``: any SQLAlchemy URL, or a path ending in .db, .sqlite or .sqlite3. Raises ``StoreError``."""
    if "://" not in text:
        if not text.endswith(SUFFIXES):
            raise StoreError(f"{without_password(text)!r} is neither a database URL nor a path of one; {_EXAMPLES}")
        return _file(Path(text))
    scheme = without_password(text.split("://", 1)[0])
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(f"the {scheme}:// database URL cannot be read; {_EXAMPLES}") from None
    if url.get_backend_name() == "sqlite":
        if url.drivername not in ("sqlite", "sqlite+pysqlite"):
            raise StoreError(f"{scheme}:// is not supported; use sqlite:///")
        if url.query or (url.database or "").startswith("file:"):
            raise StoreError("options in a sqlite:/// URL are not supported; use sqlite:///path/to/file.db")
        if url.database in (None, "", ":memory:"):
            return Location(URL.create("sqlite"), None, "the database in memory")
        return _file(Path(str(url.database)))
    return Location(url, None, url.set(query={}).render_as_string(hide_password=True))


def _file(path: Path) -> Location:
    path = path.expanduser().absolute()
    return Location(URL.create("sqlite", database=str(path)), path, str(path))


def open_engine(location: Location, *, write: bool, busy_timeout_s: float, foreign_keys: bool = True) -> Engine:
    """An engine for ``location``; connects to nothing yet. Raises ``StoreError`` on an unknown dialect or driver.

    Without ``foreign_keys`` they are not enforced, as SQLite wants it while tables are rebuilt.
    """
    if location.url.get_backend_name() == "sqlite":
        connect = partial(_connect_sqlite, location.path, write, busy_timeout_s, foreign_keys)
        pool = StaticPool if location.is_memory else QueuePool
        engine = create_engine("sqlite://", creator=connect, poolclass=pool, **_JSON)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    backend = location.url.get_backend_name()
    try:
        return create_engine(location.url, pool_pre_ping=True, **_JSON)
    except NoSuchModuleError:
        known = f"the database {location.url.drivername!r} is not known"
        raise StoreError(f"{known}; {_EXAMPLES}") from None
    except ModuleNotFoundError as error:
        wanted = f"{backend} needs the Python package {error.name}, which is not installed"
        raise StoreError(f"{location.label}: {wanted}; install it, or use a SQLite file") from None
    except (ArgumentError, TypeError) as error:
        raise StoreError(f"{location.label}: {str(error).splitlines()[0]}") from None


def read_only_uri(path: Path, *, immutable: bool = False) -> str:
    """The SQLite URI that opens ``path`` without writing; ``immutable`` also without its side files."""
    return f"file:{quote(str(path))}?mode=ro{'&immutable=1' if immutable else ''}"


def connect_read_only(path: Path, busy_timeout_s: float, *, immutable: bool = False) -> sqlite3.Connection:
    """Opens ``path`` for reading. Where its folder cannot be written: as ``immutable``, a file that nobody changes."""
    while True:
        connection = _connect(read_only_uri(path, immutable=immutable), busy_timeout_s)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection
        except sqlite3.OperationalError as error:
            connection.close()
            # A database in WAL mode needs its side files; without any pending, the file alone is the whole truth.
            needs_side_files = (error.sqlite_errorcode & 0xFF) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
            log = path.with_name(path.name + "-wal")
            pending = log.exists() and log.stat().st_size > 0
            fixed = not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
            if immutable or pending or not needs_side_files or not fixed:
                raise
            immutable = True
        except sqlite3.Error:
            connection.close()
            raise


def _connect(target: str, busy_timeout_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        target, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )
    # A file may come from anybody: its schema may call no function that can do harm, and its pages are not believed.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)
    return connection


def _connect_sqlite(path: Path | None, write: bool, busy_timeout_s: float, foreign_keys: bool) -> sqlite3.Connection:
    if path is not None and not write:
        connection = connect_read_only(path, busy_timeout_s)
    else:
        # mode=rwc also creates; whether that is wanted was decided before.
        target = ":memory:" if path is None else f"file:{quote(str(path))}?mode=rwc"
        connection = _connect(target, busy_timeout_s)
    try:
        connection.execute(f"PRAGMA busy_timeout = {int(busy_timeout_s * 1000)}")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")
        if write and path is not None:
            # Every commit reaches the disk before it returns: a power cut costs what was in flight, as a kill does.
            connection.execute("PRAGMA synchronous = FULL")
            # Processes of several machines cannot share a write-ahead log: there the rollback journal stays.
            if network_type(path) is None:
                _use_wal(connection, time.monotonic() + busy_timeout_s)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection, deadline: float) -> None:
    # Changing the mode does not wait for locks as other statements do, and two processes may open a new file at once.
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_PAUSE_S)


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later could find that the database has moved on; take the lock at once.
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
