"""What a database is before it is touched: new, ours, Optuna's, foreign, damaged or from the future."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from tuner.errors import StoreError
from tuner.store.active_schema import refuse_active_schema
from tuner.store.engine import connect_read_only
from tuner.store.failures import explained
from tuner.store.models import VERSION_TABLE

_MAGIC = b"SQLite format 3\x00"
_CHECKED_BYTES = 16 * 2**20
"""Files up to this size are checked as a whole on opening; a larger one shows its damage where it is read."""

# Files that were looked through, as they were then: a program that asks for winners opens one file often.
_FOUND_SOUND: set[tuple[str, int, int, int]] = set()
_MOST_REMEMBERED = 64

OPTUNA_TABLES = frozenset(
    {
        "alembic_version",
        "studies",
        "study_directions",
        "study_system_attributes",
        "study_user_attributes",
        "trials",
        "trial_heartbeats",
        "trial_intermediate_values",
        "trial_params",
        "trial_system_attributes",
        "trial_user_attributes",
        "trial_values",
        "version_info",
    }
)


def refuse_unusable_path(path: Path, label: str, *, create: bool, write: bool) -> None:
    """Raises ``StoreError`` where the file or its folder cannot be what is asked for. Touches nothing."""
    if path.is_dir():
        raise StoreError(f"{label} is a folder; name a file in it with --db")
    folder = path.parent
    if not folder.is_dir():
        raise StoreError(f"{label}: the folder {folder} does not exist; create it, or name another file with --db")
    missing = not path.exists() or path.stat().st_size == 0
    if missing and not (create and write):
        raise StoreError(f"there is no database at {label} yet; run `tuner tune` first, or name another")
    if path.exists() and not os.access(path, os.R_OK):
        raise StoreError(f"{label} may not be read; check its permissions, or name another file with --db")
    if not write:
        return
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreError(f"{label} may not be written; check its permissions, or name another file with --db")
    if not os.access(folder, os.W_OK):
        raise StoreError(f"{label}: the folder {folder} may not be written; choose another file with --db")


def sqlite_revision(path: Path, label: str, busy_timeout_s: float, *, whole: bool = True) -> str | None:
    """The revision of our schema in the file, None where it has none yet. The file is only read.

    ``whole``: a small file is looked through for damage.

    Raises ``StoreError`` where it is no SQLite database, is damaged, is locked, or belongs to something else.
    """
    if not path.exists() or path.stat().st_size == 0:
        return None
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise StoreError(f"{label} is not a SQLite database; name another file with --db")
    with explained(label):
        resting = _resting(path)
        if resting is not None:
            try:
                return _inspected(path, label, busy_timeout_s, whole, immutable=True)
            except (StoreError, sqlite3.Error):
                if _resting(path) == resting:
                    raise
        return _inspected(path, label, busy_timeout_s, whole, immutable=False)


def _resting(path: Path) -> tuple[int, int] | None:
    """Time and size of a file in WAL mode that nobody has open; such a file can be read without leaving side files."""
    with open(path, "rb") as file:
        in_wal_mode = file.read(20)[18:20] == b"\x02\x02"
    if not in_wal_mode or path.with_name(path.name + "-wal").exists():
        return None
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def _state(path: Path) -> tuple[str, int, int, int]:
    stat = path.stat()
    return str(path), stat.st_ino, stat.st_mtime_ns, stat.st_size


def _inspected(path: Path, label: str, busy_timeout_s: float, whole: bool, *, immutable: bool) -> str | None:
    connection = connect_read_only(path, busy_timeout_s, immutable=immutable)
    try:
        return _revision(connection, path, label, whole)
    finally:
        connection.close()


def _revision(connection: sqlite3.Connection, path: Path, label: str, whole: bool) -> str | None:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    names = {row[0] for row in found if not row[0].startswith("sqlite_")}
    refuse_active_schema(connection, label, {n for n in names if n.startswith("tuner_") or n in OPTUNA_TABLES})
    state = _state(path)
    if whole and state[-1] <= _CHECKED_BYTES and state not in _FOUND_SOUND:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            said = str(verdict).splitlines()[0]
            raise StoreError(f"{label}: the database is damaged ({said}); restore a backup, or name another with --db")
        if len(_FOUND_SOUND) >= _MOST_REMEMBERED:
            _FOUND_SOUND.clear()
        _FOUND_SOUND.add(state)
    if VERSION_TABLE in names:
        row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
        if row is not None:
            return str(row[0])
    if ours := sorted(name for name in names if name.startswith("tuner_")):
        raise StoreError(f"{label}: has the table {ours[0]} but no schema revision; restore a backup")
    if foreign := sorted(names - OPTUNA_TABLES):
        raise StoreError(f"{label} belongs to another program (table {foreign[0]!r}); name another file with --db")
    return None
