"""What a machine refuses whatever the program does: full or failing disks, limits. It says nothing of a candidate."""

from __future__ import annotations

import errno

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
        if isinstance(pending, OSError) and (pending.errno in REFUSALS or "usable temporary directory" in str(pending)):
            place = f": {pending.filename}" if pending.filename else ""
            return f"{pending.strerror or pending}{place}"
        pending = pending.__cause__ or pending.__context__
    return ""
