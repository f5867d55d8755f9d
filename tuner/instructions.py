"""Counts the instructions of a compiled kernel by kind, for the static estimate.

Read from the assembly text that Triton keeps (PTX, or amdgcn), not from disassembled machine code: ``nvdisasm`` and
``cuobjdump -sass`` take 0.25-0.3 s a kernel, a third of its compilation; the text takes milliseconds, and what it
cannot show (spills) the compiler's resource figures do. Counts are per warp (or wave), as written: an instruction in a
loop counts once. Those inside innermost loops are counted again under ``loop.<kind>``, so that the estimate can
multiply them by the number of iterations.

Kinds: ``total``; ``mma`` (matrix instructions of any sort), of which ``wgmma`` and ``tcgen05``; ``mma_flops``
(floating-point operations of those per warp, where the instruction states its shape); ``ex2``; ``ld_global_<bits>``
and ``st_global_<bits>`` by access width per thread; ``cp_async_<bits>``; ``tma_load``, ``tma_store``; ``ld_shared``,
``st_shared``; ``local`` (spills, amdgcn only); ``barrier``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

_KindsOf = Callable[[str], Iterable[tuple[str, int]]]

_PREDICATE = re.compile(r"^@!?%p\d+\s+")
_PTX_ACCESS = re.compile(
    r"^(ld|st)\.(?:[a-z0-9_:]+\.)*?(global|shared|local)(?:::[a-z]+)?\.(?:.*?\.)??(?:v(\d)\.)?[a-z](\d+)$"
)
_PTX_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_PTX_BRANCH = re.compile(r"^bra(?:\.uni)?\s+(\S+);")
_PTX_COPY_BYTES = re.compile(r"\],\s*(0x[0-9a-f]+|\d+)\s*[,;]", re.IGNORECASE)
# Moves and parameter loads are no work: ptxas folds nearly all of them.
_PTX_FREE = ("mov.", "ld.param", "call", "ret", "}", "{")

_AMD_ACCESS = re.compile(r"^(?:global|buffer|flat)_(load|store)_([a-z0-9]+)")
_AMD_BITS = {
    "dword": 32, "dwordx2": 64, "dwordx3": 96, "dwordx4": 128, "b32": 32, "b64": 64, "b96": 96, "b128": 128,
    "short": 16, "ushort": 16, "sshort": 16, "b16": 16, "byte": 8, "ubyte": 8, "sbyte": 8, "u8": 8, "i8": 8, "u16": 16,
}  # fmt: skip
_AMD_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)")
_AMD_BRANCH = re.compile(r"^s_c?branch\w*\s+(\S+)")
_AMD_INSTRUCTION = re.compile(r"^(?:v|s|ds|global|buffer|flat|scratch)_\w+")


def instruction_counts(asm: Mapping[str, str | bytes]) -> dict[str, int]:
    """Counts by kind from a compiled kernel's artefacts (``CompiledKernel.asm``); empty where there is no text."""
    if "ptx" in asm:
        return _count(_text(asm["ptx"]), _ptx_kinds, _PTX_BRANCH, comment="//")
    if "amdgcn" in asm:
        return _count(_text(asm["amdgcn"]), _amd_kinds, _AMD_BRANCH, comment=";")
    return {}


def _count(text: str, kinds_of: _KindsOf, branch: re.Pattern[str], comment: str) -> dict[str, int]:
    lines: list[str] = []
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for raw in text.splitlines():
        line = _PREDICATE.sub("", raw.split(comment)[0].strip())
        if line.endswith(":"):
            labels[line[:-1]] = len(lines)
        elif line:
            jump = branch.match(line)
            if jump and jump[1] in labels:
                loops.append((labels[jump[1]], len(lines)))
            lines.append(line)
    innermost = [
        (start, end)
        for start, end in set(loops)
        if not any((s, e) != (start, end) and start <= s and e <= end for s, e in loops)
    ]
    counts: Counter[str] = Counter()
    for number, line in enumerate(lines):
        inside = any(start <= number <= end for start, end in innermost)
        for kind, amount in kinds_of(line):
            counts[kind] += amount
            if inside:
                counts[f"loop.{kind}"] += amount
    return dict(sorted(counts.items()))


def _ptx_kinds(line: str) -> Iterable[tuple[str, int]]:
    if not line.endswith(";") or line.startswith((".", *_PTX_FREE)):
        return
    yield "total", 1
    word = line.split(maxsplit=1)[0].rstrip(";")
    if word.startswith(("mma.", "wgmma.mma_async", "tcgen05.mma")):
        yield "mma", 1
        shape = _PTX_SHAPE.search(word)
        # A warpgroup is four warps; a tcgen05 instruction has its shape in a descriptor, not in its name.
        warps = 4 if word.startswith("wgmma") else 1
        if not word.startswith("mma."):
            yield word.split(".")[0], 1
        if shape:
            yield "mma_flops", 2 * int(shape[1]) * int(shape[2]) * int(shape[3]) // warps
    elif word.startswith("ex2."):
        yield "ex2", 1
    elif word.startswith("cp.async.bulk.tensor"):
        yield ("tma_store" if ".global.shared" in word else "tma_load"), 1
    elif word.startswith("cp.async.c"):
        size = _PTX_COPY_BYTES.search(line)
        if size:
            yield f"cp_async_{8 * int(size[1], 0)}", 1
    elif word.startswith("ldmatrix"):
        yield "ld_shared", 1
    elif word.startswith("stmatrix"):
        yield "st_shared", 1
    elif word.startswith(("bar.", "barrier.")):
        yield "barrier", 1
    elif access := _PTX_ACCESS.match(word):
        direction, space, vector, bits = access.groups()
        if space == "global":
            yield f"{direction}_global_{int(vector or 1) * int(bits)}", 1
        else:
            yield ("local" if space == "local" else f"{direction}_shared"), 1


def _amd_kinds(line: str) -> Iterable[tuple[str, int]]:
    found = _AMD_INSTRUCTION.match(line)
    if not found:
        return
    word = found[0]
    yield "total", 1
    if word.startswith(("v_mfma", "v_smfma", "v_wmma")):
        yield "mma", 1
        shape = _AMD_SHAPE.search(word)
        if shape:
            yield "mma_flops", 2 * int(shape[1]) * int(shape[2]) * int(shape[3])
    elif word.startswith("v_exp_f32"):
        yield "ex2", 1
    elif word.startswith("scratch_"):
        yield "local", 1
    elif word.startswith(("ds_read", "ds_load")):
        yield "ld_shared", 1
    elif word.startswith(("ds_write", "ds_store")):
        yield "st_shared", 1
    elif word == "s_barrier":
        yield "barrier", 1
    elif access := _AMD_ACCESS.match(word):
        bits = _AMD_BITS.get(access[2], 32)
        yield f"{'ld' if access[1] == 'load' else 'st'}_global_{bits}", 1


def _text(artefact: str | bytes) -> str:
    return artefact.decode() if isinstance(artefact, bytes) else artefact
