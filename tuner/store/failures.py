"""Drivers' exceptions, as one-line ``StoreError``; and which of them only mean "wait"."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tuner.errors import StoreError

# Serialization failure and deadlock (PostgreSQL), deadlock and lock wait (MySQL): the transaction may be tried again.
_TRY_AGAIN = frozenset({"40001", "40P01", "1213", "1205"})


def is_busy(error: BaseException) -> bool:
    """Whether ``error`` says that somebody else holds a lock and the whole transaction may be tried again."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return (getattr(cause, "sqlite_errorcode", 0) & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    code = (
        getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or next(iter(getattr(cause, "args", ())), "")
    )
    return str(code) in _TRY_AGAIN


def explain(error: BaseException, label: str) -> StoreError:
    """What went wrong with the database ``label`` (never with a password), in one line with what to do."""
    cause: BaseException | None = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF if isinstance(cause, sqlite3.Error) else 0
    if cause is not None and is_busy(cause):
        return StoreError(f"{label}: another process keeps the database locked; wait for it, or name another with --db")
    said = {
        sqlite3.SQLITE_NOTADB: "is not a SQLite database; name another file with --db",
        sqlite3.SQLITE_CORRUPT: "the database is damaged; restore a backup, or name another file with --db",
        sqlite3.SQLITE_FULL: "the disk is full; free some space and run the same command again",
        sqlite3.SQLITE_READONLY: "the database cannot be written; check its permissions, or name another with --db",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened; check the folder and its permissions, or name another with --db",
        sqlite3.SQLITE_TOOBIG: "a value in it is larger than any that this program writes; restore a backup",
        sqlite3.SQLITE_IOERR: "reading or writing failed; check the disk, or name another file with --db",
    }
    if code in said:
        return StoreError(f"{label}: {said[code]}")
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return StoreError(f"{label}: {lines[0].strip()}")


@contextmanager
def explained(label: str) -> Iterator[None]:
    """Turns whatever a driver or SQLAlchemy raises inside into a ``StoreError`` about the database ``label``."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise explain(error, label) from error
