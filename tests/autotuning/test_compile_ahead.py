"""Configs are compiled in other processes into the cache that the launch reads, for kernels from anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
import torch
import triton

import tuner
from tests.autotuning import kernels
from tests.autotuning.standin import FakeCard, Launches
from tests.checkout import other_tritons
from tests.programs import environment, import_path
from tuner.autotuning import compile_ahead
from tuner.autotuning.compile_ahead import CompileKernelJob, compile_job
from tuner.autotuning.compile_queue import CompileQueue
from tuner.autotuning.kernel_source import read_kernel_source
from tuner.errors import MissingError
from tuner.targets import target
from tuner.worker.messages import WorkerState

# A script without a main guard: a process that imported it would run it again, and print a second line. Its kernel has
# helpers, values, a closure, heuristics and options of its own; another one is of a cell of a notebook.
SCRIPT = '''
import json, linecache, os, sys
import torch, triton, triton.language as tl
from tuner.autotuning.compile_queue import CompileQueue
from tuner.autotuning.kernel_source import read_kernel_source
from tuner.compiling import activate_nothing_driver, counting_compilations
from tuner.targets import target

STEP = tl.constexpr(3)

@triton.jit
def helper(x, K: tl.constexpr = STEP):
    return x * STEP + K

def make():
    INNER = tl.constexpr(7)

    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit(do_not_specialize=["alpha"])
    def kernel(x_ptr, y_ptr, n, alpha, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at) if EVEN else tl.load(x_ptr + at, mask=at < n)
        tl.store(y_ptr + at, helper(x) + INNER + tl.cdiv(n, 2) + alpha, mask=at < n)

    return kernel

CELL = """
@triton.jit
def kernel(x_ptr, y_ptr, n, alpha, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) + helper(alpha), mask=at < n)
"""
linecache.cache["<cell 1>"] = (len(CELL), None, CELL.splitlines(True), "<cell 1>")
exec(compile(CELL, "<cell 1>", "exec"))
cell_kernel = kernel

device = target("sm_90")
x, y = torch.empty(128), torch.empty(129, dtype=torch.float16)[1:]
said = []
for kernel, odd in ((make(), True), (cell_kernel, False)):
    source = read_kernel_source(kernel)
    args = (x, y, 100, 1.5)
    queue = CompileQueue(kernel, source, args, {"grid": (1,), "warmup": False}, device, "v", 4)
    configs = [triton.Config({"BLOCK": b}, num_warps=w) for b in (32, 64) for w in (1, 4)]
    for number, config in enumerate(configs):
        queue.submit(number, config)
    found = {}
    while len(found) < len(configs):
        found.update(queue.poll())
    queue.close()
    with counting_compilations() as compiled:
        if not said:
            activate_nothing_driver(device)
        for config in configs:
            kernel.run(*args, grid=(1,), warmup=True, **config.all_kwargs())
        reports = [type(getattr(reply, "value", reply)).__name__ for reply in found.values()]
        said.append([reports, queue.obstacle, compiled()])
print(json.dumps(said))
'''


@pytest.mark.parametrize("triton_folder", [None, *other_tritons()], ids=lambda folder: folder and folder.name)
def test_a_scripts_and_a_notebooks_kernels_are_compiled_ahead_and_not_again_by_their_launch(tmp_path, triton_folder):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    own = {"TUNER_CACHE": str(tmp_path / "cache"), "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**environment(*filter(None, [triton_folder])), **own},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line) == [[["CompileReport"] * 4, "", 0], [["CompileReport"] * 4, "", 0]]


def job(kernel=kernels.add, args=None, **kwargs):
    given = args or (torch.ones(4), torch.ones(4), torch.ones(4), 4)
    return compile_job(read_kernel_source(kernel), given, {"BLOCK": 32, **kwargs}, target("sm_90"))


def test_what_cannot_travel_is_said():
    class Descriptor:
        base, block_shape = torch.ones(4), [2]

    assert isinstance(job(), CompileKernelJob)
    assert job(args=(Descriptor(), 1, 2, 3)) == "it takes a tensor descriptor"
    assert job(other=lambda: None) == "an argument cannot be handed to another process (AttributeError)" or job(
        other=lambda: None
    ).endswith("(PicklingError)")


def test_a_kernel_that_cannot_be_made_again_says_nothing_of_its_config(monkeypatch):
    monkeypatch.setattr("tuner.autotuning.compile_ahead.activate_nothing_driver", lambda device: None)
    given = job()
    assert not isinstance(given, str)
    broken = CompileKernelJob(given.payload.replace(b"kernel_source", b"kernel_sourcf"), given.path, given.device)
    answer = broken(WorkerState())
    assert "ModuleNotFoundError" in answer.reason


def test_few_configs_and_unknown_wrappers_are_compiled_by_their_launch(card: FakeCard, monkeypatch):
    source = read_kernel_source(kernels.add)
    args = (torch.ones(4), torch.ones(4), torch.ones(4), 4)
    few = CompileQueue(kernels.add, source, args, {}, card.device, "v", 3)
    few.submit(7, object())
    assert (few.poll(), few.capacity, few.obstacle) == ([(7, None)], 1, "")
    monkeypatch.setattr("tuner.autotuning.compile_queue.compilers", lambda: pytest.fail("not needed"))
    nowhere = CompileQueue(kernels.add, source, args, {}, None, "v", 9)
    nowhere.submit(1, object())
    assert (nowhere.poll(), nowhere.obstacle) == ([(1, None)], "there is no GPU to compile for")

    class Pool:
        pool = type("", (), {"size": 1})()

    monkeypatch.setattr("tuner.autotuning.compile_queue.compilers", Pool)
    wrapped = CompileQueue(Launches(kernels.add, card, lambda **_: 1.0), source, args, {}, card.device, "v", 9)
    wrapped.submit(2, type("", (), {"all_kwargs": lambda self: {}})())
    assert wrapped.poll() == [(2, None)]
    assert wrapped.obstacle == "Launches is not known to change nothing but heuristics"


def test_processes_that_have_ended_are_started_again_and_what_they_had_is_compiled_by_its_launch(card, monkeypatch):
    closed = []

    class Gone:
        """Compile processes that end when they get their second job."""

        def __init__(self):
            self.pool = self
            self.size, self.jobs = 4, 0

        def submit(self, number, job):
            self.jobs += 1
            if self.jobs > 1:
                raise MissingError("the process that starts workers ended")

        def close(self):
            closed.append(self)

    given = Gone()
    monkeypatch.setattr("tuner.autotuning.compile_queue.compilers", lambda: given)
    monkeypatch.setattr("tuner.autotuning.compile_queue.discard", lambda found: found.close())
    source = read_kernel_source(kernels.add)
    queue = CompileQueue(kernels.add, source, (torch.ones(4),) * 3, {"n": 4}, card.device, "v", 9)
    for number, block in enumerate((32, 64, 128)):
        queue.submit(number, triton.Config({"BLOCK": block}))
    assert sorted(queue.poll()) == [(0, None), (1, None), (2, None)]
    assert queue.obstacle == "the process that starts workers ended" and closed == [given]


def test_processes_of_a_thread_that_ended_are_replaced(monkeypatch):
    class Fake:
        ended = False

        def close(self):
            closed.append(self)

    closed: list[object] = []
    monkeypatch.setattr(compile_ahead, "Compilers", Fake)
    monkeypatch.setattr(compile_ahead, "_started", {})
    monkeypatch.setattr("tuner.autotuning.compile_ahead.atexit.register", lambda *_: None)
    first = compile_ahead.compilers()
    assert compile_ahead.compilers() is first
    first.ended = True
    assert compile_ahead.compilers() is not first and closed == [first]


@pytest.mark.slow
def test_what_does_not_compile_or_fit_is_refused_without_a_launch(card, monkeypatch):
    launched = []

    def run(*args, BLOCK, **_):
        launched.append(BLOCK)
        card.work(float(BLOCK))

    card.device = target("sm_86")  # whose blocks have 99 KiB of shared memory
    monkeypatch.setattr(kernels.product, "run", run)
    monkeypatch.setenv("PYTHONPATH", import_path())
    kernel = tuner.autotune([triton.Config({"BLOCK": b}, num_warps=8) for b in (32, 16, 100, 128)], key=["m", "n", "k"])
    a = torch.ones(128, 128)
    tuned = kernel(kernels.product)
    tuned[(1,)](a, a, torch.zeros(128, 128), 128, 128, 128)
    assert set(launched) == {16, 32} and tuned.best_config.kwargs == {"BLOCK": 16}
    trials = {t.trial.config.values["BLOCK"]: t.trial for t in tuner.show("1").trials}
    assert trials[100].outcome == "compile_error" and trials[100].reason.startswith("CompilationError: ")
    assert trials[128].outcome == "out_of_resources" and "shared memory: needs" in trials[128].reason
    assert trials[16].compile_report.kernels[0].threads == 256
