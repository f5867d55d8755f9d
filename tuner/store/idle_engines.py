"""Engines that wait to be used again: an engine keeps the statements that it has compiled, which cost more than a read.

A waiting engine has no connection, so nothing is held open, and a file may be replaced or the process forked meanwhile.
"""

from __future__ import annotations

from sqlalchemy import Engine

from tuner.store.engine import Location, open_engine

MOST_IDLE = 8
_IDLE: dict[tuple[str, bool, float], Engine] = {}


def take_engine(location: Location, *, write: bool, busy_timeout_s: float) -> Engine:
    """One that waits, or a new one. It is the caller's alone. Raises ``StoreError`` as ``open_engine`` does."""
    waiting = _IDLE.pop(_key(location, write, busy_timeout_s), None)
    return waiting or open_engine(location, write=write, busy_timeout_s=busy_timeout_s)


def leave_engine(engine: Engine, location: Location, *, write: bool, busy_timeout_s: float) -> None:
    """Closes its connections, and lets it wait. A database in memory ends with its connection."""
    engine.dispose()
    if not location.is_memory:
        _IDLE[_key(location, write, busy_timeout_s)] = engine
        while len(_IDLE) > MOST_IDLE:
            _IDLE.pop(next(iter(_IDLE)), None)


def _key(location: Location, write: bool, busy_timeout_s: float) -> tuple[str, bool, float]:
    return location.url.render_as_string(hide_password=False), write, busy_timeout_s
