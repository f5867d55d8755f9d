"""What kind of disk a path is on, and how much lies there."""

from __future__ import annotations

import os
from pathlib import Path

NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "fuse.sshfs", "fuse.glusterfs", "ceph"}
)
"""Where compile caches race on stale handles, and where SQLite's locks do not hold."""


def filesystem(path: Path, mounts: str | None = None) -> str:
    """The type of the file system that holds ``path`` (``ext4``, ``nfs4``); empty where it is not known.

    ``mounts`` is what ``/proc/mounts`` says (read by default).
    """
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    found, longest = "", -1
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = Path(fields[1].replace("\\040", " "))
        if path.resolve().is_relative_to(mount) and len(mount.parts) >= longest:
            found, longest = fields[2], len(mount.parts)
    return found


def existing_parent(path: Path) -> Path:
    """``path``, or the nearest folder above it that exists."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below ``folder``."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:  # another process removed it meanwhile
                continue
    return total
