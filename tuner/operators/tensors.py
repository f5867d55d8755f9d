"""Torch dtypes by format name, and seeded random tensors."""

from __future__ import annotations

import hashlib

import torch

TORCH_DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
    "int64": torch.int64,
}

# Up to this many elements a tensor is drawn on the CPU, so that it is the same on every device.
_CPU_LIMIT = 2**20


def seed_of(*parts: object) -> int:
    """A 63-bit seed that depends on every part, the same in every process."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def standard_normal(
    shape: tuple[int, ...], dtype: str, seed: int, device: str, strides: tuple[int, ...] | None = None
) -> torch.Tensor:
    """Standard normal values rounded to ``dtype``, with the given strides (contiguous where None)."""
    result = empty(shape, dtype, device, strides)
    if device == "meta":  # a layout without values
        return result
    if result.numel() <= _CPU_LIMIT:
        generator = torch.Generator("cpu").manual_seed(seed)
        result.copy_(torch.randn(shape, generator=generator))
    else:
        generator = torch.Generator(device).manual_seed(seed)
        result.normal_(generator=generator)
    return result


def empty(shape: tuple[int, ...], dtype: str, device: str, strides: tuple[int, ...] | None = None) -> torch.Tensor:
    """An uninitialised tensor of format ``dtype``; elements between strided rows are zero."""
    if strides is None:
        return torch.empty(shape, dtype=TORCH_DTYPES[dtype], device=device)
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    storage = torch.zeros(span, dtype=TORCH_DTYPES[dtype], device=device)
    return storage.as_strided(shape, strides)
