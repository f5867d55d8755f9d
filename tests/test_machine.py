"""The processes of a run: which device they work for, how many there are, and that none is left."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.programs import eventually, import_path, is_alive
from tests.worker.jobs import ProcessId
from tuner.device import MEASURED, Device, Stack
from tuner.errors import MissingError, TargetError, UsageError
from tuner.machine import DEFAULT_TARGET, Machine, ProbeJob, cores, visible_gpu
from tuner.targets import target
from tuner.worker.messages import Done
from tuner.workspace import Workspace


def test_without_a_gpu_it_works_for_sm_90_and_says_estimated(machine):
    assert DEFAULT_TARGET == "sm_90"
    assert machine.device == target("sm_90")
    assert not machine.measures
    assert machine.stack.mode == "estimated"
    assert machine.stack.driver == machine.stack.runtime == ""
    assert machine.stack.compiler.startswith("ptxas ")
    assert ("TRITON_DEFAULT_FP_FUSION", "1") in machine.stack.settings


def test_a_target_is_worked_for_without_being_there(machine):
    reply = machine.fresh_worker("probe").run(ProbeJob("mi300x", look_for_gpu=False), 60)
    assert isinstance(reply, Done)
    device, stack = reply.value
    assert device == target("mi300x")
    assert (device.backend, stack.mode, stack.compiler) == ("hip", "estimated", "triton-llvm")


def test_an_unknown_target_starts_nothing(tmp_path, monkeypatch):
    def started(*args: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("tuner.machine.Zygote", started)
    with pytest.raises(TargetError, match="h300"):
        Machine(Workspace(tmp_path), target="h300")


def test_its_processes_share_one_cache_and_all_end_with_it(cache, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", import_path())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    workspace = Workspace(cache)
    with Machine(workspace, gpu=False, workers=3) as machine:
        assert machine.compilers().size == 3
        ids = [machine.gpu.process_id, machine._zygote.process_id]
        ids.append(machine.fresh_worker("another").run(ProcessId(), 60).value)
        assert all(map(is_alive, ids))
        assert machine.gpu.busy_seconds == 0.0
    assert eventually(lambda: not any(map(is_alive, ids)), 5)


def test_a_probe_that_fails_is_an_error_that_says_where_to_look_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tuner.machine._PROBE_LIMIT_S", 0.001)
    machine = Machine(Workspace(tmp_path), gpu=False)
    with pytest.raises(MissingError, match=r"cannot compile kernels: did not run within 0.001 s; `tuner doctor` says"):
        machine.__enter__()
    assert eventually(lambda: not is_alive(machine._zygote.process_id), 5)


def test_it_uses_the_processors_that_it_may_use():
    assert 1 <= cores() <= (os.cpu_count() or 1)


class Probed(Machine):
    """A machine whose GPUs are what ``found`` says, without a process."""

    def __init__(self, workspace: Workspace, found: list[Device], gpus: list[int]) -> None:
        super().__init__(workspace, gpus=gpus)
        self._found = iter(found)

    def _new_zygote(self, extra, name):
        return None

    def _probe(self, worker):
        return next(self._found), Stack(MEASURED, "3.9.0", "2.13.0", "ptxas 13.0", "580.1", "13.0")


@pytest.fixture
def uuids(monkeypatch):
    """Cards that say what they are: GPU-a, GPU-b."""
    names = iter(("GPU-b", "GPU-a"))
    monkeypatch.setattr("tuner.machine.Worker.run", lambda worker, job, limit_s: Done(next(names), 0.1))


def test_gpus_that_are_not_the_same_device_are_refused_with_what_differs(tmp_path):
    h200 = target("h200")
    with (
        pytest.raises(UsageError, match=r"not the same device: 0 is NVIDIA H200.*, 3 is NVIDIA H100.*; tune for each"),
        Probed(Workspace(tmp_path), [h200, target("h100")], [0, 3]),
    ):
        pass
    with (
        pytest.raises(UsageError, match=r"1 is NVIDIA H200.* too, with another sms; tune for each alone"),
        Probed(Workspace(tmp_path), [h200, replace(h200, sms=66)], [0, 1]),
    ):
        pass


@pytest.mark.usefixtures("uuids")
def test_each_named_gpu_has_a_lane_and_a_lock_of_its_own(tmp_path):
    h200 = target("h200")
    with Probed(Workspace(tmp_path), [h200, replace(h200, memory_bytes=1)], [0, 2]) as machine:
        assert [(lane.index, lane.uuid, lane.alone) for lane in machine.lanes] == [
            (0, "GPU-b", False), (2, "GPU-a", False)
        ]  # fmt: skip
        name = h200.name
        assert machine.lock_names() == [(name, True), (f"{name} GPU-a", False), (f"{name} GPU-b", False)]


@pytest.mark.parametrize("gpus", [[], [0, 0], [-1]])
def test_gpus_are_numbers_each_once(tmp_path, gpus):
    with pytest.raises(UsageError, match="GPUs are numbers from 0 on, each once"):
        Machine(Workspace(tmp_path), gpus=gpus)


def test_gpus_that_are_named_are_to_measure(tmp_path):
    with pytest.raises(UsageError, match="leave out --no-gpu"):
        Machine(Workspace(tmp_path), gpu=False, gpus=[0])


def test_a_gpu_is_counted_among_those_that_are_visible():
    assert visible_gpu({}, 1) == "1"
    assert visible_gpu({"CUDA_VISIBLE_DEVICES": "4, GPU-abc"}, 1) == "GPU-abc"
    with pytest.raises(MissingError, match="there is no GPU 2: CUDA_VISIBLE_DEVICES=4,5 shows 2"):
        visible_gpu({"CUDA_VISIBLE_DEVICES": "4,5"}, 2)
