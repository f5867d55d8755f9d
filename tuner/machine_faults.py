"""What a machine refuses whatever the program does: full or failing disks, limits. It says nothing of a candidate."""

from __future__ import annotations

import errno
import os
from pathlib import Path

REFUSALS = frozenset(
    {
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
    }
)
"""Error numbers of ``OSError``."""


def machine_fault(error: BaseException) -> str:
    """What the machine refused, where that is behind ``error`` (itself, or what it was raised from); else nothing."""
    pending: BaseException | None = error
    for _ in range(20):  # chains may be circular
        if pending is None:
            break
        if isinstance(pending, OSError) and (
            pending.errno in REFUSALS or "usable temporary directory" in str(pending) or _from_cache(pending)
        ):
            place = f": {pending.filename}" if pending.filename else ""
            return f"{pending.strerror or pending}{place}"
        pending = pending.__cause__ or pending.__context__
    return ""


def _from_cache(error: OSError) -> bool:
    """Whether a file of the cache is gone: the cache may be deleted at any time, also while a worker reads it."""
    cache = os.environ.get("TRITON_CACHE_DIR")
    if error.errno != errno.ENOENT or not cache or not isinstance(error.filename, str):
        return False
    return Path(error.filename).is_relative_to(Path(cache).parent)
