"""The part of the Python API that looks after a database. Import it from ``tuner``.

Every function takes ``db``: an SQLAlchemy URL or a path to an SQLite file (None: ``TUNER_DB``, else one file in the
user's data folder), and raises ``StoreError`` where the database cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from tuner.errors import StoreError, UsageError
from tuner.regression.points import read_moment
from tuner.store import pruning, sizes
from tuner.store.backups import back_up
from tuner.store.engine import Location, locate
from tuner.store.location import default_url
from tuner.store.merging import join
from tuner.store.migrating import HEAD
from tuner.store.network_files import network_warnings
from tuner.store.opening import open_database, stored_revision
from tuner.store.soundness import check_soundness
from tuner.store.store import BUSY_TIMEOUT_S
from tuner.store.transactions import Database
from tuner.store.upkeep_records import Backup, DatabaseStats, Merge, Pruning, Soundness, Upgrade


def check_database(*, db: str | None = None) -> Soundness:
    """Whether the database is whole, and every row in it is what it says. Nothing is changed.

    Looks at the file's integrity (SQLite), the schema against the models, references, stored sources, configs,
    problems, devices and samples against their hashes, every cell against its column's type and range, and whether
    every winner was checked, right and measured.
    """
    return check_soundness(db or default_url(), BUSY_TIMEOUT_S)


def upgrade_database(*, db: str | None = None) -> Upgrade:
    """Brings the database to this program's schema, all of it or nothing. Every command that writes does so too."""
    url = db or default_url()
    before = stored_revision(url, BUSY_TIMEOUT_S)
    with _opened(url, write=True) as database:
        return Upgrade(database.location.label, before, HEAD)


def backup_database(path: str | Path, *, db: str | None = None) -> Backup:
    """Copies the database as it is at one moment to a new SQLite file; others may go on writing meanwhile.

    Of PostgreSQL it takes our tables, not Optuna's, which hold no result of their own. Raises ``StoreError`` where the
    file exists already, and then writes nothing.
    """
    with _opened(db or default_url(), write=False) as database:
        return back_up(database, Path(path))


def merge_database(other: str, *, db: str | None = None) -> Merge:
    """Joins the database ``other`` into this one; nothing is there twice afterwards.

    Databases may be joined in any order and repeatedly, with the same content in the end. Of two results of one config
    the better-informed stays: wrong, then timed, then other failures. ``other`` is only read, and must be sound
    (``check_database``). Variants that come with it are marked: their source is not run before this installation's
    templates render it, or somebody says that it is trusted.
    """
    found = check_soundness(other, BUSY_TIMEOUT_S)
    if not found.sound:
        first = found.findings[0]
        raise StoreError(f"{found.database} is not merged: {first.where}: {first.problem}; {first.remedy}")
    url = db or default_url()
    if _are_one(locate(other), locate(url)):
        raise UsageError(f"{found.database} cannot be merged into itself; name another with --db")
    with _opened(other, write=False) as source, _opened(url, write=True, create=True) as database:
        origin = source.location.label[-255:]
        added = source.snapshot(lambda connection: join(database, connection, origin))
        unproven = database.read(sizes.unproven)
        return Merge(database.location.label, source.location.label, added, unproven)


def prune_database(
    before: str | datetime, *, operator: str | None = None, yes: bool = False, db: str | None = None
) -> Pruning:
    """What would go of results that were last changed before a date or moment (UTC); with ``yes`` it goes.

    Kept are all trials that a winner chose, was compared with or tied with, and those of studies that are being run.
    Trials go with their measurements; sources, studies, problems and the like go where nothing names them any more. On
    SQLite the file gets smaller.
    """
    moment = read_moment(before, "--before") if isinstance(before, str) else before
    with _opened(db or default_url(), write=yes) as database:
        free, kept = database.read(lambda c: pruning.unneeded(c, moment, operator))
        rows = database.read(lambda c: pruning.count_rows(c, free))
        size = database.read(lambda c: pruning.content_bytes(c, free))
        if yes:
            for part in pruning.parts(free):
                database.write(lambda c, ids=part: pruning.delete_trials(c, ids))  # type: ignore[misc]
            rows |= database.write(lambda c: pruning.delete_orphans(c, moment))
            database.compact()
        return Pruning(database.location.label, rows, size, kept, yes)


def database_stats(*, db: str | None = None) -> DatabaseStats:
    """Rows and bytes by table, and what a trial adds."""
    with _opened(db or default_url(), write=False) as database:
        notes = network_warnings(database.location.path)
        return database.read(lambda c: sizes.stats(c, database.location.label, HEAD, notes))


def _are_one(one: Location, other: Location) -> bool:
    """Whether both are one database; a file may have several names."""
    if one.path is None or other.path is None or not (one.path.exists() and other.path.exists()):
        return one.url == other.url
    return one.path.samefile(other.path)


@contextmanager
def _opened(url: str, *, write: bool, create: bool = False) -> Iterator[Database]:
    database = open_database(url, create=create, write=write, busy_timeout_s=BUSY_TIMEOUT_S)
    try:
        yield database
    finally:
        database.close()
