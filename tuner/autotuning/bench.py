"""Launches configs on copies of the caller's tensors, and takes samples of their time.

Protocol ``cold-events-1``: a sample is one launch on each copy, enqueued behind a spin kernel, so that every launch
finds fresh data that are not in the cache, and the host is not in the interval. What the kernel writes was put back
before; nothing is put back inside the interval. Where the caller has hooks, which run around every launch, a sample is
one launch. Protocol ``do_bench``: the caller's own function times, and everything is inside what it times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tuner.autotuning.card import Card
from tuner.autotuning.copies import Call, Contents, Copies
from tuner.autotuning.hooks import Hooks

_MOST_SAMPLES = 100
_QUANTILES = (0.5, 0.2, 0.8)


class Watcher(Protocol):
    """Looks at one launch; each gets the arguments by name."""

    @property
    def contents(self) -> Contents | None:
        """What the tensors are to hold; None: what the caller's hold."""

    def arrange(self, named: Mapping[str, Any]) -> None:
        """Called before any hook."""

    def before(self, named: Mapping[str, Any]) -> None:
        """Called between the hooks and the launch."""

    def after(self, named: Mapping[str, Any]) -> None:
        """Called when the launch is done, before the hook that follows it."""


class Bench:
    """``kernel`` has ``run(*args, **kwargs)``. ``card``: None only where the caller's own function times."""

    def __init__(
        self, kernel: Any, arg_names: Sequence[str], copies: Copies, hooks: Hooks, card: Card | None, *, graph: bool
    ) -> None:
        self._kernel, self._arg_names, self.copies = kernel, arg_names, copies
        self._hooks, self._card, self._graph = hooks, card, graph
        self._host_s: dict[int, float] = {}
        self._turn = 0

    def launch_once(self, config: Any, watcher: Watcher | None = None) -> None:
        """Launch once, on data as the caller has them, and wait. Raises what the launch raises."""
        self.copies.restore_first(self._hooks.zeroed, None if watcher is None else watcher.contents)
        call = self.copies.calls[0]
        named = call.named(self._arg_names)
        if watcher is not None:
            watcher.arrange(named)

        def launch() -> None:
            if watcher is not None:
                watcher.before(named)
            self._launch(config, call)
            if self._card is not None:
                self._card.synchronize()
            if watcher is not None:
                watcher.after(named)

        self._around(config, call, launch)

    def sample(self, config: Any) -> float:
        """One sample: microseconds a launch."""
        assert self._card is not None
        self.copies.restore(self._hooks.zeroed)
        if self._hooks.around_each(config):
            self._turn += 1
            call = self.copies.calls[self._turn % len(self.copies.calls)]
            taken: list[float] = []
            self._around(config, call, lambda: taken.append(self._interval(config, [call])))
            return taken[0]
        return self._interval(config, self.copies.calls) / len(self.copies.calls)

    def samples(self, config: Any, fewest: int, give_up_us: float, warmup_ms: float, rep_ms: float) -> list[float]:
        """At least ``fewest`` samples, more until they have taken ``rep_ms``; one where it is beyond ``give_up_us``.

        Before them, launches for ``warmup_ms``.
        """
        self.get_ready(config)
        spent_us = 0.0
        while spent_us < 1e3 * warmup_ms:
            spent_us += max(1.0, self.sample(config) * len(self.copies.calls))
        taken: list[float] = []
        spent_us = 0.0
        while len(taken) < fewest or (spent_us < 1e3 * rep_ms and len(taken) < _MOST_SAMPLES):
            taken.append(self.sample(config))
            spent_us += taken[-1] * len(self.copies.calls)
            if taken[0] > give_up_us:
                break
        return taken

    def by_caller(self, config: Any, do_bench: Callable[..., Any]) -> list[float]:
        """The time that the caller's own function finds, in microseconds: the median, and what else it returns."""

        def call_kernel() -> None:
            self._turn += 1
            call = self.copies.calls[self._turn % len(self.copies.calls)]
            self.copies.restore(self._hooks.zeroed)
            self._around(config, call, lambda: self._launch(config, call))

        found = do_bench(call_kernel, quantiles=_QUANTILES)
        times = list(found) if isinstance(found, Sequence) or hasattr(found, "__iter__") else [found]
        return [1e3 * float(milliseconds) for milliseconds in times]

    def get_ready(self, config: Any) -> None:
        """Launch it until it is compiled, and learn how long the host takes for a launch: no sample has that in it."""
        if id(config) in self._host_s:
            return
        self.launch_once(config)
        self.copies.restore(self._hooks.zeroed)
        call = self.copies.calls[-1]
        started = time.perf_counter()
        self._around(config, call, lambda: self._launch(config, call))
        self._host_s[id(config)] = time.perf_counter() - started

    def _interval(self, config: Any, calls: Sequence[Call]) -> float:
        assert self._card is not None

        def enqueue() -> None:
            for call in calls:
                self._launch(config, call)

        host_s = self._host_s.get(id(config), 1e-4) * len(calls)
        return self._card.interval_us(enqueue, host_s, self._graph)

    def _launch(self, config: Any, call: Call) -> None:
        self._kernel.run(*call.args, **call.kwargs, **config.all_kwargs())

    def _around(self, config: Any, call: Call, launch: Callable[[], None]) -> None:
        named = {**call.named(self._arg_names), **config.all_kwargs()}
        self._hooks.before(config, named)
        try:
            launch()
        except Exception as error:
            self._hooks.after(named, error)
            raise
        self._hooks.after(named, None)
