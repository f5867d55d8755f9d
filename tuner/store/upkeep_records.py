"""What the upkeep of a database says: frozen values, without a reference to any database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DAMAGE, SCHEMA, REFERENCE, CONTENT, WINNER = "damage", "schema", "reference", "content", "winner"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    ``kind``: ``damage`` (the file), ``schema``, ``reference`` (a row names one that is not there), ``content`` (a row
    cannot be read, or is not what its key says) or ``winner`` (it was chosen from what may not be chosen). ``where``
    is the table and the row; ``problem`` and ``remedy`` are in words.
    """

    kind: str
    where: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class Soundness:
    """What ``check_database`` found. ``rows`` counts what was looked at, by table; ``revision`` is the schema's.

    ``notes`` say what is no fault of the database: what could not be looked at, or where it lies.
    """

    database: str
    revision: str | None
    rows: Mapping[str, int]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


@dataclass(frozen=True)
class Upgrade:
    """A database's schema before and after ``upgrade_database``; the same where it was the newest already."""

    database: str
    before: str
    after: str


@dataclass(frozen=True)
class Merge:
    """What ``merge_database`` added, in rows by table. ``unproven`` counts the variants that came from elsewhere.

    They are not run before this installation's templates render them, or somebody says that they are trusted.
    """

    database: str
    other: str
    added: Mapping[str, int]
    unproven: int


@dataclass(frozen=True)
class Backup:
    """A copy that ``backup_database`` made: its path and size in bytes. ``whole`` is False where Optuna's tables, which
    hold no result of their own, are not in it."""

    database: str
    path: str
    bytes: int
    whole: bool


@dataclass(frozen=True)
class Pruning:
    """What ``prune_database`` deletes, or would: rows by table, and about how many bytes of content.

    ``done`` says which. ``kept`` counts the trials that are old enough and stay, because a winner needs them or their
    study is being run.
    """

    database: str
    rows: Mapping[str, int]
    bytes: int
    kept: int
    done: bool


@dataclass(frozen=True)
class DatabaseStats:
    """How large a database is. ``tables``: rows of each of ours; ``table_bytes``: with indexes, where it can be told.

    ``bytes`` is all of it, Optuna's tables included; ``bytes_per_trial`` what one trial adds on average (0.0 without
    trials). ``unproven``: variants from a merged database that were not rendered here.
    """

    database: str
    revision: str
    bytes: int
    tables: Mapping[str, int]
    table_bytes: Mapping[str, int]
    bytes_per_trial: float
    unproven: int
    notes: tuple[str, ...] = ()
