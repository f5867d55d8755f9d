"""The page about the schema, from the models and the views.

``python -m tuner.store.schema_page docs/schema.md`` writes it; a test holds the page to it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Index, Table, UniqueConstraint, inspect
from sqlalchemy.dialects import postgresql

from tuner.store.engine import locate, open_engine
from tuner.store.migrating import HEAD, migrate
from tuner.store.models import Base

_HEAD = f"""# The schema

Generated from `tuner/store/models.py` by `python -m tuner.store.schema_page docs/schema.md`; revision {HEAD}.
[db/README.md](../db/README.md) says how it changes, and [db/schema.sql](../db/schema.sql) has it as SQL.

Times are microseconds (`_us`), durations seconds (`_s`), moments UTC. What is keyed by its content (devices, stacks,
problems, variants, spaces) has the same key in every database. Optuna's own tables stand beside these.
"""


def schema_page() -> str:
    """The page, in Markdown."""
    parts = [_HEAD, "## Tables"]
    parts += [_table(mapper.class_.__doc__ or "", mapper.local_table) for mapper in _mappers()]
    parts += ["## Views", "For reading by hand.", _views()]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _mappers() -> list[Any]:
    return sorted(Base.registry.mappers, key=lambda mapper: str(mapper.local_table.name))


def _table(said: str, table: Table) -> str:
    lines = [
        f"### `{table.name}`",
        "",
        " ".join(said.split()).replace("``", "`"),
        "",
        "| column | type | | meaning |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{c.name}` | {_type(c)} | {_key(c)} | {c.doc or ''} |" for c in table.columns]
    indexes = [*_names(table, Index), *_names(table, UniqueConstraint)]
    if indexes:
        lines += ["", f"Indexes: {'; '.join(indexes)}."]
    return "\n".join(lines)


def _type(column: Column[Any]) -> str:
    name = column.type.compile(dialect=postgresql.dialect()).lower()  # type: ignore[no-untyped-call]
    short = {"double precision": "double", "timestamp with time zone": "moment", "integer": "integer"}
    text = short.get(name, name.replace("character varying", "varchar"))
    return f"{text}, or null" if column.nullable else text


def _key(column: Column[Any]) -> str:
    words = ["key"] if column.primary_key else []
    words += [f"-> `{key.column.table.name}`" for key in column.foreign_keys]
    return ", ".join(words)


def _names(table: Table, kind: type[Index] | type[UniqueConstraint]) -> list[str]:
    found: list[Any] = [*table.indexes, *table.constraints]
    unique = kind is UniqueConstraint
    columns = sorted(", ".join(f"`{c.name}`" for c in each.columns) for each in found if isinstance(each, kind))
    return [f"{names} (unique)" if unique else names for names in columns]


def _views() -> str:
    engine = open_engine(locate("sqlite://"), write=True, busy_timeout_s=0.0, foreign_keys=False)
    try:
        with engine.connect() as connection:
            migrate(connection, "the database in memory")
            inspector = inspect(connection)
            columns = {view: inspector.get_columns(view) for view in sorted(inspector.get_view_names())}
    finally:
        engine.dispose()
    named = {view: ", ".join(f"`{found['name']}`" for found in each) for view, each in columns.items()}
    rows = [f"| `{view}` | {names} |" for view, names in named.items()]
    return "\n".join(["| view | columns |", "|---|---|", *rows])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_page(), encoding="utf-8")
