"""How many blocks of a kernel an SM holds at once, from its resources. The rules of the CUDA occupancy calculator."""

from __future__ import annotations

from tuner.device import Device
from tuner.resources import RESERVED_SHARED_BYTES, block_registers
from tuner.targets import ARCH_LIMITS
from tuner.trial import KernelResources

DEFAULT_BLOCKS_PER_SM = 16
"""Resident blocks per SM where the architecture is not known: the smallest figure among those that are."""


def blocks_per_sm(resources: KernelResources, device: Device) -> int:
    """Resident blocks per SM; 0 where not even one fits."""
    limits = ARCH_LIMITS.get(device.arch)
    fit = [limits.blocks_per_sm if limits else DEFAULT_BLOCKS_PER_SM]
    fit.append(device.threads_per_sm // max(1, resources.threads))
    fit.append(device.registers_per_sm // max(1, block_registers(resources, device)))
    # From 8.0 on, CUDA adds 1 KiB of its own to what every block asks for.
    reserved = RESERVED_SHARED_BYTES if device.backend == "cuda" and device.facts["capability"] >= 80 else 0
    per_block = resources.shared_bytes + reserved
    if per_block:
        fit.append(device.shared_bytes_per_sm // per_block)
    return min(fit)
