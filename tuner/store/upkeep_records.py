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
