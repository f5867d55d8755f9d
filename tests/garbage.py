"""Fewer collections of garbage: where trees of source are made and dropped they take a quarter of the time."""

from __future__ import annotations

import gc


def collect_less() -> None:
    """Collect after so many new objects as a tree has, and all objects only after many such collections.

    What is reachable in a test's process are the modules of torch and Triton, half a million objects that stay.
    """
    gc.set_threshold(50_000, 20, 100)
