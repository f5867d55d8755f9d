"""Compiles a tiny kernel for a target without a GPU: ``python -m tuner.smoke_compile cuda 90 32``. Run by the doctor.

Its own process, because a broken toolchain may crash it. Prints one line: the kinds of artefact that were made.
"""

from __future__ import annotations

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit  # type: ignore[untyped-decorator]
def scale_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """out = 2 ** x for ``size`` fp32 numbers."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < size)
    tl.store(out_ptr + offsets, tl.exp2(x), mask=offsets < size)


def main(backend: str, arch: str, warp_size: str) -> None:
    """Compile for the target; raises whatever the compiler raises."""
    target = GPUTarget(backend, int(arch) if backend == "cuda" else arch, int(warp_size))
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "size": "i32"}
    try:
        source = ASTSource(scale_kernel, {**signature, "BLOCK": "constexpr"}, constexprs={"BLOCK": 256})
    except TypeError:  # before 3.3
        source = ASTSource(scale_kernel, signature, constants={"BLOCK": 256})
    compiled = triton.compile(source, target=target)
    sys.stdout.write(" ".join(kind for kind in compiled.asm if kind in ("ptx", "cubin", "amdgcn", "hsaco")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
