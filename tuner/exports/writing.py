"""Writes a table: every file whole or not at all, and never over a file that is not ours."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import UsageError
from tuner.exports.own_files import place, read
from tuner.exports.provenance import read_provenance, sha256, sidecar_path


@dataclass(frozen=True)
class Destination:
    """Where a table goes: ``path`` is a file or a folder, as the format has it."""

    path: Path
    single_file: bool

    def file(self, name: str) -> Path:
        """The file of a table's ``name`` (``""``: the path itself). Raises ``UsageError`` where it leads elsewhere."""
        return place(self.path, name) if name else self.path

    @property
    def sidecar(self) -> Path:
        """The provenance beside it."""
        name = sidecar_path(self.single_file)
        return self.path.with_name(self.path.name + name) if self.single_file else self.path / name


@dataclass(frozen=True)
class State:
    """What lies at a destination. ``foreign``: not written by us; ``changed``: ours, and not as we wrote it.

    ``known`` is whether a readable provenance is there; ``missing`` are files that it names and that are gone.
    """

    known: bool
    foreign: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def state(destination: Destination, names: Iterable[str] = ()) -> State:
    """How what is there compares with its provenance. ``names``: further files that are looked for."""
    recorded: Mapping[str, str] = {}
    sidecar = read(destination.sidecar)
    data = None if sidecar is None else read_provenance(sidecar.decode("utf-8", "replace"))
    if data is not None:
        recorded = data["files"]
    changed, foreign, missing = [], [], []
    for name in sorted({*recorded, *names}):
        found = read(destination.file(name))
        if found is None:
            missing += [name] if name in recorded else []
        elif name not in recorded:
            foreign.append(name)
        elif sha256(found) != recorded[name]:
            changed.append(name)
    if sidecar is not None and data is None:
        changed.append(destination.sidecar.name)
    return State(data is not None, tuple(foreign), tuple(changed), tuple(missing), dict(recorded))


def write(destination: Destination, files: Mapping[str, str], sidecar: str, *, replace: bool) -> list[Path]:
    """Writes ``files`` and the provenance; files of our last export that are not among them any more are removed.

    A foreign file is never written over; what was changed by hand since only with ``replace``. Raises ``UsageError``,
    and then nothing was written.
    """
    before = state(destination, files)
    for name in before.foreign:
        if read(destination.file(name)) != files[name].encode():
            raise UsageError(
                f"{destination.file(name)} was not written by `tuner export`, so it is not replaced; "
                "choose another path, or move it away"
            )
    if before.changed and not replace:
        shown = destination.file(before.changed[0]) if before.changed[0] in files else destination.sidecar
        raise UsageError(f"{shown} was changed since it was exported; keep a copy and add --replace")
    try:
        for name in files:
            destination.file(name).parent.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            _write_whole(destination.file(name), text)
        # Last: with a crash before this, what is there does not match its provenance, and that is said.
        _write_whole(destination.sidecar, sidecar)
        for name in before.files.keys() - files.keys() - set(before.changed):
            destination.file(name).unlink(missing_ok=True)
    except OSError as error:
        place = error.filename or destination.path
        raise UsageError(f"cannot write {place}: {error.strerror}; choose another --output") from error
    return [*(destination.file(name) for name in files), destination.sidecar]


def _write_whole(path: Path, text: str) -> None:
    """Beside it, then renamed over it: a reader sees the old file or the new one."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        # A new file: nothing that somebody has put there is opened.
        with partial.open("x", encoding="utf-8", newline="\n") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
