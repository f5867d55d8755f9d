"""Inputs that nobody gave: other numbers in the same tensors, so that a config is not right by chance.

Each floating tensor that the kernel reads gets numbers that lie where its own lie. Whole numbers and booleans stay,
since they may be places, counts or flags; so do infinities and NaN, which may be a mask.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from tuner.autotuning.arguments import base_tensor

_POOL = 1 << 16  # of a tensor's numbers so many are looked at
_CHUNK = 1 << 24  # elements that are made at once
_AROUND_ZERO = 0.5
_AROUND = (0.5, 1.5)


def make_inputs(named: Mapping[str, Any], fixed: Collection[str], seed: int, *, positive: bool) -> list[str]:
    """Write them into the tensors of ``named`` but those in ``fixed``; returns the names of what was changed.

    A number is one of the tensor's own or between two of them. A tensor that holds a single value gets numbers from
    half of it to one and a half of it; of zero, from -0.5 to 0.5, or with ``positive`` from 0 to 1, for references that
    have no answer below.
    """
    changed: list[str] = []
    for name, value in named.items():
        tensor = base_tensor(value)
        if name in fixed or not isinstance(tensor, torch.Tensor):
            continue
        if not tensor.dtype.is_floating_point or not tensor.numel():
            continue
        generator = torch.Generator(tensor.device).manual_seed(seed + len(changed))
        made = _made(tensor, generator, positive=positive)
        if made is not None:
            try:
                tensor.copy_(made)
            except RuntimeError:  # several of its elements are one number in memory
                continue
            changed.append(name)
    return changed


def _made(tensor: torch.Tensor, generator: torch.Generator, *, positive: bool) -> torch.Tensor | None:
    flat = tensor.detach().contiguous().reshape(-1)
    pool = flat[:: max(1, flat.numel() // _POOL)].double()
    pool = pool[torch.isfinite(pool)]
    if not pool.numel():
        return None
    values: torch.Tensor = torch.unique(pool)
    made = torch.empty_like(flat)
    for first in range(0, flat.numel(), _CHUNK):
        given = flat[first : first + _CHUNK]
        drawn = _drawn(pool, values, given.numel(), generator, positive=positive)
        made[first : first + _CHUNK] = torch.where(torch.isfinite(given.double()), drawn, given.double()).to(made.dtype)
    return made.reshape(tensor.shape)


def _drawn(
    pool: torch.Tensor, values: torch.Tensor, count: int, generator: torch.Generator, *, positive: bool
) -> torch.Tensor:
    def uniform() -> torch.Tensor:
        return torch.rand(count, generator=generator, dtype=torch.float64, device=pool.device)

    def some() -> torch.Tensor:
        return pool[torch.randint(pool.numel(), (count,), generator=generator, device=pool.device)]

    if values.numel() == 1:
        low, high = (factor * float(values) for factor in _AROUND)
        if float(values) == 0.0:
            low, high = (0.0, 1.0) if positive else (-_AROUND_ZERO, _AROUND_ZERO)
        return low + (high - low) * uniform()
    one = some()
    return one + uniform() * (some() - one)
