"""A stand-in for a GPU on which launches written with torch run: it keeps the order of streams and records graphs."""

from __future__ import annotations

from collections.abc import Callable


class FakeGpu:
    """The face of ``tuner.launches.Gpu``. ``said`` is what was asked of it, in order.

    A launch hands its work to ``do``, which runs it at once, or records it while a graph is captured. With
    ``stray=True`` the work goes to a stream other than the current one: it runs at once during a capture, and where the
    current stream is busy before what was enqueued there, which then writes over its outputs.
    """

    def __init__(self, *, captures: bool = True) -> None:
        self.said: list[str] = []
        self.place = (0, 0)
        self.warm = False
        self._captures, self._recording = captures, False
        self._recorded: list[Callable[[], None]] = []
        self._busy = False

    def do(self, work: Callable[[], None], *, stray: bool = False) -> None:
        if self._recording and not stray:
            self._recorded.append(work)
        elif not (self._busy and stray):  # there its outputs are written over
            work()

    def flush(self) -> None:
        self.said.append("flush")

    def current(self) -> tuple[int, int]:
        return self.place

    def restore(self) -> None:
        self.said.append("restore")
        self.place = (0, 0)

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None] | None:
        self.said.append("capture")
        if not self._captures:
            return None
        self._recording, self._recorded = True, []
        enqueue()
        self._recording = False
        recorded = self._recorded
        return lambda: [work() for work in recorded] and None

    def on_busy_stream(self, enqueue: Callable[[], None]) -> None:
        self.said.append("stream")
        self._busy = True
        enqueue()
        self._busy = False
