"""The GPU of this process, as tuning a kernel in place needs it. Tests stand in for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tuner.device import MEASURED, Device, Stack
from tuner.trial import DeviceState


class Card(Protocol):
    """What is asked of a GPU."""

    @property
    def device(self) -> Device: ...

    @property
    def stack(self) -> Stack: ...

    def free_bytes(self) -> int:
        """Bytes that can be allocated."""

    def warm_up(self) -> None:
        """Bring the clocks up from idle."""

    def synchronize(self) -> None:
        """Wait for everything that was enqueued. Raises ``RuntimeError`` where something of it failed."""

    def interval_us(self, enqueue: Callable[[], None], host_s: float, graph: bool) -> float:
        """Microseconds on the device for what ``enqueue`` enqueues, which takes the host about ``host_s`` seconds.

        ``graph``: replay it from a CUDA graph where it can be captured.
        """

    def state(self) -> DeviceState:
        """The card at this moment."""


class CudaCard:
    """The current CUDA device."""

    _CLOCK_HZ = 2e9  # of spinning: more than any card has would only spin longer
    _SLACK, _FEWEST_CYCLES, _MOST_CYCLES = 1.5, 100_000, 100_000_000

    def __init__(self, device: Device) -> None:
        from tuner.nvml import DeviceStateReader
        from tuner.probe import current_stack

        self.device = device
        self.stack: Stack = current_stack(MEASURED, device)
        self._sensor = DeviceStateReader()
        self._sensor.__enter__()
        self._gpu: Any = None

    def free_bytes(self) -> int:
        """What the driver has, and what torch's allocator holds unused."""
        import torch

        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())

    def warm_up(self) -> None:
        """A tenth of a second of work."""
        from tuner.timing import warm_up

        warm_up(0.1)

    def synchronize(self) -> None:
        """Of this device."""
        import torch

        torch.cuda.synchronize()

    def interval_us(self, enqueue: Callable[[], None], host_s: float, graph: bool) -> float:
        """The stream is held by a spin kernel until the host has enqueued everything."""
        from tuner.launches import CudaGpu
        from tuner.timing import interval_us

        if graph:
            self._gpu = self._gpu or CudaGpu(0)
            replay = self._gpu.capture(enqueue)
            if replay is not None:
                replay()  # the first replay uploads the graph
                return interval_us(replay, self._FEWEST_CYCLES)
        cycles = int(self._SLACK * host_s * self._CLOCK_HZ)
        return interval_us(enqueue, min(max(cycles, self._FEWEST_CYCLES), self._MOST_CYCLES))

    def state(self) -> DeviceState:
        """As NVML reads it."""
        return self._sensor.read()


_cards: dict[tuple[int, str], CudaCard] = {}


def find_card() -> Card | None:
    """The card that torch uses now; None where there is none, or kernels are interpreted."""
    import torch

    from tuner.interpreter import is_interpreting
    from tuner.probe import current_device

    if is_interpreting():
        return None
    device = current_device()
    if device is None:
        return None
    at = (torch.cuda.current_device(), device.key)
    if at not in _cards:
        _cards[at] = CudaCard(device)
    return _cards[at]


_names: dict[int, str] = {}


def place() -> str:
    """What tells this thread's current device from others in this process: its model's name; empty without one."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return ""  # no tensor of a GPU's can be there yet
    index = torch.cuda.current_device()
    if index not in _names:
        _names[index] = str(torch.cuda.get_device_name(index))
    return _names[index]


def is_capturing() -> bool:
    """Whether what this thread launches is being recorded into a CUDA graph, where nothing can be timed."""
    import torch

    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return bool(started and torch.cuda.is_current_stream_capturing())
