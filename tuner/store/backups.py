"""A copy of a database that is one moment's, while others write to it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from tuner.errors import StoreError
from tuner.store.engine import connect_read_only
from tuner.store.failures import explained
from tuner.store.merging import join
from tuner.store.opening import open_database
from tuner.store.transactions import Database
from tuner.store.upkeep_records import Backup


def back_up(source: Database, path: Path) -> Backup:
    """Writes a SQLite file at ``path``, which must not exist. It is there whole, or not at all.

    Of a SQLite database it is the whole file; of another one our tables, without Optuna's. Raises ``StoreError``.
    """
    path = path.expanduser().absolute()
    if path.exists():
        raise StoreError(f"{path} exists already; name another file, or delete it first")
    if not path.parent.is_dir():
        raise StoreError(f"{path}: the folder {path.parent} does not exist; create it, or name another file")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial.db")
    whole = source.location.path is not None
    try:
        partial.touch()  # where that fails it is the copy's folder, and not the source, that is at fault
        if source.location.path is not None:
            _copy_file(source.location.path, partial, source)
        else:
            _copy_rows(source, partial)
        _into_one_file(partial)
        os.link(partial, path)  # unlike a rename, it does not replace what has come to be there
    except FileExistsError:
        raise StoreError(f"{path} exists already; name another file, or delete it first") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be written ({error.strerror}); name another file") from None
    finally:
        for leftover in partial.parent.glob(f"{partial.name}*"):
            leftover.unlink(missing_ok=True)
    return Backup(source.location.label, str(path), path.stat().st_size, whole)


def _copy_file(source: Path, target: Path, database: Database) -> None:
    with explained(database.location.label):
        reading = connect_read_only(source, database.busy_timeout_s)
        try:
            writing = sqlite3.connect(target)
            try:
                # All pages in one step: a step is one transaction, and between two others might write.
                reading.backup(writing, pages=-1)
            finally:
                writing.close()
        finally:
            reading.close()


def _into_one_file(path: Path) -> None:
    """Without a write-ahead log, the file alone is the database."""
    writing = sqlite3.connect(path)
    try:
        writing.execute("PRAGMA journal_mode = DELETE")
    finally:
        writing.close()


def _copy_rows(source: Database, target: Path) -> None:
    copy = open_database(str(target), create=True, write=True, busy_timeout_s=source.busy_timeout_s)
    try:
        source.snapshot(lambda connection: join(copy, connection, None))
    finally:
        copy.close()
