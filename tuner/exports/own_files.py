"""Reads files that lie where a table is, or is to be: they may be a stranger's, of any size, and links to anywhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

from tuner.errors import UsageError

MOST_BYTES = 16 * 2**20
"""A larger file is none that this program wrote."""
MOST_PARSED_BYTES = 2 * 2**20
"""A larger file is compared and not looked into: its syntax tree would take a hundred times its size."""


def is_inside(name: str) -> bool:
    """Whether ``name`` is the path of a file below a folder, as this program writes one: no link out of it, no ``..``.

    ``""`` is the table itself, where that is one file.
    """
    if name == "":
        return True
    path = PurePosixPath(name)
    plain = name.isprintable() and "\\" not in name and len(name) < 1000
    return plain and not path.is_absolute() and str(path) == name and ".." not in path.parts and name != "."


def place(folder: Path, name: str) -> Path:
    """The file ``name`` below ``folder``. Raises ``UsageError`` where it, or a link on the way, leads out of it."""
    path = folder / name
    if not is_inside(name) or not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(folder)):
        raise UsageError(f"{path} leads out of {folder}; remove it, or choose another --output")
    return path


def read(path: Path, most: int = MOST_BYTES) -> bytes | None:
    """The content of a plain file; None where there is none. Raises ``UsageError`` where it cannot be read as one."""
    try:
        # Without waiting for the other end of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}; choose another --output") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"cannot read {path}: it is no plain file; choose another --output")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise UsageError(f"cannot read {path}: it has more than {most >> 20} MiB; choose another --output")
    return data
