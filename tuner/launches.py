"""Under which conditions a candidate is launched: whatever they are, the outputs must be the same.

Everywhere: a first launch; and one into outputs that held other values, on inputs at another address. On a GPU as well:
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

from tuner.guarded import LARGE, NAN, GuardedInputs, GuardedOutputs, UnguardedInputs
from tuner.operators.base import OutputSpec
from tuner.poisoned_allocations import PoisonedAllocations

_DELAY_CYCLES = 500_000  # about a quarter of a millisecond, for the host to enqueue a launch meanwhile
_FLUSH_FACTOR = 2


class Condition(StrEnum):
    """One way to launch; the value says what was done where the outputs were different then."""

    FIRST = "a first launch"
    MOVED = "a launch on inputs at another address"
    WARM = "a launch with warm caches"
    REPLAYED = "the replay of a CUDA graph"
    OTHER_STREAM = "a launch on a stream of its own"


ONCE = (Condition.FIRST,)
TWICE = (Condition.FIRST, Condition.MOVED)
THOROUGHLY = (Condition.FIRST, Condition.WARM, Condition.MOVED, Condition.REPLAYED, Condition.OTHER_STREAM)


class Gpu(Protocol):
    """What the conditions need of a GPU, so that tests can stand in for one."""

    def flush(self) -> None:
        """Push everything out of the L2 cache."""

    def current(self) -> tuple[int, int]:
        """The current device, and the handle of its current stream."""

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None] | None:
        """Record what ``enqueue`` launches without running it; what replays it, or None where it cannot be recorded."""

    def on_busy_stream(self, enqueue: Callable[[], None]) -> None:
        """Call ``enqueue`` with a new stream as the current one, which is still busy then; wait for it to finish."""


class CudaGpu:
    """The current CUDA device of this process. ``l2_bytes``: the size of its L2 cache."""

    def __init__(self, l2_bytes: int) -> None:
        self._flush = torch.empty(_FLUSH_FACTOR * max(l2_bytes, 2**20), dtype=torch.int8, device="cuda")
        self._stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def flush(self) -> None:
        """Write twice the cache's size."""
        self._flush.zero_()

    def current(self) -> tuple[int, int]:
        """Index and stream handle."""
        return torch.cuda.current_device(), int(torch.cuda.current_stream().cuda_stream)

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None] | None:
        """None where the launch synchronises, or does what else a capture forbids.

        ``torch.cuda.graph`` would empty the allocator's cache first, which takes longer than all the rest.
        """
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            try:
                graph.capture_begin()
                try:
                    enqueue()
                finally:
                    # A launch may have left another stream the current one; a capture ends on the one it began on.
                    torch.cuda.set_stream(self._stream)
                    graph.capture_end()
            except RuntimeError:
                torch.cuda.synchronize()
                return None
        return graph.replay

    def on_busy_stream(self, enqueue: Callable[[], None]) -> None:
        """The stream does not wait for the default one, nor the default one for it."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(_DELAY_CYCLES)  # type: ignore[no-untyped-call]
            enqueue()
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Run:
    """What one launch left. ``strayed``: it left another device or stream the current one."""

    condition: Condition
    outputs: GuardedOutputs
    strayed: bool = False


@dataclass(frozen=True)
class Launcher:
    """A candidate's launch, with all that it is given but the inputs."""

    launch: Callable[..., None]
    specs: Mapping[str, OutputSpec]
    scalars: Mapping[str, float]
    device: str
    gpu: Gpu | None = None

    def run(
        self,
        conditions: tuple[Condition, ...],
        places: tuple[GuardedInputs | UnguardedInputs, GuardedInputs | UnguardedInputs],
        inputs: Mapping[str, torch.Tensor],
    ) -> list[Run]:
        """Launch on ``inputs`` under each of the ``conditions`` that this device and this launch allow.

        The inputs are put into the first of ``places``, or where they are to lie elsewhere into the second. Outputs are
        filled with NaN and with a large number by turns, and so is what the launch allocates.
        """
        runs: list[Run] = []
        for number, condition in enumerate(conditions):
            elsewhere = condition in (Condition.MOVED, Condition.OTHER_STREAM)
            done = self._one(condition, places[elsewhere], inputs, large=number % 2 == 1)
            if done is not None:
                runs.append(done)
        return runs

    def _one(
        self,
        condition: Condition,
        place: GuardedInputs | UnguardedInputs,
        inputs: Mapping[str, torch.Tensor],
        *,
        large: bool,
    ) -> Run | None:
        gpu, outputs = self.gpu, GuardedOutputs(self.specs, self.device, large=large)
        before = gpu.current() if gpu else (0, 0)

        def call() -> None:
            self._call(place.tensors, outputs)

        def prepare() -> None:
            place.fill(inputs)
            outputs.poison()

        def prepare_and_call() -> None:
            prepare()
            call()

        if gpu is None:
            prepare_and_call()
            return Run(condition, outputs)
        if condition is Condition.REPLAYED:
            place.wipe()
            replay = gpu.capture(call)
            prepare()
            if replay is None:
                return None
            replay()
        elif condition is Condition.OTHER_STREAM:
            place.wipe()
            gpu.on_busy_stream(prepare_and_call)
        else:
            if condition is not Condition.WARM:
                prepare()
            if condition is Condition.FIRST:
                gpu.flush()
            call()
        return Run(condition, outputs, gpu.current() != before)

    def _call(self, tensors: Mapping[str, torch.Tensor], outputs: GuardedOutputs) -> None:
        poison = LARGE[torch.float32] if outputs.large else NAN
        # numpy, on which the interpreter computes, warns where a kernel's infinities meet as they should.
        with warnings.catch_warnings(), PoisonedAllocations(poison):
            warnings.simplefilter("ignore", RuntimeWarning)
            self.launch(**tensors, **outputs.tensors, **self.scalars)
