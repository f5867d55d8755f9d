"""Whether a file lies on a network file system, where SQLite's locks and its write-ahead log cannot be relied on.

SQLite says so itself: https://www.sqlite.org/useovernet.html, and of the log https://www.sqlite.org/wal.html, section
1: all processes must be on one machine.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

NETWORK_TYPES = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fhgfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "virtiofs",
        "wekafs",
    }
)
_FUSE = re.compile(
    r"fuse\.(sshfs|glusterfs|ceph(-fuse)?|s3fs|gcsfuse|rclone|juicefs|davfs2?|curlftpfs|smbnetfs|"
    r"cvmfs2?|lustre|moosefs|mfs|seaweedfs|goofys|blobfuse2?|weka(fs)?|beegfs|quobyte|nfs.*)"
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def network_type(path: Path, mounts: str | None = None) -> str | None:
    """The type of the network file system that ``path`` lies on, such as ``nfs4``; None where it is a local one.

    ``mounts``: the text of a mount table (proc(5), /proc/pid/mountinfo; None: this process's own). None also where
    there is no such table.
    """
    if mounts is None:
        try:
            mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    place = Path(os.path.realpath(path))
    found = ""
    longest = -1
    for line in mounts.splitlines():
        mounted, _, rest = line.partition(" - ")
        words = mounted.split(" ")
        if len(words) < 5 or not rest:
            continue
        point = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), words[4]))
        # The last of equals counts: it is mounted over the others.
        if place.is_relative_to(point) and len(point.parts) >= longest:
            longest, found = len(point.parts), rest.split(" ")[0]
    return found if found in NETWORK_TYPES or _FUSE.fullmatch(found) else None


def network_warnings(path: Path | None, mounts: str | None = None) -> tuple[str, ...]:
    """What people should know of a SQLite file at ``path``; nothing where it lies well, or is no file."""
    kind = None if path is None else network_type(path, mounts)
    if kind is None:
        return ()
    why = "where SQLite's locks cannot be relied on: several machines may damage it"
    remedy = "keep it on a local disk and join databases with `tuner db merge`, or use PostgreSQL"
    return (f"{path} lies on a network file system ({kind}), {why}; {remedy}",)
