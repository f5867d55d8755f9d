"""From configs to compiled kernels, ahead of their launch where that can be done, and why where it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.autotuning.compile_ahead import FEWEST, Compilers, NotRebuilt, compile_job, compilers, discard
from tuner.autotuning.kernel_source import KernelSource, is_jit_function
from tuner.device import Device
from tuner.errors import MissingError
from tuner.worker.messages import Done, Reply


class CompileQueue:
    """Takes the configs of one call by number, and gives each back with what its compilation said.

    ``kernel`` is what is launched; ``args`` and ``kwargs`` its arguments. ``variant`` is the source's hash. There are
    ``configs`` to come; fewer than ``FEWEST`` are not worth other processes. ``device`` None: nothing can be compiled
    for it. ``obstacle`` says why configs are compiled one at a time by their launch; empty while they are not.
    """

    def __init__(
        self,
        kernel: Any,
        source: KernelSource,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        device: Device | None,
        variant: str,
        configs: float,
    ) -> None:
        self._kernel, self._source, self._args, self._kwargs = kernel, source, tuple(args), dict(kwargs)
        self._device, self.variant = device, variant
        self._at_launch: list[int] = []
        self._waiting: set[int] = set()
        self._compilers: Compilers | None = None
        self.obstacle = ""
        if device is None:
            self.obstacle = "there is no GPU to compile for"
        elif configs >= FEWEST:
            self._start()

    @property
    def device(self) -> Device:
        """What is compiled for."""
        assert self._device is not None
        return self._device

    @property
    def capacity(self) -> int:
        """How many configs may be on their way."""
        return 2 * self._compilers.pool.size if self._compilers is not None else 1

    def submit(self, number: int, config: Any) -> None:
        """Send a ``triton.Config`` on its way."""
        if self._compilers is not None:
            job = self._job(config)
            if not isinstance(job, str):
                try:
                    self._compilers.pool.submit(number, job)
                    self._waiting.add(number)
                    return
                except MissingError as error:
                    job = str(error)
                    self._at_launch += self._give_up(job)
            self.obstacle = job
        self._at_launch.append(number)

    def poll(self) -> list[tuple[int, Reply | None]]:
        """What is compiled or has failed to; None for what its launch will compile. Waits a moment for something."""
        ready: list[tuple[int, Reply | None]] = [(number, None) for number in self._at_launch]
        self._at_launch.clear()
        if ready or self._compilers is None:
            return ready
        try:
            replies = self._compilers.poll()
        except MissingError as error:
            return [(number, None) for number in self._give_up(str(error))]
        for number, reply in replies:
            if number not in self._waiting:
                continue  # of a tuning that was broken off
            self._waiting.discard(number)
            if isinstance(reply, Done) and isinstance(reply.value, NotRebuilt):
                self.obstacle = f"it cannot be made again in another process ({reply.value.reason})"
                ready.append((number, None))
            else:
                ready.append((number, reply))
        return ready

    def close(self) -> None:
        """End what is still on its way."""
        if self._compilers is not None and (self._waiting or self.obstacle):
            # A compilation that nobody waits for any more would keep a core from the next tuning.
            discard(self._compilers)
        self._compilers = None

    def _give_up(self, why: str) -> list[int]:
        """Go on without other processes; returns what was on its way."""
        self.obstacle = why
        self.close()
        waiting = sorted(self._waiting)
        self._waiting.clear()
        return waiting

    def _start(self) -> None:
        found = self._source.obstacle or compilers()
        if isinstance(found, str):
            self.obstacle = found
        else:
            self._compilers = found

    def _job(self, config: Any) -> Any:
        kernel, kwargs = self._kernel, {**self._kwargs, **config.all_kwargs()}
        while not is_jit_function(kernel):
            values = getattr(kernel, "values", None)
            if not isinstance(values, Mapping) or not hasattr(kernel, "fn"):
                return f"{type(kernel).__name__} is not known to change nothing but heuristics"
            for name, heuristic in values.items():
                kwargs[name] = heuristic({**dict(zip(kernel.arg_names, self._args, strict=False)), **kwargs})
            kernel = kernel.fn
        for name in ("grid", "warmup"):
            kwargs.pop(name, None)
        return compile_job(self._source, self._args, kwargs, self.device)
