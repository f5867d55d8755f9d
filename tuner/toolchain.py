"""Where Triton's compiler and its tools are, and which version they have. Needs no GPU; Triton is imported lazily."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import subprocess
from functools import cache
from pathlib import Path

from tuner.errors import MissingError

HOW_TO_GET_TRITON = "install it with `pip install triton` (Linux; it comes with `pip install torch` for CUDA and ROCm)"

# What the wheels that provide `import triton` are called.
_DISTRIBUTIONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm")


@cache
def triton_folder() -> Path:
    """The folder of the ``triton`` package, found without importing it. Raises ``MissingError`` where there is none."""
    try:
        spec = importlib.util.find_spec("triton")
    except (ImportError, ValueError):  # something hides it
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise MissingError(f"Triton is not installed; {HOW_TO_GET_TRITON}")
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def triton_version() -> str:
    """Triton's version. Raises ``MissingError`` where Triton is missing."""
    triton_folder()
    for distribution in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return str(importlib.import_module("triton").__version__)  # a build from source without metadata


@cache
def torch_version() -> str:
    """torch's version. Raises ``MissingError`` where torch is missing."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise MissingError("torch is not installed; see https://pytorch.org/get-started for the right wheel") from None


def nvidia_tool(name: str) -> Path | None:
    """The ``ptxas``, ``cuobjdump`` or ``nvdisasm`` that Triton's wheel carries, or None."""
    folder = triton_folder()
    # From 3.0 backends/nvidia/bin; before that third_party/cuda/bin, inside the package or beside its sources.
    for place in ("backends/nvidia/bin", "third_party/cuda/bin", "common/../third_party/cuda/bin"):
        path = folder / place / name
        if path.is_file():
            return path
    return None


def ptxas_path(arch: int) -> Path:
    """The ``ptxas`` that this Triton uses for compute capability ``arch`` (90 for sm_90).

    Environment settings that name another one are obeyed, as Triton does. Raises ``MissingError`` where there is none.
    """
    triton_folder()
    try:
        compiler = importlib.import_module("triton.backends.nvidia.compiler")
        return Path(compiler.get_ptxas(arch).path)
    except (ImportError, AttributeError, TypeError, RuntimeError):
        # Older releases choose within a private function; their wheels carry one ptxas.
        path = nvidia_tool("ptxas-blackwell") if arch >= 100 else None
        path = path or nvidia_tool("ptxas")
        if path is None:
            raise MissingError(
                "Triton's ptxas is missing; reinstall triton, or point TRITON_PTXAS_PATH at one"
            ) from None
        return path


@cache
def ptxas_version(path: Path) -> str:
    """What ``path`` calls itself: ``12.9.86``. Raises ``MissingError`` where it cannot be run."""
    try:
        done = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingError(f"{path} does not run ({error}); reinstall triton") from None
    found = re.search(r"\bV(\d+(?:\.\d+)+)", done.stdout)
    return found[1] if found else done.stdout.strip().splitlines()[-1]


def compiler_version(backend: str, arch: int | str) -> str:
    """The compiler behind Triton for a target: ``ptxas 12.9.86``; for AMD ``triton-llvm``, a part of Triton itself."""
    if backend == "cuda":
        assert isinstance(arch, int)
        return f"ptxas {ptxas_version(ptxas_path(arch))}"
    return "triton-llvm"
