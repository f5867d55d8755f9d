"""The devices that can be named as a target without having one: limits and data-sheet rates of known GPU models.

Limits are those of the "Technical Specifications per Compute Capability" table of NVIDIA's CUDA C++ Programming Guide
and of AMD's CDNA instruction-set manuals. Names and L2 sizes are what the driver (and so ``torch.cuda``) reports: then
an estimate for a model and a measurement on it carry the same device. Rates are dense data-sheet figures.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace

from tuner.device import Device
from tuner.errors import TargetError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class ArchLimits:
    """What an architecture fixes for each of its models. Sizes in bytes, registers of 32 bits."""

    backend: str
    warp_size: int
    shared_per_block: int
    shared_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int = 65536
    registers_per_block: int = 65536
    threads_per_block: int = 1024


# NVIDIA: opt-in shared memory per block is what an SM has less 1 KiB that CUDA keeps (from 8.0); 7.5 keeps none.
# AMD: 64 KiB of LDS a workgroup; 4 SIMDs of 512 unified vector registers x 64 lanes, 8 waves a SIMD (CDNA2, CDNA3).
ARCH_LIMITS: dict[int | str, ArchLimits] = {
    75: ArchLimits("cuda", 32, 64 * KIB, 64 * KIB, 1024, 16),
    80: ArchLimits("cuda", 32, 163 * KIB, 164 * KIB, 2048, 32),
    86: ArchLimits("cuda", 32, 99 * KIB, 100 * KIB, 1536, 16),
    89: ArchLimits("cuda", 32, 99 * KIB, 100 * KIB, 1536, 24),
    90: ArchLimits("cuda", 32, 227 * KIB, 228 * KIB, 2048, 32),
    100: ArchLimits("cuda", 32, 227 * KIB, 228 * KIB, 2048, 32),
    120: ArchLimits("cuda", 32, 99 * KIB, 100 * KIB, 1536, 24),
    "gfx90a": ArchLimits("hip", 64, 64 * KIB, 64 * KIB, 2048, 32, 131072, 131072),
    "gfx942": ArchLimits("hip", 64, 64 * KIB, 64 * KIB, 2048, 32, 131072, 131072),
}

EX2_PER_CLOCK = 16
"""Base-2 exponentials per clock and SM (CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions":
16 for every capability listed; CDNA: transcendentals run at a quarter of the rate of 4 SIMDs of 16 lanes, also 16)."""


def _device(
    name: str,
    arch: int | str,
    sms: int,
    memory_gib: int,
    l2_kib: int,
    bandwidth_gb: float,
    tensor_tflops: float,
    fp32_tflops: float,
    boost_mhz: int,
) -> Device:
    limits = ARCH_LIMITS[arch]
    return Device(
        name=name,
        backend=limits.backend,
        arch=arch,
        warp_size=limits.warp_size,
        sms=sms,
        memory_bytes=memory_gib * GIB,
        l2_bytes=l2_kib * KIB,
        shared_bytes_per_block=limits.shared_per_block,
        shared_bytes_per_sm=limits.shared_per_sm,
        registers_per_block=limits.registers_per_block,
        registers_per_sm=limits.registers_per_sm,
        threads_per_block=limits.threads_per_block,
        threads_per_sm=limits.threads_per_sm,
        memory_bandwidth=bandwidth_gb * 1e9,
        tensor_flops=tensor_tflops * 1e12,
        fp32_flops=fp32_tflops * 1e12,
        exp2_rate=float(EX2_PER_CLOCK * sms * boost_mhz) * 1e6,
    )


# Tensor rates are dense 16-bit products summed in fp32. One MI250X device is one of its two dies, as ROCm shows it; an
# MI300X's L2 is 4 MiB a die, and that is the figure that ROCm reports for the whole. The GH200 is the 96 GB model.
_MODELS: dict[str, Device] = {
    #                                                  arch  SMs  GiB  L2 KiB    GB/s  TFLOP/s 16-bit, fp32   MHz
    "t4": _device("Tesla T4", 75, 40, 16, 4096, 320, 65, 8.1, 1590),
    "a100": _device("NVIDIA A100-SXM4-80GB", 80, 108, 80, 40960, 2039, 312, 19.5, 1410),
    "a100-40": _device("NVIDIA A100-SXM4-40GB", 80, 108, 40, 40960, 1555, 312, 19.5, 1410),
    "a100-pcie": _device("NVIDIA A100 80GB PCIe", 80, 108, 80, 40960, 1935, 312, 19.5, 1410),
    "a10": _device("NVIDIA A10", 86, 72, 24, 6144, 600, 125, 31.2, 1695),
    "a6000": _device("NVIDIA RTX A6000", 86, 84, 48, 6144, 768, 154.8, 38.7, 1800),
    "rtx3090": _device("NVIDIA GeForce RTX 3090", 86, 82, 24, 6144, 936, 71, 35.6, 1695),
    "l4": _device("NVIDIA L4", 89, 58, 24, 49152, 300, 121, 30.3, 2040),
    "l40s": _device("NVIDIA L40S", 89, 142, 48, 98304, 864, 362, 91.6, 2520),
    "rtx4090": _device("NVIDIA GeForce RTX 4090", 89, 128, 24, 73728, 1008, 165.2, 82.6, 2520),
    "h100": _device("NVIDIA H100 80GB HBM3", 90, 132, 80, 51200, 3350, 989.4, 66.9, 1980),
    "h100-pcie": _device("NVIDIA H100 PCIe", 90, 114, 80, 51200, 2039, 756, 51.2, 1755),
    "h200": _device("NVIDIA H200", 90, 132, 141, 61440, 4800, 989.4, 66.9, 1980),
    "gh200": _device("NVIDIA GH200 480GB", 90, 132, 96, 61440, 4000, 989.4, 66.9, 1980),
    "b200": _device("NVIDIA B200", 100, 148, 180, 129536, 8000, 2250, 75, 1965),
    "rtx5090": _device("NVIDIA GeForce RTX 5090", 120, 170, 32, 98304, 1792, 209.5, 104.8, 2407),
    "mi250x": _device("AMD Instinct MI250X", "gfx90a", 110, 64, 8192, 1638, 191.5, 23.9, 1700),
    "mi300x": _device("AMD Instinct MI300X", "gfx942", 304, 192, 4096, 5300, 1307.4, 163.4, 2100),
    "mi325x": _device("AMD Instinct MI325X", "gfx942", 304, 256, 4096, 6000, 1307.4, 163.4, 2100),
}

# A bare architecture stands for one of its models, and says so in its name: facts such as the number of SMs go into
# launch parameters, so an architecture alone is not enough to tune for.
_REPRESENTATIVES: dict[str, str] = {
    "sm_75": "t4",
    "sm_80": "a100",
    "sm_86": "rtx3090",
    "sm_89": "rtx4090",
    "sm_90": "h100",
    "sm_100": "b200",
    "sm_120": "rtx5090",
    "gfx90a": "mi250x",
    "gfx942": "mi300x",
}

_ALIASES: dict[str, str] = {
    "a10080": "a100",
    "a10080gb": "a100",
    "a100sxm": "a100",
    "a100sxm4": "a100",
    "a10040gb": "a100-40",
    "h100sxm": "h100",
    "h100sxm5": "h100",
    "h10080gb": "h100",
    "h200sxm": "h200",
    "h200sxm5": "h200",
    "3090": "rtx3090",
    "4090": "rtx4090",
    "5090": "rtx5090",
    "rtxa6000": "a6000",
}

_MAKERS = re.compile(r"nvidia|geforce|tesla|amd|instinct|graphics|_|[^a-z0-9]")
_CAPABILITY = re.compile(r"(?:sm|compute|cc)?[\s_-]*(\d{1,2})\.?(\d)[af]?")


def names() -> tuple[str, ...]:
    """The names of all targets, models first, then architectures."""
    return (*_MODELS, *_REPRESENTATIVES)


def target(name: str) -> Device:
    """The device that ``name`` means: ``h200``, ``NVIDIA H200``, ``sm_90``, ``90``, ``gfx942``, ...

    Raises ``TargetError`` with the closest names where nothing matches.
    """
    plain = _plain(name)
    if plain in _BY_PLAIN_NAME:
        return _BY_PLAIN_NAME[plain]
    capability = _CAPABILITY.fullmatch(name.strip().lower())
    if capability:
        arch = f"sm_{capability[1]}{capability[2]}"
        if arch in _REPRESENTATIVES:
            return _architecture(arch)
    close = difflib.get_close_matches(plain, _BY_PLAIN_NAME, n=3, cutoff=0.6)
    spelt = sorted({_SPELLING[c] for c in close})
    hint = f"did you mean {' or '.join(spelt)}?" if spelt else f"known: {', '.join(names())}"
    raise TargetError(f"unknown target {name!r}; {hint}")


def model(device_name: str) -> Device | None:
    """The known model whose driver name is ``device_name`` exactly, or None."""
    return next((d for d in _MODELS.values() if d.name == device_name), None)


def _architecture(arch: str) -> Device:
    representative = _MODELS[_REPRESENTATIVES[arch]]
    return replace(representative, name=f"{arch} (as {representative.name})")


def _plain(name: str) -> str:
    return _MAKERS.sub("", name.lower())


_BY_PLAIN_NAME: dict[str, Device] = {}
_SPELLING: dict[str, str] = {}
for _key, _model in _MODELS.items():
    for _spelling in (_key, _model.name):
        _BY_PLAIN_NAME[_plain(_spelling)] = _model
        _SPELLING[_plain(_spelling)] = _key
for _alias, _key in _ALIASES.items():
    _BY_PLAIN_NAME[_alias] = _MODELS[_key]
    _SPELLING[_alias] = _key
for _key in _REPRESENTATIVES:
    for _spelling in (_key, _architecture(_key).name):
        _BY_PLAIN_NAME[_plain(_spelling)] = _architecture(_key)
        _SPELLING[_plain(_spelling)] = _key
