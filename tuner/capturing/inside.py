"""Whether this thread is inside a call that has been counted: what happens there is part of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HERE = threading.local()


def is_inside() -> bool:
    """Whether a call that was counted is under way in this thread."""
    return getattr(_HERE, "depth", 0) > 0


@contextmanager
def inside() -> Iterator[None]:
    """Around such a call."""
    _HERE.depth = getattr(_HERE, "depth", 0) + 1
    try:
        yield
    finally:
        _HERE.depth -= 1
