"""Under which conditions a candidate is launched: whatever they are, the outputs must be the same.

Everywhere: a first launch; and one into outputs that held other values, on inputs at another address, in the
interpreter with the programs in the opposite order. On a GPU as well:
with what it reads in the L2 cache and out of it, replayed as a CUDA graph, and on a stream of its own, where all that
it reads is written just before. A launch on another stream or device than the current ones would meet stale inputs
there, and have its outputs written over.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import torch

from tuner.far_tensors import Outputs
from tuner.graphs import captured
from tuner.guarded import Inputs
from tuner.poisoned_allocations import PoisonedAllocations
from tuner.program_order import last_program_first

_DELAY_CYCLES = 500_000  # about a quarter of a millisecond, for the host to enqueue a launch meanwhile
_FLUSH_FACTOR = 2
# What a launch's own allocations hold at first, by turns; a mode takes longer to make than to use.
_SCRATCH = (PoisonedAllocations(float("nan")), PoisonedAllocations(2.5e30))


class Condition(StrEnum):
    """One way to launch; the value says what was done where the outputs were different then."""

    FIRST = "a first launch"
    MOVED = "a launch on inputs at another address"
    WARM = "a launch with warm caches"
    REPLAYED = "the replay of a CUDA graph"
    OTHER_STREAM = "a launch on a stream of its own"
    BACKWARDS = "a launch with the last program first"
    MOVED_BACKWARDS = "a launch on inputs at another address, with the last program first,"


ONCE = (Condition.FIRST,)
TWICE = (Condition.FIRST, Condition.MOVED)
INTERPRETED = (Condition.FIRST, Condition.MOVED_BACKWARDS)
ONCE_BACKWARDS = (Condition.BACKWARDS,)
AT_FULL_SIZE = (Condition.FIRST, Condition.WARM, Condition.MOVED)
THOROUGHLY = (*AT_FULL_SIZE, Condition.REPLAYED, Condition.OTHER_STREAM)


class Gpu(Protocol):
    """What the conditions need of a GPU, so that tests can stand in for one."""

    def flush(self) -> None:
        """Push everything out of the L2 cache."""

    def current(self) -> tuple[int, int]:
        """The current device, and the handle of its current stream."""

    def restore(self) -> None:
        """Wait for the current device, and make the device and the stream current that were so at first."""

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None] | None:
        """Record what ``enqueue`` launches without running it; what replays it, or None where it cannot be recorded."""

    def on_busy_stream(self, enqueue: Callable[[], None]) -> None:
        """Call ``enqueue`` with a new stream as the current one, which is still busy then; wait for it to finish."""


class CudaGpu:
    """The current CUDA device of this process. ``l2_bytes``: the size of its L2 cache."""

    def __init__(self, l2_bytes: int) -> None:
        self._flush = torch.empty(_FLUSH_FACTOR * max(l2_bytes, 2**20), dtype=torch.int8, device="cuda")
        self._stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._home: Any = torch.cuda.current_stream()

    def flush(self) -> None:
        """Write twice the cache's size."""
        self._flush.zero_()

    def current(self) -> tuple[int, int]:
        """Index and stream handle."""
        device = torch.cuda.current_device()
        # Asked for after each launch: torch.cuda.current_stream() makes an object, which takes many times as long.
        return device, int(torch._C._cuda_getCurrentRawStream(device))

    def restore(self) -> None:
        """What was enqueued elsewhere is done before anything else is enqueued."""
        torch.cuda.synchronize()
        torch.cuda.set_stream(self._home)

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None] | None:
        """None where the launch synchronises, or does what else a capture forbids."""
        graph = captured(enqueue, self._stream)
        return graph.replay if graph is not None else None

    def on_busy_stream(self, enqueue: Callable[[], None]) -> None:
        """The stream does not wait for the default one, nor the default one for it."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(_DELAY_CYCLES)  # type: ignore[no-untyped-call]
            enqueue()
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Run:
    """One launch: ``number`` is its place in the outputs. ``strayed``: it left another device or stream current."""

    condition: Condition
    number: int
    strayed: bool = False


@dataclass(frozen=True)
class Launcher:
    """A candidate's launch, with the scalars that it is given."""

    launch: Callable[..., None]
    scalars: Mapping[str, float]
    gpu: Gpu | None = None

    def run(self, conditions: tuple[Condition, ...], inputs: Inputs, outputs: Outputs) -> list[Run]:
        """Launch on what ``inputs`` are given under each of the ``conditions`` that this device and launch allow.

        ``outputs`` has room for as many launches. They are filled with NaN and with a large number by turns, and so is
        what the launch allocates. A launch that strayed is the last one, and what it left current is made up for.
        """
        runs: list[Run] = []
        here = self.gpu.current() if self.gpu else (0, 0)
        for number, condition in enumerate(conditions):
            if not self._launch(condition, number, inputs, outputs):
                continue
            strayed = self.gpu is not None and self.gpu.current() != here
            runs.append(Run(condition, number, strayed))
            if self.gpu is not None and strayed:
                self.gpu.restore()
                break
        return runs

    def _launch(self, condition: Condition, number: int, inputs: Inputs, outputs: Outputs) -> bool:
        """False where the launch cannot be made under this condition."""
        gpu, place = self.gpu, place_of(condition)

        def call() -> None:
            self._call(inputs.places[place], outputs.tensors[number], _SCRATCH[number % 2])

        def prepare() -> None:
            inputs.fill(place)
            outputs.poison(number)

        def prepare_and_call() -> None:
            prepare()
            call()

        if condition in (Condition.BACKWARDS, Condition.MOVED_BACKWARDS):
            with last_program_first():
                prepare_and_call()
        elif gpu is None:
            prepare_and_call()
        elif condition is Condition.REPLAYED:
            inputs.wipe(place)
            replay = gpu.capture(call)
            prepare()
            if replay is None:
                return False
            replay()
        elif condition is Condition.OTHER_STREAM:
            inputs.wipe(place)
            gpu.on_busy_stream(prepare_and_call)
        elif condition is Condition.WARM:
            outputs.poison(number)
            call()
        else:
            prepare()
            if condition is Condition.FIRST:
                gpu.flush()
            call()
        return True

    def _call(
        self, tensors: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], scratch: PoisonedAllocations
    ) -> None:
        # numpy, on which the interpreter computes, warns where a kernel's infinities meet as they should.
        with warnings.catch_warnings(), scratch:
            warnings.simplefilter("ignore", RuntimeWarning)
            self.launch(**tensors, **outputs, **self.scalars)


def place_of(condition: Condition) -> int:
    """Which of two places the inputs of such a launch lie in."""
    return int(condition in (Condition.MOVED, Condition.OTHER_STREAM, Condition.MOVED_BACKWARDS))
