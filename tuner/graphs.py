"""CUDA graphs of launches, captured without giving memory back to the driver.

``torch.cuda.graph`` empties the allocator's cache first. That takes longer than all the rest, and the driver overwrites
what it gets back: on an H200 kernels that are bound by memory were seen 10 % slower for a while afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


def captured(enqueue: Callable[[], None], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph | None:
    """What ``enqueue`` launches, recorded on ``stream`` and not run.

    None where it cannot be recorded: it synchronises, or does what else a capture forbids.
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        try:
            graph.capture_begin()
            try:
                enqueue()
            finally:
                # A launch may have left another stream the current one; a capture ends on the one it began on.
                torch.cuda.set_stream(stream)
                graph.capture_end()
        except RuntimeError:
            torch.cuda.synchronize()
            return None
    return graph
