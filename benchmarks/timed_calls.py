"""What the comparisons time: calls captured in a CUDA graph, compiled by Inductor, interleaved; a copy beside them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from triton.testing import do_bench

from tuner.graphs import captured as recorded

ROUNDS = 3
Call = Callable[[], Any]


def interleaved_ms(calls: dict[str, Call]) -> dict[str, float]:
    """The median over rounds of ``do_bench``'s median, in milliseconds; every call once a round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(do_bench(call, warmup=15, rep=60, return_mode="median"))
    return {name: statistics.median(values) for name, values in times.items()}


def captured(call: Call) -> Call:
    """``call`` as a CUDA graph, or itself where it cannot be captured.

    What is timed then is the GPU's work and not Python's, which takes longer than a short kernel.
    """
    stream = torch.cuda.Stream()
    try:
        with torch.no_grad(), torch.cuda.stream(stream):
            call()
    except RuntimeError as why:
        print(f"not captured: {str(why).splitlines()[0]}")
        torch.cuda.synchronize()
        return call
    torch.cuda.synchronize()
    with torch.no_grad():
        graph = recorded(call, stream)
    if graph is None:
        print("not captured: it synchronises, or does what else a capture forbids")
        return call
    return graph.replay


def compiled(function: Callable[..., Any], *given: Any) -> Call:
    """``function`` of what is ``given`` as Inductor compiles it, called once.

    In the mode without CUDA graphs of its own, because it is captured here, without a copy of its inputs.
    """
    torch._dynamo.reset()
    fast = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
    fast(*given)
    return lambda: fast(*given)


def copy_bandwidth() -> float:
    """Bytes read plus written per second of a large device-to-device copy."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / (do_bench(lambda: target.copy_(source), return_mode="median") * 1e-3)
