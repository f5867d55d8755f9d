"""The part of the Python API that makes and checks tables. Import it from ``tuner``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from tuner.doctor import DoctorReport
from tuner.exports import exporting
from tuner.exports.exporting import ExportResult, FormatSummary
from tuner.exports.lookup_table import Lookup, read_lookup
from tuner.exports.selecting import Wanted, moment
from tuner.own_operators.files import stored_name
from tuner.store.store import reading


def export(
    format: str,
    path: str | Path,
    *,
    operator: str | None = None,
    device: str | None = None,
    since: str | datetime | None = None,
    estimated: bool = False,
    old_checks: bool = False,
    seed: bool = False,
    replace: bool = False,
    settings: Mapping[str, str] | None = None,
    db: str | None = None,
) -> ExportResult:
    """Write the stored winners as a table that another library loads, with its provenance beside it.

    ``format``: see ``export_formats``. ``operator``, ``device`` (part of a name) and ``since`` (a date, UTC) narrow it.
    Winners that are ``estimated``, and those whose check lacks what the check does now (``old_checks``), are left out
    unless asked for; formats whose consumer runs a kernel of its own are written only as a ``seed``. The same database
    gives the same bytes. Raises ``UsageError``, and then nothing is written: no winner is left, what was made breaks
    the format's rules, or a file at ``path`` is not ours (or was changed since, without ``replace``).
    """
    since = moment(since) if isinstance(since, str) else since
    wanted = Wanted(stored_name(operator), device, since, estimated, old_checks)
    with reading(db) as store:
        return exporting.export(store, format, Path(path), wanted, seed=seed, replace=replace, settings=settings)


def check_export(path: str | Path, *, db: str | None = None, winners: bool = True) -> DoctorReport:
    """Whether a table is as it was exported, still valid, and (with ``winners``) still what the database says.

    ``report.ok`` is False for one that is foreign, cut off, changed by hand or no longer valid; a warning says that the
    software or a winner is another now.
    """
    if not winners:
        return exporting.check_export(Path(path), None)
    with reading(db) as store:
        return exporting.check_export(Path(path), store)


def export_formats() -> list[FormatSummary]:
    """Every format that ``export`` knows, by name: the shipped ones, and those that other packages register."""
    return exporting.list_formats()


def lookup(operator: str, *, device: str | None = None, estimated: bool = False, db: str | None = None) -> Lookup:
    """The stored winners of ``operator`` on one device, in memory: ``lookup("softmax").best("bf16", (64, 512, 512))``.

    It reads the database once; asking it later is one look-up in a dictionary. ``device``: a part of its name. Raises
    ``UsageError`` where several devices have winners and none is named.
    """
    with reading(db) as store:
        return read_lookup(store, stored_name(operator), device, estimated=estimated)
