"""Compiles the kernels of a launch ahead of time, on a machine with or without a GPU.

The variant's own ``launch`` is called with tensors that have no storage, under a driver that names the target and does
nothing, with every kernel in warm-up mode. Triton's own launcher thus computes the signature and the specialisation,
and the cache entry that it leaves on disk is the one that the real launch looks up: nothing is compiled again there.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.config import Value
from tuner.device import Device
from tuner.instructions import instruction_counts
from tuner.loading import load_source
from tuner.operators import get
from tuner.problem import Problem
from tuner.resources import read_resources
from tuner.trial import CompileReport
from tuner.worker.messages import WorkerState


@dataclass(frozen=True)
class CompileJob:
    """Compile the variant in ``source_path`` for ``problem`` on ``device`` with these launch arguments.

    ``checked``: the config's ``tiles`` and ``max_tiles``, where its check will launch it at small shapes too. What
    those need beyond the binary of ``problem`` (a template may take another way where a row is ragged) is compiled as
    well, so that the GPU's process finds it; the report is of ``problem`` alone.
    """

    source_path: str
    launch_arguments: Mapping[str, Value]
    problem: Problem
    device: Device
    count_instructions: bool = False
    checked: tuple[Mapping[str, int], Mapping[str, int]] | None = None

    def __call__(self, state: WorkerState) -> CompileReport:
        """Raises whatever Triton raises on source that does not compile."""
        state.keep("driver", lambda: activate_nothing_driver(self.device))
        module = load_source(Path(self.source_path))
        started = time.perf_counter()
        tensors = launch_tensors(self.problem)
        with counting_compilations() as compiled, _warm_up_only(tensors) as kernels, _host_work(tensors) as work:
            self._launch(module, self.problem, tensors)
        seconds = time.perf_counter() - started
        if not kernels:
            raise ValueError("launch() started no kernel")
        counts: dict[str, int] = {}
        main = kernels[0]
        if self.count_instructions:
            each = [instruction_counts(kernel.compiled.asm) for kernel in kernels]
            for found in each:
                for kind, count in found.items():
                    counts[kind] = counts.get(kind, 0) + count
            # What prepares or merges takes no products.
            main = next((kernel for kernel, found in zip(kernels, each, strict=True) if found.get("mma")), main)
        self._compile_for_the_check(module)
        return CompileReport(
            binary_hash=_binary_hash(kernels, work),
            kernels=tuple(read_resources(k.compiled.asm, k.compiled.metadata) for k in kernels),
            seconds=seconds,
            instructions=tuple(sorted(counts.items())),
            grid=main.grid,
            compilations=compiled(),
        )

    @property
    def same_compilation(self) -> Hashable:
        """What two jobs agree in that most likely compile the same kernels, though their problems differ.

        Triton's cache goes by the source, the constants and how it specialises the other arguments: whether a size is
        1, is divisible by 16, needs 64 bits. That is what is compared here, of the problem's sizes. It is a guess, for
        who orders jobs; what is compiled, and what the report says, does not depend on it.
        """
        sizes = tuple((name, _specialised(size)) for name, size in self.problem.shape)
        same = (self.problem.operator, sizes, self.problem.dtype, self.problem.options)
        return self.source_path, tuple(sorted(self.launch_arguments.items())), *same

    def _launch(self, module: Any, problem: Problem, tensors: Mapping[str, Any]) -> None:
        module.launch(**tensors, **get(problem.operator).scalars(problem), **self.launch_arguments)

    def _compile_for_the_check(self, module: Any) -> None:
        if self.checked is None:
            return
        # What fails here fails again in the check, which says at which shape, and why.
        with suppress(Exception):
            for small in get(self.problem.operator).check_problems(self.problem, *self.checked):
                tensors = launch_tensors(small)
                with _warm_up_only(tensors):
                    self._launch(module, small, tensors)


def _specialised(size: int) -> tuple[bool, bool, bool]:
    return size == 1, size % 16 == 0, size >= 2**31


def launch_tensors(problem: Problem) -> dict[str, Any]:
    """The inputs and outputs of ``problem`` as tensors without storage, with the layout that real ones have."""
    import torch

    from tuner.operators.tensors import TORCH_DTYPES

    operator = get(problem.operator)
    tensors = dict(operator.timing_inputs(problem, 0, "meta"))
    for name, spec in operator.output_specs(problem).items():
        dtype = TORCH_DTYPES[spec.dtype]
        if spec.strides is None:
            tensors[name] = torch.empty(spec.shape, dtype=dtype, device="meta")
        else:
            tensors[name] = torch.empty_strided(spec.shape, spec.strides, dtype=dtype, device="meta")
    return tensors


@dataclass(frozen=True)
class _Warmed:
    compiled: Any
    grid: tuple[int, ...]
    arguments: tuple[str, ...]


@contextmanager
def _warm_up_only(tensors: Mapping[str, Any]) -> Iterator[list[_Warmed]]:
    """Within it, launching a kernel compiles it and runs nothing; yields what was compiled, in order.

    ``tensors`` are those of the launch, so that it is seen which of them a kernel gets.
    """
    from triton.runtime.jit import JITFunction

    kernels: list[_Warmed] = []
    original = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled = original(self, *args, grid=grid, warmup=True, **kwargs)
        if hasattr(compiled, "result"):  # a compilation that Triton left to another thread
            compiled = compiled.result()
        bound = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        shape = grid(bound) if callable(grid) else grid
        runtime = [p.name for p in self.params if not p.is_constexpr]
        arguments = tuple(f"{n}={_seen(bound[n], tensors)}" for n in runtime if n in bound)
        kernels.append(_Warmed(compiled, tuple(int(axis) for axis in shape), arguments))
        return compiled

    JITFunction.run = run
    try:
        yield kernels
    finally:
        JITFunction.run = original


@contextmanager
def _host_work(tensors: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yields what ``launch()`` does with torch beside its kernels (scratch, combining, ...), as text, in order."""
    from tuner.dispatch_mode import DispatchMode

    work: list[str] = []

    class Watch(DispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = [_seen(a, tensors) for a in args] + [f"{k}={_seen(a, tensors)}" for k, a in (kwargs or {}).items()]
            work.append(f"{func}({', '.join(given)})")
            return func(*args, **(kwargs or {}))

    with Watch():  # type: ignore[no-untyped-call]
        yield work


def _seen(value: Any, tensors: Mapping[str, Any]) -> str:
    """An argument as text: a launch's tensor by its name, any other by its layout, the rest as it is."""
    base = getattr(value, "base", value)  # a tensor descriptor has its tensor as base
    for name, tensor in tensors.items():
        if base is tensor:
            return name
    if hasattr(base, "stride") and hasattr(base, "shape"):
        return f"{base.dtype}{tuple(base.shape)}{tuple(base.stride())}"
    return repr(value)


def _binary_hash(kernels: list[_Warmed], host_work: list[str]) -> str:
    """Machine code, grid and arguments of every kernel, and what the host does beside them.

    Two launches that agree in all of it are one program.

    Workers compile without line information, which would make equal code in two files differ.
    """
    total = hashlib.sha256()
    for kernel in kernels:
        for kind in ("cubin", "hsaco"):
            if kind in kernel.compiled.asm:
                total.update(kernel.compiled.asm[kind])
        total.update(repr((kernel.grid, kernel.arguments, int(kernel.compiled.metadata.num_warps))).encode())
    total.update(repr(host_work).encode())
    return total.hexdigest()


class _NothingDriver:
    """Stands in for a GPU driver: names the target, has one device, and can launch nothing."""

    def __init__(self, device: Device) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget(device.backend, device.arch, device.warp_size)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return None

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("meta")


def activate_nothing_driver(device: Device) -> _NothingDriver:
    """Make Triton compile for ``device`` in this process, whatever card is here; it can launch nothing any more."""
    from triton.runtime import driver

    nothing = _NothingDriver(device)
    driver.set_active(nothing)
    return nothing


@contextmanager
def counting_compilations() -> Iterator[Callable[[], int]]:
    """Yields a function that says how many kernels Triton has compiled since, cache hits not counted."""
    from triton.compiler.compiler import ASTSource

    with suppress(ImportError):  # where there is no Gluon
        import triton.experimental.gluon  # noqa: F401  # its sources are a class of their own
    kinds = (ASTSource, *ASTSource.__subclasses__())
    originals = [kind.make_ir for kind in kinds]
    count = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_ir(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            return original(*args, **kwargs)

        return make_ir

    for kind, original in zip(kinds, originals, strict=True):
        kind.make_ir = counted(original)
    try:
        yield lambda: count
    finally:
        for kind, original in zip(kinds, originals, strict=True):
            kind.make_ir = original
