"""Refuses SQLite files whose schema would do something by itself: whoever opens a stranger's file runs its triggers.

A table may be a view that never ends, a column may be computed, a trigger may change what is written. None of these is
in a schema that this program or Optuna made.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection

from tuner.errors import StoreError

# Optuna's: a column is a number, or one of some words. Read after every quoted text was made empty.
_PLAIN_CHECK = re.compile(r"CHECK\s*\(\s*(?:\w+|'')\s*(?:=\s*\d+|IN\s*\(\s*''(?:\s*,\s*'')*\s*\))\s*\)", re.IGNORECASE)
_COMPUTES = re.compile(r"\b(?:CHECK|GENERATED|AS|COLLATE|VIRTUAL)\b|\bDEFAULT\s*\(", re.IGNORECASE)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)


def refuse_active_schema(connection: sqlite3.Connection, label: str, tables: Collection[str]) -> None:
    """Raises ``StoreError`` where ``tables`` (those that are there) or anything on them is more than stored rows."""
    for kind, name, table, sql in connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"):
        if kind == "trigger":
            raise _refusal(label, f"the trigger {name!r}")
        if table not in tables or sql is None:
            continue
        plain = _PLAIN_CHECK.sub("", _QUOTED.sub("''", str(sql)))
        if kind == "table" and (not plain.upper().startswith("CREATE TABLE") or _COMPUTES.search(plain)):
            raise _refusal(label, f"the table {name!r}, which computes")
        if kind == "index" and _computes_index(connection, table, name):
            raise _refusal(label, f"the index {name!r}, which computes")
        if kind == "view":
            raise _refusal(label, f"a view in place of the table {name!r}")


def _computes_index(connection: sqlite3.Connection, table: str, name: str) -> bool:
    """Whether it is over an expression, or over part of the rows."""
    columns = connection.execute("SELECT cid FROM pragma_index_xinfo(?)", (name,)).fetchall()
    partial = connection.execute("SELECT partial FROM pragma_index_list(?) WHERE name = ?", (table, name)).fetchone()
    return any(cid == -2 for (cid,) in columns) or partial is None or bool(partial[0])


def _refusal(label: str, what: str) -> StoreError:
    return StoreError(
        f"{label} has {what[:100]}: it would act by itself, and neither this program nor Optuna made it; "
        "drop it if you trust it, or name another database with --db"
    )
