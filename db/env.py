"""Alembic's environment. The program hands in its connection; by hand: ``alembic -c db/alembic.ini -x db=URL ...``."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine, pool

VERSION_TABLE = "tuner_alembic_version"  # Optuna keeps its own in alembic_version, in the same database


def run(connection: Connection) -> None:
    context.configure(connection=connection, version_table=VERSION_TABLE, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


def run_by_hand() -> None:
    url = context.get_x_argument(as_dictionary=True).get("db")
    if url is None:
        raise SystemExit("name the database: alembic -c db/alembic.ini -x db=sqlite:///file.db ...")
    if context.is_offline_mode():
        context.configure(url=url, version_table=VERSION_TABLE, literal_binds=True)
        with context.begin_transaction():
            context.run_migrations()
        return
    with create_engine(url, poolclass=pool.NullPool).begin() as connection:
        run(connection)


handed_in = context.config.attributes.get("connection")
if handed_in is not None:
    run(handed_in)
else:
    run_by_hand()
