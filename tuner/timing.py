"""Times launches on the GPU of this process: cold L2, no launch overhead, random inputs, all samples kept.

Protocol ``cold-graph-1``:

* Inputs and outputs exist in as many copies as it takes to exceed the L2 four times; consecutive calls use consecutive
  copies, so that every call finds its inputs in memory and not in the cache. Nothing is flushed inside a timed
  interval.
* The calls of one sample are one CUDA graph, whose replay starts while a spin kernel still holds the stream: the host
is not in the interval, and one sample lasts long enough (``MIN_INTERVAL_US``) for the events' half-microsecond steps.
* A sample is the interval over the number of calls, in microseconds. Where a launch cannot be captured, the same calls
  are enqueued one by one behind the spin kernel, and the measurement says so (``cold-events-1``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tuner.graphs import captured
from tuner.guarded import bits, checksum
from tuner.operators.base import Operator
from tuner.operators.tensors import empty, seed_of
from tuner.problem import Problem
from tuner.protocols import EVENT_PROTOCOL, GRAPH_PROTOCOL

MIN_INTERVAL_US = 200.0
# The interval of a single launch holds some microseconds of its own (two events, and the gaps around the kernel), which
# is several times what a short kernel takes: only a longer one says that a kernel is slow.
LEAST_TELLING_US = 20.0
CACHE_MULTIPLE = 4
_MOST_COPIES = 64
_MOST_CALLS = 400
_MEMORY_SHARE = 0.3
_SPIN_CYCLES = 100_000
_LONG_SPIN_CYCLES = 4_000_000

Launch = Callable[..., None]


@dataclass(frozen=True)
class Prepared:
    """A launch ready to be sampled. ``calls`` per sample; ``first_us`` is one early, rough time of one call."""

    launch: Launch
    calls: int
    first_us: float
    graph: Any
    protocol: str


class Timer:
    """Owns the copies of one problem's tensors on the current CUDA device, and times launches on them."""

    def __init__(self, operator: Operator, problem: Problem, seed: int, l2_bytes: int) -> None:
        self.seed = seed
        first = self._copy(operator, problem, seed)
        per_copy = sum(t.numel() * t.element_size() for t in first.values())
        free, _ = torch.cuda.mem_get_info()
        wanted = math.ceil(CACHE_MULTIPLE * l2_bytes / max(1, per_copy))
        affordable = 1 + int(_MEMORY_SHARE * free / max(1, per_copy))
        count = max(1, min(wanted, affordable, _MOST_COPIES))
        self.copies = [first, *(self._copy(operator, problem, seed_of(seed, i)) for i in range(1, count))]
        self.output_names = tuple(operator.output_specs(problem))
        self._last_inputs = {n: t.clone() for n, t in self._inputs(-1).items()} if count > 1 else {}
        self._sums = {n: checksum(t) for n, t in self.first_inputs.items()}
        self._scalars = operator.scalars(problem)

    @staticmethod
    def _copy(operator: Operator, problem: Problem, seed: int) -> dict[str, torch.Tensor]:
        tensors = dict(operator.timing_inputs(problem, seed, "cuda"))
        for name, spec in operator.output_specs(problem).items():
            tensors[name] = empty(spec.shape, spec.dtype, "cuda", spec.strides)
        return tensors

    @property
    def first_inputs(self) -> Mapping[str, torch.Tensor]:
        """The inputs of the first copy, by name."""
        return self._inputs(0)

    @property
    def first_outputs(self) -> Mapping[str, torch.Tensor]:
        """The outputs of the first copy, by name, as the last timed launch left them."""
        return {name: self.copies[0][name] for name in self.output_names}

    @property
    def last_outputs(self) -> Mapping[str, torch.Tensor]:
        """The outputs of the last copy."""
        return {name: self.copies[-1][name] for name in self.output_names}

    def _inputs(self, copy: int) -> dict[str, torch.Tensor]:
        return {name: t for name, t in self.copies[copy].items() if name not in self.output_names}

    def inputs_changed(self) -> bool:
        """Whether the first copy's inputs are no longer what they were made as."""
        return any(not torch.equal(checksum(t), self._sums[n]) for n, t in self.first_inputs.items())

    def run_again(self, prepared: Prepared) -> None:
        """Run the calls of one sample into poisoned outputs, with the first copy's inputs in the last copy's place.

        A launch that does nothing where it has been before, or gives what it gave there before, shows then.
        ``prepare`` puts the last copy's own inputs back.
        """
        self._poison_outputs()
        for name in self._last_inputs:
            self.copies[-1][name].copy_(self.copies[0][name])
        if prepared.graph is not None:
            prepared.graph.replay()
        else:
            for i in range(prepared.calls):
                self._call(prepared.launch, i % len(self.copies))
        torch.cuda.synchronize()

    def _poison_outputs(self) -> None:
        for copy in self.copies:
            for name in self.output_names:
                bits(copy[name]).fill_(-1)  # NaN, or -1 where the output is of integers

    def prepare(self, launch: Launch, give_up_us: float = math.inf) -> Prepared:
        """Poison the outputs, time one call roughly, and capture the calls of one sample.

        Where that one call takes longer than ``give_up_us``, nothing more is run: ``calls`` is 0. Below
        ``LEAST_TELLING_US`` it tells too little for that.
        """
        for name, tensor in self._last_inputs.items():
            self.copies[-1][name].copy_(tensor)
        self._poison_outputs()
        self._call(launch, 0)
        torch.cuda.synchronize()
        # One call, not a graph: the host takes longer over it than a short kernel runs, and must be done before.
        first_us = interval_us(lambda: self._call(launch, 1 % len(self.copies)), _LONG_SPIN_CYCLES)
        if first_us > max(give_up_us, LEAST_TELLING_US):
            return Prepared(launch, 0, first_us, None, EVENT_PROTOCOL)
        rounds = math.ceil(MIN_INTERVAL_US / max(first_us, 0.5) / len(self.copies))
        calls = len(self.copies) * max(1, min(rounds, _MOST_CALLS // len(self.copies)))
        graph = self._capture(launch, calls)
        protocol = GRAPH_PROTOCOL if graph is not None else EVENT_PROTOCOL
        prepared = Prepared(launch, calls, first_us, graph, protocol)
        self.sample(prepared)  # the first replay uploads the graph
        return prepared

    def sample(self, prepared: Prepared) -> float:
        """One sample: microseconds per call."""
        if prepared.graph is not None:
            return interval_us(prepared.graph.replay, _SPIN_CYCLES) / prepared.calls

        def enqueue() -> None:
            for i in range(prepared.calls):
                self._call(prepared.launch, i % len(self.copies))

        return interval_us(enqueue, _LONG_SPIN_CYCLES) / prepared.calls

    def _call(self, launch: Launch, copy: int) -> None:
        launch(**self.copies[copy], **self._scalars)

    def _capture(self, launch: Launch, calls: int) -> Any:
        def enqueue() -> None:
            for i in range(calls):
                self._call(launch, i % len(self.copies))

        # A launch that synchronises or allocates outside torch cannot be captured; it can still be timed.
        return captured(enqueue, torch.cuda.Stream())  # type: ignore[no-untyped-call]


def interval_us(enqueue: Callable[[], None], spin_cycles: int) -> float:
    """Microseconds on the device between the start and the end of what ``enqueue`` enqueues.

    A spin kernel of ``spin_cycles`` holds the stream meanwhile, so that the host is not in the interval. The whole
    device is synchronised before the end is read, so that work on another stream is not missed: an end that came early
    there is followed by a wall-clock wait, which the caller's sanity bound sees.
    """
    start, end = _event(), _event()
    torch.cuda.synchronize()
    torch.cuda._sleep(spin_cycles)  # type: ignore[no-untyped-call]
    start.record()
    enqueue()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def warm_up(seconds: float = 0.3) -> None:
    """Keep the GPU at work until its clocks have left idle: matrix products on random data."""
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    start, end = _event(), _event()
    start.record()
    for _ in range(1000):
        for _ in range(10):
            a @ a
        end.record()
        torch.cuda.synchronize()
        if start.elapsed_time(end) > seconds * 1e3:
            return
