"""Whose turn it is to tune in this process: one thread's at a time.

It may tune within its own tuning: a hook, a reference or a benchmark may launch another kernel for the first time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()
_depth = 0


def _renew() -> None:
    """After a fork the lock may be held by a thread that is not there any more."""
    global _lock, _depth
    _lock, _depth = threading.RLock(), 0


os.register_at_fork(after_in_child=_renew)


@contextmanager
def my_turn() -> Iterator[None]:
    """Wait until no other thread looks for a config."""
    with _lock:
        yield


@contextmanager
def tuning() -> Iterator[bool]:
    """Within it this thread tunes; yields whether within another tuning, which holds what there is one of."""
    global _depth
    with _lock:
        _depth += 1
        try:
            yield _depth > 1
        finally:
            _depth -= 1
