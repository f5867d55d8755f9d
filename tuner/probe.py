"""Reads the device and the software stack off this machine. torch and NVML are imported lazily."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tuner import nvml, toolchain
from tuner.device import MEASURED, Device, Stack
from tuner.targets import ARCH_LIMITS, model

# Environment settings that change the machine code that Triton emits (its `knobs.py`, 3.6 and 3.9). Not among them:
# what only changes what is dumped, cached or printed.
CODEGEN_SETTINGS = (
    "DISABLE_LLVM_OPT",
    "DISABLE_PTXAS_OPT",
    "PTXAS_OPTIONS",
    "TRITON_DEBUG",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_ENABLE_ASAN",
    "TRITON_F32_DEFAULT",
    "TRITON_FORCE_DISABLE_FP_FUSION",
    "TRITON_FPSAN_HOMOMORPHIC_CASTS",
    "TRITON_INSTRUMENTATION_MODE",
    "TRITON_KERNEL_OVERRIDE",
    "TRITON_LIBDEVICE_PATH",
    "TRITON_MOCK_PTX_VERSION",
    "TRITON_OVERRIDE_ARCH",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_PTXAS_PATH",
)
CODEGEN_PREFIXES = ("AMDGCN_", "TRITON_AMD_", "TRITON_HIP_")
_ONLY_DUMPS = ("AMDGCN_ENABLE_DUMP",)


def current_device() -> Device | None:
    """The GPU that torch would use here, or None (no torch, no GPU, or a torch without one's backend).

    Initialises the CUDA driver in this process; start workers by spawn afterwards, not by fork.
    """
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return device_from_properties(properties, is_hip=torch.version.hip is not None)


def device_from_properties(properties: Any, is_hip: bool) -> Device:
    """A ``Device`` from what ``torch.cuda.get_device_properties`` returns; rates come from the known model, if any.

    Older torch lacks some properties; those fall back to the architecture's limits.
    """
    arch: int | str = properties.major * 10 + properties.minor
    if is_hip:
        arch = str(properties.gcnArchName).split(":")[0]
    limits = ARCH_LIMITS.get(arch)
    known = model(properties.name)

    def read(name: str, fallback: int) -> int:
        value = getattr(properties, name, None)
        return int(value) if value else fallback

    shared = read("shared_memory_per_block_optin", 0) if not is_hip else 0
    shared = shared or (limits.shared_per_block if limits else read("shared_memory_per_block", 48 << 10))
    # ROCm reports 65536 registers whatever the chip, so for AMD the architecture's own figure goes first.
    registers = limits.registers_per_sm if is_hip and limits else read("regs_per_multiprocessor", 65536)
    return Device(
        name=properties.name,
        backend="hip" if is_hip else "cuda",
        arch=arch,
        warp_size=read("warp_size", 64 if is_hip else 32),
        sms=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        l2_bytes=read("L2_cache_size", known.l2_bytes if known else 0),
        shared_bytes_per_block=shared,
        shared_bytes_per_sm=read("shared_memory_per_multiprocessor", limits.shared_per_sm if limits else shared),
        registers_per_block=limits.registers_per_block if limits else 65536,
        registers_per_sm=registers,
        threads_per_block=read("max_threads_per_block", 1024),
        threads_per_sm=read("max_threads_per_multi_processor", limits.threads_per_sm if limits else 2048),
        memory_bandwidth=known.memory_bandwidth if known else 0.0,
        tensor_flops=known.tensor_flops if known else 0.0,
        fp32_flops=known.fp32_flops if known else 0.0,
        exp2_rate=known.exp2_rate if known else 0.0,
    )


def current_stack(mode: str, device: Device) -> Stack:
    """The software that a result for ``device`` depends on here. ``mode``: ``measured`` or ``estimated``.

    An estimate runs nothing on a GPU, so it depends on no driver and no runtime. Raises ``MissingError`` where Triton,
    torch or the compiler is missing.
    """
    compiler = toolchain.compiler_version(device.backend, device.arch)
    driver = runtime = ""
    if mode == MEASURED:
        import torch

        driver = nvml.driver_version()
        runtime = torch.version.cuda or torch.version.hip or ""
    return Stack(
        mode=mode,
        triton=toolchain.triton_version(),
        torch=toolchain.torch_version(),
        compiler=compiler,
        driver=driver,
        runtime=runtime,
        settings=codegen_settings(os.environ),
    )


def codegen_settings(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Those of ``environment`` that change what the compiler emits, sorted by name; empty values count as unset."""
    return tuple(
        (name, value)
        for name, value in sorted(environment.items())
        if value and name not in _ONLY_DUMPS and (name in CODEGEN_SETTINGS or name.startswith(CODEGEN_PREFIXES))
    )
