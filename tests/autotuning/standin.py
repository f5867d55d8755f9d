"""A stand-in for a GPU, on which kernels are launches written with torch that say how long they take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tuner.device import MEASURED, Device, Stack
from tuner.targets import target
from tuner.trial import DeviceState


class FakeCard:
    """The face of ``tuner.autotuning.card.Card``. Its clock stands still but for the launches that ``work`` it."""

    def __init__(self, device: Device | None = None, triton: str = "3.9.0") -> None:
        self.device = device or target("h200")
        self.stack = Stack(MEASURED, triton, "2.13.0", "ptxas 13", "580", "13.0")
        self.now_us = 0.0
        self.intervals = 0
        self.graphs = 0
        self.free = 1 << 30
        self.poisoned = False

    def work(self, us: float) -> None:
        self.now_us += us

    def free_bytes(self) -> int:
        return self.free

    def warm_up(self) -> None:
        pass

    def synchronize(self) -> None:
        if self.poisoned:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def interval_us(self, enqueue: Callable[[], None], host_s: float, graph: bool) -> float:
        self.intervals += 1
        self.graphs += graph
        before = self.now_us
        enqueue()
        return self.now_us - before

    def state(self) -> DeviceState:
        return DeviceState()


class Launches:
    """What ``@triton.jit`` makes, as far as a decorator above it sees: ``run`` calls ``launch`` with the config.

    ``jit`` is a kernel, whose source and arguments it has. ``launch`` gets every argument by name and returns the
    microseconds that it takes on ``card``; what it raises is what the launch raises.
    """

    def __init__(self, jit: Any, card: FakeCard | None, launch: Callable[..., float]) -> None:
        self.fn = jit
        self.arg_names = list(jit.arg_names)
        self.calls: list[dict[str, Any]] = []
        self._card, self._launch = card, launch

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> str:
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        self.calls.append(named)
        took = self._launch(**named)
        if self._card is not None:
            self._card.work(took)
        return "launched"

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> tuple[str, dict[str, Any]]:
        return "compiled", kwargs


@contextlib.contextmanager
def counting(card: FakeCard) -> Iterator[Callable[[], int]]:
    """Yields how many intervals were timed since."""
    before = card.intervals
    yield lambda: card.intervals - before
