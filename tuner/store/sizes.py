"""How large a database is, by table."""

from __future__ import annotations

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import OperationalError

from tuner.store.models import Base, TrialRow, VariantRow
from tuner.store.upkeep_records import DatabaseStats


def stats(connection: Connection, label: str, revision: str, notes: tuple[str, ...]) -> DatabaseStats:
    """Rows and bytes of everything of ours."""
    rows = row_counts(connection)
    sizes = _sqlite_sizes(connection) if connection.dialect.name == "sqlite" else _postgres_sizes(connection)
    whole, ours = sizes
    trials = rows[TrialRow.__tablename__]
    return DatabaseStats(
        database=label,
        revision=revision,
        bytes=whole,
        tables=rows,
        table_bytes={name: ours[name] for name in rows if name in ours},
        bytes_per_trial=(sum(ours.values()) or whole) / trials if trials else 0.0,
        unproven=unproven(connection),
        notes=notes,
    )


def row_counts(connection: Connection) -> dict[str, int]:
    """Rows of each of our tables."""
    return {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in Base.metadata.sorted_tables
    }


def unproven(connection: Connection) -> int:
    """Variants that came from another database and were not rendered here since."""
    counted = select(func.count()).select_from(VariantRow).where(VariantRow.origin.is_not(None))
    return int(connection.execute(counted).scalar_one())


def _sqlite_sizes(connection: Connection) -> tuple[int, dict[str, int]]:
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    whole = pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    found: dict[str, int] = {}
    try:
        # Compiled into most SQLite libraries, not into all.
        each = connection.exec_driver_sql(
            "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY m.tbl_name"
        )
        found = {name: int(size) for name, size in each if name in Base.metadata.tables}
    except OperationalError:
        pass
    return int(whole), found


def _postgres_sizes(connection: Connection) -> tuple[int, dict[str, int]]:
    whole = connection.execute(select(func.pg_database_size(func.current_database()))).scalar_one()
    size = text("SELECT pg_total_relation_size(to_regclass(:name))")
    return int(whole), {t: int(connection.execute(size, {"name": t}).scalar_one()) for t in Base.metadata.tables}
