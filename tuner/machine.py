"""Brings up the processes that a piece of work needs, and takes them down: compilers, the GPU's owner, interpreters."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tuner.device import ESTIMATED, MEASURED, Device, Stack
from tuner.errors import MissingError, UsageError
from tuner.funnel import COMPILE_LIMIT_S, INTERPRET_LIMIT_S
from tuner.gpu_lane import Lane
from tuner.outcomes import outcome_of
from tuner.store.location import ENVIRONMENT_VARIABLE as DATABASE_VARIABLE
from tuner.targets import target as named_target
from tuner.toolchain import triton_version as installed_triton
from tuner.worker.messages import Done, WorkerState
from tuner.worker.pool import Pool
from tuner.worker.process import Worker
from tuner.worker.zygote import Zygote
from tuner.workspace import Workspace

DEFAULT_TARGET = "sm_90"
_PROBE_LIMIT_S = 180.0
INTERPRETING = {"TRITON_INTERPRET": "1"}
# By name: its module loads Triton, which this process does not.
CACHE_MANAGER = "tuner.kernel_cache:CheckedCache"


def new_machine(
    target: str | None, gpu: bool | None, workers: int | None, gpus: Sequence[int] | None = None
) -> Machine:
    """A machine of this user's workspace, not started yet. Raises ``MissingError`` where Triton is missing."""
    installed_triton()
    return Machine(Workspace(), target=target, gpu=gpu, workers=workers, gpus=gpus)


@dataclass(frozen=True)
class ProbeJob:
    """Read the device and the software stack in a worker, so that this process loads neither torch nor CUDA.

    Returns the GPU (None without one) and the stack; for ``target`` (or without a GPU) an estimate's stack.
    """

    target: str | None
    look_for_gpu: bool

    def __call__(self, state: WorkerState) -> tuple[Device, Stack]:
        import triton  # noqa: F401  # one that is there and broken says why

        from tuner.probe import current_device, current_stack

        device = current_device() if self.look_for_gpu else None
        wanted = named_target(self.target) if self.target else None
        if device is not None and (wanted is None or wanted.name == device.name):
            return device, current_stack(MEASURED, device)
        chosen = wanted or named_target(DEFAULT_TARGET)
        return chosen, current_stack(ESTIMATED, chosen)


@dataclass(frozen=True)
class CardJob:
    """The UUID of the GPU that a worker sees, empty where nothing tells it."""

    def __call__(self, state: WorkerState) -> str:
        from tuner.nvml import card_uuid

        return card_uuid()


