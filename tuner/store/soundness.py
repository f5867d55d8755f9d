"""``check_database``: is a database whole, and are its rows what they say? It is only read."""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DatabaseError, DBAPIError

from tuner.errors import StoreError
from tuner.store.contents import content_findings, reference_findings, winner_findings
from tuner.store.engine import Location, locate, open_engine
from tuner.store.failures import explained
from tuner.store.inspection import refuse_unusable_path, sqlite_revision
from tuner.store.migrating import HEAD, current_revision, refuse_unknown, schema_differences
from tuner.store.network_files import network_warnings
from tuner.store.transactions import Database
from tuner.store.upkeep_records import DAMAGE, SCHEMA, Finding, Soundness

VIEWS = ("winners", "history", "failures")
_MOST_LINES = 100
_RESTORE = "restore a backup, or name another database with --db"


def check_soundness(url: str, busy_timeout_s: float) -> Soundness:
    """Integrity (SQLite), schema against models, references, hashes of content, and what winners point at.

    Raises ``StoreError`` where there is no database of ours to look at, or it is of a newer program.
    """
    location = locate(url)
    if location.path is not None:
        refuse_unusable_path(location.path, location.label, create=False, write=False)
        sqlite_revision(location.path, location.label, busy_timeout_s, whole=False)
    engine = open_engine(location, write=False, busy_timeout_s=busy_timeout_s)
    if location.path is not None:
        event.listen(engine, "connect", _read_any_text)
    try:
        database = Database(engine, location, busy_timeout_s)
        if damage := _damage(database):
            return Soundness(location.label, None, {}, tuple(damage))
        revision = database.read(current_revision)
        refuse_unknown(revision, location.label)
        if revision is None:
            raise StoreError(
                f"{location.label} holds no results yet; run `tuner tune` first, or name another with --db"
            )
        if revision != HEAD:
            older = f"it has the schema {revision}, and this program wants {HEAD}"
            finding = Finding(SCHEMA, "tuner_alembic_version", older, "run `tuner db upgrade`")
            return Soundness(location.label, revision, {}, (finding,))
        if differences := database.read(lambda c: _schema(c, location)):
            return Soundness(location.label, revision, {}, tuple(differences))
        return database.read(lambda c: _contents(c, location, revision))
    finally:
        engine.dispose()


def _read_any_text(connection: sqlite3.Connection, _: object) -> None:
    """What is not UTF-8 is read too, and found in its row; the driver would end the whole reading there."""
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")


def _damage(database: Database) -> list[Finding]:
    """What SQLite says of the file. PostgreSQL has checksums of its own, and nothing to ask here."""
    if database.location.path is None:
        return []
    try:
        with database.engine.connect() as connection:
            lines = [str(row[0]) for row in connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST_LINES})")]
    except DBAPIError as error:
        if not isinstance(error, DatabaseError) or _code(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            with explained(database.location.label):
                raise
        lines = [str(error.orig)]
    said = [" ".join(line.split()) for text in lines for line in text.splitlines() if not line.startswith("***")]
    return [Finding(DAMAGE, database.location.label, line, _RESTORE) for line in said if line != "ok"]


def _code(error: DBAPIError) -> int:
    return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF


def _schema(connection: Connection, location: Location) -> list[Finding]:
    said = schema_differences(connection)
    for view in VIEWS:
        try:
            with connection.begin_nested():
                connection.execute(text(f"SELECT * FROM {view} LIMIT 0"))
        except DatabaseError:
            said.append(f"the view {view} is missing or does not fit the tables")
    return [Finding(SCHEMA, location.label, line, _RESTORE) for line in said]


def _contents(connection: Connection, location: Location, revision: str) -> Soundness:
    rows, findings = content_findings(connection)
    # What winners were chosen from is looked at once their rows can be read at all.
    winners = [] if any(f.where.startswith("tuner_winner") for f in findings) else winner_findings(connection)
    every = (*reference_findings(connection), *findings, *winners)
    return Soundness(location.label, revision, rows, every, network_warnings(location.path))
