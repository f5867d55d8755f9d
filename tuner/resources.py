"""What a compiled kernel takes of the device, read from the compiler's artefacts; and whether it fits. Needs no GPU."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner import toolchain
from tuner.device import Device
from tuner.errors import MissingError
from tuner.trial import KernelResources

# From sm_90 on, ptxas counts the 1 KiB that CUDA keeps for itself as static shared memory; limits per block exclude it.
RESERVED_SHARED_BYTES = 1024

# Registers are handed to a warp in units of 256 (NVIDIA: CUDA occupancy calculator, 7.x to 12.x; CDNA: 8 x 64 lanes),
# and warps to the four partitions of an SM in turn.
REGISTER_UNIT = {"cuda": 256, "hip": 512}
PARTITIONS = 4

_RESOURCE_LINE = re.compile(r"REG:(\d+)\s+STACK:(\d+)\s+SHARED:(\d+)\s+LOCAL:(\d+)")
_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def read_resources(asm: Mapping[str, str | bytes], metadata: Any) -> KernelResources:
    """The resources of one ``CompiledKernel``, from its ``asm`` and ``metadata`` (name, num_warps, shared, warp_size).

    ``shared_bytes`` is what the launch asks for plus static shared memory. ``spill_bytes`` is the stack per thread,
    which Triton kernels use for nothing else. Raises ``MissingError`` where there is no cubin or amdgcn to read.
    """
    name, shared = str(metadata.name), int(metadata.shared)
    threads = int(metadata.num_warps) * int(getattr(metadata, "warp_size", 32))
    if "cubin" in asm:
        cubin = asm["cubin"]
        assert isinstance(cubin, bytes)
        registers, stack, static = read_cubin(cubin)
        ptx = asm.get("ptx", "")
        # Warp-specialised kernels have more warps than num_warps says; the text states what is launched.
        declared = _THREADS.search(ptx if isinstance(ptx, str) else ptx.decode())
        if declared:
            threads = int(declared[1]) * int(declared[2] or 1) * int(declared[3] or 1)
        return KernelResources(name, registers, stack, shared + static, threads)
    if "amdgcn" in asm:
        text = asm["amdgcn"]
        figures = read_amdgcn(text if isinstance(text, str) else text.decode())
        spill = max(4 * figures["vgpr_spill_count"], figures["private_segment_fixed_size"])
        shared = max(shared, figures["group_segment_fixed_size"])
        return KernelResources(name, figures["vgpr_count"] + figures["agpr_count"], spill, shared, threads)
    raise MissingError(f"{name} was compiled to neither a cubin nor amdgcn; only CUDA and ROCm targets are supported")


def read_cubin(cubin: bytes) -> tuple[int, int, int]:
    """Registers per thread, stack bytes per thread and static shared bytes per block of a one-kernel cubin.

    Through the ``cuobjdump`` of Triton's wheel (milliseconds), or from the ELF sections where that is missing.
    """
    tool = toolchain.nvidia_tool("cuobjdump")
    if tool is not None:
        found = _RESOURCE_LINE.search(_run_on_file([str(tool), "--dump-resource-usage"], cubin))
        if found:
            registers, stack, static, local = (int(g) for g in found.groups())
            return registers, max(stack, local), _own_shared(static)
    return read_cubin_sections(cubin)


def read_cubin_sections(cubin: bytes) -> tuple[int, int, int]:
    """As ``read_cubin``, from the ELF file itself.

    ``.nv.info`` is a list of attributes (format, attribute, size, payload): 0x2f holds the registers and 0x12 the
    smallest stack, each as (symbol, value); static shared memory is the size of ``.nv.shared.<kernel>``.
    """
    registers = stack = static = 0
    for name, data, size in _sections(cubin):
        if name == ".nv.info":
            for attribute, payload in _attributes(data):
                if attribute in (0x2F, 0x12) and len(payload) == 8:
                    value = struct.unpack("<II", payload)[1]
                    if attribute == 0x2F:
                        registers = max(registers, value)
                    else:
                        stack = max(stack, value)
        elif name.startswith(".nv.shared.") and not name.startswith(".nv.shared.reserved"):
            static = max(static, size)
    if not registers:
        raise MissingError("the cubin states no register count, and cuobjdump is missing; reinstall triton")
    return registers, stack, _own_shared(static)


def read_amdgcn(text: str) -> dict[str, int]:
    """The resource figures in the metadata at the end of amdgcn assembly; 0 for a figure that is absent."""
    names = ("vgpr_count", "agpr_count", "vgpr_spill_count", "group_segment_fixed_size", "private_segment_fixed_size")
    figures = {}
    for name in names:
        found = re.search(rf"^\s*(?:- )?\.{name}:\s+(\d+)", text, re.MULTILINE)
        figures[name] = int(found[1]) if found else 0
    # On CDNA2 and CDNA3 .vgpr_count already includes the accumulation registers.
    figures["agpr_count"] = 0 if figures["vgpr_count"] >= figures["agpr_count"] > 0 else figures["agpr_count"]
    return figures


def fits(resources: KernelResources, device: Device) -> str | None:
    """None where a block of the kernel can be resident on ``device``, else one line: what it needs, and the limit."""
    limits = (
        ("shared memory", resources.shared_bytes, device.shared_bytes_per_block, "bytes a block"),
        ("threads", resources.threads, device.threads_per_block, "a block"),
        ("registers", block_registers(resources, device), device.registers_per_block, "a block"),
    )
    for what, needed, limit, unit in limits:
        if needed > limit:
            return f"{resources.name}: {what}: needs {needed} {unit}, but {device.name} has {limit}"
    return None


def block_registers(resources: KernelResources, device: Device) -> int:
    """Registers that one block is given: rounded up to the unit per warp, and warps to a multiple of the partitions."""
    unit = REGISTER_UNIT[device.backend]
    per_warp = -(-resources.registers * device.warp_size // unit) * unit
    warps = -(-resources.threads // device.warp_size)
    return per_warp * (-(-warps // PARTITIONS) * PARTITIONS)


def _own_shared(static: int) -> int:
    return max(0, static - RESERVED_SHARED_BYTES) if static >= RESERVED_SHARED_BYTES else static


def _run_on_file(command: list[str], content: bytes) -> str:
    with tempfile.TemporaryDirectory(prefix="tuner-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(content)
        try:
            done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout


def _sections(elf: bytes) -> list[tuple[str, bytes, int]]:
    """Name, content and size of each section of a 64-bit little-endian ELF file. Empty where it is none."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return []
    table = struct.unpack_from("<Q", elf, 0x28)[0]
    entry_size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * entry_size) for i in range(count)]
    names = headers[names_index][4]
    found = []
    for name_offset, kind, _, _, offset, size in headers:
        start = names + name_offset
        name = elf[start : elf.index(b"\0", start)].decode()
        nobits = 8
        found.append((name, b"" if kind == nobits else elf[offset : offset + size], size))
    return found


def _attributes(data: bytes) -> list[tuple[int, bytes]]:
    sized = 4
    position, found = 0, []
    while position + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, position)
        position += 4
        if form == sized:
            found.append((attribute, data[position : position + size]))
            position += size
    return found
