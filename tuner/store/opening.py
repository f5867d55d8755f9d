"""Opening a database: look first, refuse with a reason, then create or migrate. What is refused is left as it was."""

from __future__ import annotations

from functools import partial

from tuner.errors import OlderSchemaError, StoreError
from tuner.store.engine import Location, locate, open_engine
from tuner.store.idle_engines import leave_engine, take_engine
from tuner.store.inspection import refuse_unusable_path, sqlite_revision
from tuner.store.location import default_path
from tuner.store.migrating import HEAD, current_revision, migrate, refuse_unknown
from tuner.store.transactions import Database


def open_database(url: str, *, create: bool, write: bool, busy_timeout_s: float) -> Database:
    """See ``Store.open``."""
    location = locate(url)
    if not write:
        create = False
    _look(location, create=create, write=write, busy_timeout_s=busy_timeout_s)
    engine = take_engine(location, write=write, busy_timeout_s=busy_timeout_s)
    leave = partial(leave_engine, engine, location, write=write, busy_timeout_s=busy_timeout_s)
    database = Database(engine, location, busy_timeout_s, leave)
    try:
        if location.path is None:
            revision = database.read(current_revision)
            _refuse(revision, location, create=create, write=write)
            if revision != HEAD:
                database.write(partial(migrate, label=location.label))
        elif write:
            _migrate_file(database)
    except BaseException:
        engine.dispose()
        raise
    database.revision = HEAD
    return database


def stored_revision(url: str, busy_timeout_s: float) -> str:
    """The schema of the database as it is; nothing is changed. Raises ``StoreError`` where it has none of ours."""
    location = locate(url)
    if location.path is not None:
        refuse_unusable_path(location.path, location.label, create=False, write=False)
        revision = sqlite_revision(location.path, location.label, busy_timeout_s)
    else:
        engine = open_engine(location, write=False, busy_timeout_s=busy_timeout_s)
        try:
            revision = Database(engine, location, busy_timeout_s).read(current_revision)
        finally:
            engine.dispose()
    refuse_unknown(revision, location.label)
    if revision is None:
        raise StoreError(f"{location.label} holds no results yet; run `tuner tune` first, or name another with --db")
    return revision


def _look(location: Location, *, create: bool, write: bool, busy_timeout_s: float) -> None:
    """Everything that can be said of a SQLite file before anything of it is changed."""
    if location.path is None:
        return
    if create and location.path == default_path().absolute():
        try:
            location.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            folder = location.path.parent
            said = f"the folder {folder} cannot be created ({error.strerror})"
            raise StoreError(f"{said}; name another file with --db or TUNER_DB") from None
    refuse_unusable_path(location.path, location.label, create=create, write=write)
    _refuse(sqlite_revision(location.path, location.label, busy_timeout_s), location, create=create, write=write)


def _refuse(revision: str | None, location: Location, *, create: bool, write: bool) -> None:
    refuse_unknown(revision, location.label)
    if revision is None and not create:
        raise StoreError(f"{location.label} holds no results yet; run `tuner tune` first, or name another with --db")
    if revision != HEAD and not write:
        said = f"{location.label} has an older schema ({revision!r}; this program wants {HEAD!r})"
        raise OlderSchemaError(f"{said}; open it once with a command that writes, so that it is upgraded")


def _migrate_file(database: Database) -> None:
    """Migrates where needed, on connections of their own that do not enforce foreign keys while tables are rebuilt."""
    if database.read(current_revision) == HEAD:
        return
    engine = open_engine(database.location, write=True, busy_timeout_s=database.busy_timeout_s, foreign_keys=False)
    try:
        migrating = Database(engine, database.location, database.busy_timeout_s)
        migrating.write(partial(migrate, label=database.location.label))
    finally:
        engine.dispose()
