"""Keeps other programs of this user from timing on the GPUs that are in use here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tuner.events import Listener, Notice
from tuner.machine import Machine


@contextmanager
def holding_gpu(machine: Machine, listener: Listener) -> Iterator[None]:
    """Keeps other studies from timing on the GPUs of ``machine``; waits for one that is at it."""
    if not machine.measures:
        yield
        return
    notice = Notice(f"another study is timing on this {machine.device.name}; waiting for it")
    with ExitStack() as held:
        for name, shared in machine.lock_names():
            held.enter_context(machine.workspace.gpu_lock(name, lambda: listener(notice), shared=shared))
        yield
