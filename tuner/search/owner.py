"""Who holds a trial in flight, as text that an Optuna trial can carry."""

from __future__ import annotations

from tuner.store.owner import Owner


def current_owner() -> str:
    """``host:pid:start time`` of this process."""
    owner = Owner.current()
    return f"{owner.host}:{owner.pid}:{owner.start}"


def owner_is_gone(text: str) -> bool:
    """True where the owner's process certainly does not run any more. A process of another host is taken to be alive.

    A text that names no process is gone: a trial is given up rather than blocked for ever.
    """
    head, _, start = text.rpartition(":")
    host, _, pid = head.rpartition(":")
    if not host or not pid.isdigit():
        return True
    owner = Owner(host, int(pid), start)
    return owner.is_local() and not owner.is_alive()
