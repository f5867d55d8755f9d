"""Brings a database to the newest schema with the shipped Alembic migrations, one process at a time."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from tuner.errors import StoreError
from tuner.shipped import migrations_dir
from tuner.store.models import VERSION_TABLE, Base

HEAD = "0004"
"""The newest revision; a test holds it to the migrations folder, so that opening need not load Alembic."""

_ADVISORY_LOCK = 0x74756E6572  # "tuner"


def refuse_unknown(revision: str | None, label: str) -> None:
    """Raises ``StoreError`` where ``revision`` is none that this program knows."""
    if revision is None or revision == HEAD or revision in known_revisions():
        return
    raise StoreError(
        f"{label} was written by a newer version of this program (schema revision {revision!r}, this one knows up to "
        f"{HEAD!r}); upgrade this program, or name another database with --db"
    )


def known_revisions() -> frozenset[str]:
    """Every revision in the migrations folder."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    return frozenset(script.revision for script in ScriptDirectory.from_config(config).walk_revisions())


def migrate(connection: Connection, label: str) -> None:
    """Upgrades to ``HEAD`` in the writing transaction that ``connection`` is in: all of it or nothing.

    On SQLite the connection must not enforce foreign keys; they are checked at the end. Raises ``StoreError``.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
    # Another process may have done it while this one waited for the lock.
    revision = current_revision(connection)
    refuse_unknown(revision, label)
    if revision != HEAD:
        upgrade(connection)
        _check_foreign_keys(connection, label)


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Runs the migrations in the transaction that ``connection`` is in."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def schema_differences(connection: Connection) -> list[str]:
    """What the database has otherwise than the models say, one line each, of our tables only."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def ours(name: str | None, kind: str, parents: object) -> bool:
        return kind != "table" or name in Base.metadata.tables

    context = MigrationContext.configure(
        connection,
        opts={
            "version_table": VERSION_TABLE,
            "compare_type": True,
            "compare_server_default": True,
            "include_name": ours,
        },
    )
    found: list[str] = []
    for change in compare_metadata(context, Base.metadata):
        # Changes of one column come as a list, others as one tuple: what would have to be done, and to what.
        for done, *to in change if isinstance(change, list) else [change]:
            words = [
                str(getattr(thing, "name", thing)) for thing in to if isinstance(thing, str) or hasattr(thing, "name")
            ]
            found.append(f"not as the models say: {done.replace('_', ' ')} {' '.join(words)} would mend it")
    return found


def current_revision(connection: Connection) -> str | None:
    """The revision of our schema, None where there is none yet."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    row = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).fetchone()
    return None if row is None else str(row[0])


def _check_foreign_keys(connection: Connection, label: str) -> None:
    if connection.dialect.name != "sqlite":
        return
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        raise StoreError(
            f"{label}: upgrading would leave rows of {broken[0]} without what they refer to; left as it was"
        )
