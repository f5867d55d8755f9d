"""Numbers that a device computes, read back on the host: as many as possible in one transfer.

Each transfer waits for the device; a check computes hundreds of numbers, and one wait for all of them is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Reading:
    """The elements of ``tensors`` (of one dimension or none), on the host from ``fetch`` on: ``values``, in order."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = [tensor.view(1) if tensor.dim() == 0 else tensor for tensor in tensors]
        self.values: list[float] = []

    @staticmethod
    def fetch(readings: Sequence[Reading]) -> None:
        """Give each its values. Integers beyond 2^53 are rounded."""
        # Tensors of one format are joined by few kernels, of mixed formats by one each.
        groups: dict[torch.dtype, list[tuple[Reading, int, torch.Tensor]]] = {}
        for reading in readings:
            for at, tensor in enumerate(reading._tensors):
                groups.setdefault(tensor.dtype, []).append((reading, at, tensor))
        if not groups:
            return
        joined = [torch.cat([tensor for *_, tensor in group]).double() for group in groups.values()]
        values = iter(torch.cat(joined).tolist())
        found: dict[tuple[int, int], list[float]] = {}
        for group in groups.values():
            for reading, at, tensor in group:
                found[id(reading), at] = [next(values) for _ in range(tensor.numel())]
        for reading in readings:
            reading.values = [value for at in range(len(reading._tensors)) for value in found[id(reading), at]]
            reading._tensors = []
