"""The processes of a run: which device they work for, how many there are, and that none is left."""

from __future__ import annotations

import os

import pytest

from tests.programs import eventually, import_path, is_alive
from tests.worker.jobs import ProcessId
from tuner.errors import MissingError, TargetError
from tuner.machine import DEFAULT_TARGET, Machine, ProbeJob, cores
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