def visible_gpu(environment: Mapping[str, str], index: int) -> str:
    """What CUDA_VISIBLE_DEVICES must be for a process that sees GPU ``index``, counted as this program counts them.

    Raises ``MissingError`` where fewer are visible here.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str(index)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if index >= len(names):
        raise MissingError(f"there is no GPU {index}: CUDA_VISIBLE_DEVICES={visible} shows {len(names)}")
    return names[index]


def cores() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


class Machine:
    """The processes of one run. Use it as a context manager.

    ``target`` names the device to work for (None: the GPU here, else ``DEFAULT_TARGET``). ``gpu``: True insists on
    measuring, False never touches a GPU, None measures where the device is here. ``workers`` is the number of compile
    processes (None: what the cores allow). ``gpus``: which GPUs of this host measure (None: the one that torch would
    use), as numbers of those that are visible; they must be the same device. Raises ``MissingError`` where something
    needed is not there, and ``UsageError`` where GPUs are named twice, or differ, or must not be touched.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        target: str | None = None,
        gpu: bool | None = None,
        workers: int | None = None,
        gpus: Sequence[int] | None = None,
    ) -> None:
        if target is not None:
            named_target(target)  # refuse a name that nobody knows before anything is started
        if gpus is not None:
            _refuse_gpus(gpus, gpu)
            gpu = True
        self.workspace = workspace
        self._wanted = (target, gpu)
        self._gpus = gpus
        self._workers = workers
        self._zygotes: list[Zygote] = []
        self._owned: list[Worker] = []
        self._pools: dict[str, Pool[int]] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def measures(self) -> bool:
        """Whether times are measured here (else they are estimated)."""
        return self.stack.mode == MEASURED

    def _start(self) -> None:
        target, gpu = self._wanted
        self._zygote = self._new_zygote({}, "zygote")
        self.lanes = self._new_lanes()
        self.gpu = self.lanes[0].worker
        self.device: Device
        self.stack: Stack
        self.device, self.stack = self._probe(self.gpu)
        for lane in self.lanes[1:]:
            device, _ = self._probe(lane.worker)
            if device.key != self.device.key:
                raise UsageError(
                    f"the GPUs are not the same device: {self.lanes[0].index} is {self.device.name}, {lane.index} is "
                    f"{device.name}{_difference(self.device, device)}; tune for each alone"
                )
        if gpu and not self.measures:
            what = f"no {self.device.name}" if target else "no GPU"
            raise MissingError(
                f"{what} was found here; `tuner doctor` says what is missing, and `tuner tune` estimates without one"
            )
        for lane in self.lanes:
            if self._gpus is not None:
                reply = lane.worker.run(CardJob(), _PROBE_LIMIT_S)
                lane.uuid = reply.value if isinstance(reply, Done) else ""
            lane.worker.busy_seconds = 0.0

    def _new_lanes(self) -> list[Lane]:
        if self._gpus is None:
            return [Lane(self.fresh_worker("gpu"))]
        alone = len(self._gpus) == 1
        lanes = []
        for index in self._gpus:
            worker = self._new_worker(f"gpu-{index}", visible_gpu(os.environ, index))
            lanes.append(Lane(worker, index, alone=alone))
        return lanes

    def _probe(self, worker: Worker) -> tuple[Device, Stack]:
        target, gpu = self._wanted
        reply = worker.run(ProbeJob(target, look_for_gpu=gpu is not False), _PROBE_LIMIT_S)
        if not isinstance(reply, Done):
            _, reason = outcome_of(reply, "run")
            raise MissingError(f"this machine cannot compile kernels: {reason}; `tuner doctor` says what is missing")
        found: tuple[Device, Stack] = reply.value
        return found

    def lock_names(self) -> list[tuple[str, bool]]:
        """The locks to hold while timing, in this order, each with whether it may be shared.

        Without named GPUs the device's name, for this program alone. GPUs that are named have a lock each; they share
        that of the name, so that programs on other GPUs go on and one without named GPUs waits.
        """
        if self._gpus is None:
            return [(self.device.name, False)]
        own = sorted(f"{self.device.name} {lane.uuid or lane.index}" for lane in self.lanes)
        return [(self.device.name, True), *((name, False) for name in own)]

    def compilers(self) -> Pool[int]:
        """The pool of compile processes. With a GPU one core is left for the process that launches."""
        if "compile" not in self._pools:
            available = cores()
            size = available - 1 if self.measures else available // 2
            self._pools["compile"] = Pool(
                self._zygote, max(1, self._workers or size), COMPILE_LIMIT_S, self.workspace.logs, "compile"
            )
        return self._pools["compile"]

    def interpreters(self) -> Pool[int]:
        """The pool of processes that run kernels in Triton's interpreter."""
        if "interpret" not in self._pools:
            zygote = self._new_zygote(INTERPRETING, "interpreter")
            size = self._workers or cores() - cores() // 2
            self._pools["interpret"] = Pool(zygote, max(1, size), INTERPRET_LIMIT_S, self.workspace.logs, "interpret")
        return self._pools["interpret"]

    def interpreter(self) -> Worker:
        """One process that runs kernels in Triton's interpreter."""
        worker = Worker(self._new_zygote(INTERPRETING, "interpreter"), self.workspace.logs / "interpret.log")
        self._owned.append(worker)
        return worker

    def fresh_worker(self, name: str, lane: Lane | None = None) -> Worker:
        """A worker process of its own (started on its first job), on the GPU of ``lane`` where one is given."""
        if lane is None or self._gpus is None:
            return self._new_worker(name, None)
        return self._new_worker(f"{name}-on-{lane.index}", visible_gpu(os.environ, lane.index))

    def _new_worker(self, name: str, visible: str | None) -> Worker:
        worker = Worker(self._zygote, self.workspace.logs / f"{name}.log", visible)
        self._owned.append(worker)
        return worker

    def _new_zygote(self, extra: Mapping[str, str], name: str) -> Zygote:
        environment = {
            "TRITON_CACHE_DIR": str(self.workspace.triton),
            # Kernels run here, and none of them needs the database, whose URL may hold a password.
            DATABASE_VARIABLE: "",
            "TRITON_CACHE_MANAGER": os.environ.get("TRITON_CACHE_MANAGER", CACHE_MANAGER),
            # Line numbers would make the same machine code differ from one file to another.
            "TRITON_DISABLE_LINE_INFO": "1",
            # Triton 3.9 announces that this default will change; results must not change with it unnoticed.
            "TRITON_DEFAULT_FP_FUSION": os.environ.get("TRITON_DEFAULT_FP_FUSION", "1"),
            **extra,
        }
        zygote = Zygote(environment, self.workspace.logs / f"{name}.log")
        self._zygotes.append(zygote)
        return zygote

    def _stop(self) -> None:
        for pool in self._pools.values():
            pool.close()
        for worker in self._owned:
            worker.kill()
        for zygote in self._zygotes:
            zygote.close()
        shutil.rmtree(self.workspace.logs, ignore_errors=True)


def _refuse_gpus(gpus: Sequence[int], gpu: bool | None) -> None:
    if gpu is False:
        raise UsageError("GPUs are named, so they are to measure; leave out --no-gpu")
    if not gpus or len(set(gpus)) < len(gpus) or min(gpus) < 0:
        raise UsageError(f"GPUs are numbers from 0 on, each once, such as 0,1; but got {_listed(gpus)}")


def _listed(gpus: Iterable[int]) -> str:
    return ",".join(map(str, gpus)) or "none"


def _difference(one: Device, other: Device) -> str:
    """The limits in which two devices of one name differ, for people."""
    if one.name != other.name:
        return ""
    ours, theirs = one.identity, other.identity
    return f" too, with another {', '.join(name for name in ours if ours[name] != theirs[name])}"
