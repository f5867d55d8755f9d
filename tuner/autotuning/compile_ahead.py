"""Compiles a kernel's configs in other processes, into the cache of compiled kernels that this process reads.

A launch's arguments travel as what the compiler sees of them: dtypes, alignment, and the values of what is no tensor.
Where a kernel or an argument cannot travel, ``obstacle`` says why, and the launch compiles as without this module.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from tuner.autotuning.arguments import is_tensor
from tuner.autotuning.kernel_source import KernelSource
from tuner.compiling import activate_nothing_driver
from tuner.device import Device
from tuner.errors import MissingError
from tuner.funnel import COMPILE_LIMIT_S
from tuner.machine import cores
from tuner.resources import read_resources
from tuner.trial import CompileReport
from tuner.worker.messages import Reply, WorkerState
from tuner.worker.pool import Pool
from tuner.worker.zygote import Zygote
from tuner.workspace import Workspace

FEWEST = 4
"""Configs from which on other processes are worth their start, which takes seconds."""

_ALIGNMENT = 16  # what Triton specialises pointers on
_WAIT_S = 0.2


@dataclass(frozen=True)
class AbstractTensor:
    """What the compiler asks of a tensor. ``aligned``: its address is a multiple of 16 bytes."""

    dtype: Any
    aligned: bool
    nbytes: int

    def data_ptr(self) -> int:
        """An address of the same alignment."""
        return 0 if self.aligned else 1

    def ptr_range(self) -> int:
        """Bytes behind the address."""
        return self.nbytes


@dataclass(frozen=True)
class NotRebuilt:
    """The answer of a process that could not make the kernel again: nothing is said of the config."""

    reason: str


@dataclass(frozen=True)
class CompileKernelJob:
    """Compile one config of a kernel for ``device``.

    ``payload`` is the pickled (``KernelSource``, positional arguments, keyword arguments): what it holds may be of
    modules that only this job's ``path`` finds.
    """

    payload: bytes
    path: tuple[str, ...]
    device: Device

    def __call__(self, state: WorkerState) -> CompileReport | NotRebuilt:
        """Raises whatever Triton raises on source that does not compile."""
        from tuner.autotuning.rebuilding import rebuild

        state.keep("driver", lambda: activate_nothing_driver(self.device))
        sys.path += [folder for folder in self.path if folder not in sys.path]
        try:
            source, args, kwargs = pickle.loads(self.payload)
            kernel = state.keep(f"kernel/{hashlib.sha256(pickle.dumps(source)).hexdigest()}", lambda: rebuild(source))
        except Exception as error:  # the user's own modules run here; the launch compiles what cannot be made again
            return NotRebuilt(f"{type(error).__name__}: {error}")
        started = time.perf_counter()
        compiled = kernel.run(*args, grid=(1,), warmup=True, **kwargs)
        if hasattr(compiled, "result"):  # a compilation that Triton left to another thread
            compiled = compiled.result()
        seconds = time.perf_counter() - started
        binary = hashlib.sha256(repr(int(compiled.metadata.num_warps)).encode())
        for kind in ("cubin", "hsaco"):
            binary.update(compiled.asm.get(kind, b""))
        resources = read_resources(compiled.asm, compiled.metadata)
        return CompileReport(binary.hexdigest(), (resources,), seconds)


def compile_job(
    source: KernelSource, args: tuple[Any, ...], kwargs: Mapping[str, Any], device: Device
) -> CompileKernelJob | str:
    """The job for one launch, or why there can be none."""
    if source.obstacle:
        return source.obstacle
    for value in (*args, *kwargs.values()):
        if hasattr(value, "base") and hasattr(value, "block_shape"):
            return "it takes a tensor descriptor"
    try:
        payload = pickle.dumps(
            (source, tuple(_abstract(a) for a in args), {name: _abstract(a) for name, a in kwargs.items()})
        )
    except Exception as error:  # pickling runs the arguments' own code, which may raise anything
        return f"an argument cannot be handed to another process ({type(error).__name__})"
    return CompileKernelJob(payload, tuple(sys.path), device)


class Compilers:
    """The compile processes of this program: started on first use, ended with it."""

    def __init__(self) -> None:
        workspace = Workspace()
        # Everything that is part of Triton's key, its cache folder included, is as in this process.
        self._zygote = Zygote({}, workspace.logs / "zygote.log")
        self.pool: Pool[int] = Pool(
            self._zygote, max(1, cores() - 1), COMPILE_LIMIT_S, workspace.logs, "autotune-compile"
        )

    def poll(self) -> list[tuple[int, Reply]]:
        """Replies that have come in, after a short wait for one. Raises ``MissingError`` where the processes ended."""
        busy = self.pool.busy_workers()
        if busy:
            wait(busy, _WAIT_S)  # type: ignore[arg-type]
        return self.pool.poll()

    @property
    def ended(self) -> bool:
        """Whether they are gone: they end with the thread that started them, which need not be the main one."""
        try:
            self._zygote.refuse_ended()
        except MissingError:
            return True
        return False

    def close(self) -> None:
        """End them."""
        self.pool.close()
        self._zygote.close()


_lock = threading.Lock()
_started: dict[int, Compilers] = {}


def compilers() -> Compilers | str:
    """Those of this process (after a fork: new ones), or why there are none."""
    with _lock:
        process = os.getpid()
        if process in _started and _started[process].ended:
            _started.pop(process).close()
        if process not in _started:
            try:
                _started.clear()  # those of the process that this one was forked from are its own to end
                _started[process] = Compilers()
            except (MissingError, OSError) as error:
                return str(error)
            atexit.register(discard, _started[process])
        return _started[process]


def discard(given: Compilers) -> None:
    """End ``given``; the next call of ``compilers`` starts others."""
    if _started.get(os.getpid()) is given:
        del _started[os.getpid()]
        given.close()


def _abstract(value: Any) -> Any:
    if not is_tensor(value):
        return value
    storage = value.untyped_storage().nbytes() if hasattr(value, "untyped_storage") else 0
    return AbstractTensor(value.dtype, value.data_ptr() % _ALIGNMENT == 0, storage)
