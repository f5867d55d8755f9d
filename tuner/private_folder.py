"""A folder that only its owner can use: what lies in the cache is run, so nobody else may put anything there."""

from __future__ import annotations

import os
from pathlib import Path

from tuner.errors import MissingError

_OTHERS_WRITE, _OTHERS = 0o022, 0o077


def make_private(folder: Path) -> None:
    """Make ``folder``, with those above it, or take it as it is, with mode 0700.

    Raises ``MissingError`` as ``refuse_shared`` does, ``OSError`` where it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    refuse_shared(folder)
    if folder.stat().st_mode & _OTHERS:
        folder.chmod(0o700)


def refuse_shared(folder: Path) -> None:
    """Raises ``MissingError`` where ``folder`` belongs to another user, or where others may write to it and something
    lies in it already, which then nobody can vouch for.
    """
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise MissingError(
            f"the cache folder {folder} belongs to another user (id {found.st_uid}), who could put code into it; "
            "set TUNER_CACHE to a folder of your own"
        )
    if found.st_mode & _OTHERS_WRITE and any(folder.iterdir()):
        raise MissingError(
            f"others may write to the cache folder {folder} (mode {found.st_mode & 0o777:o}), and what lies in it is "
            "run; delete it, or set TUNER_CACHE to another folder"
        )
