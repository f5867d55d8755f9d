"""Worker processes: what a job does to its process ends there, and nowhere else."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import environment, eventually, import_path, is_alive, run, start
from tests.worker.jobs import (
    Add,
    Count,
    End,
    EndOften,
    Fail,
    MainModule,
    Poison,
    ProcessId,
    Refused,
    Setting,
    Sleep,
    Unpicklable,
)
from tuner.errors import MissingError
from tuner.machine_faults import machine_fault
from tuner.worker.messages import Died, Done, Raised, Reply
from tuner.worker.pool import Pool
from tuner.worker.process import Worker
from tuner.worker.zygote import Zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are killed with their parent on Linux only")


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", import_path())
        started = Zygote({}, tmp_path_factory.mktemp("zygote") / "zygote.log")
    yield started
    started.close()


@pytest.fixture
def worker(zygote: Zygote, tmp_path: Path) -> Iterator[Worker]:
    made = Worker(zygote, tmp_path / "worker.log")
    yield made
    made.kill()


def test_what_a_job_returns_comes_back(worker):
    reply = worker.run(Add(2, 3), 60)
    assert isinstance(reply, Done)
    assert reply.value == 5
    assert 0 <= reply.seconds < 1


def test_what_a_job_raises_comes_back_with_type_message_and_output_and_the_process_goes_on(worker):
    before = worker.run(ProcessId(), 60)
    reply = worker.run(Fail("no such tile"), 60)
    assert reply == Raised("KeyError", "'no such tile'", usable=True, log="the compiler says: bad luck\n")
    assert worker.run(ProcessId(), 60).value == before.value
    assert worker.starts == 1


def test_a_worker_keeps_what_jobs_put_into_its_state(worker):
    assert [worker.run(Count(), 60).value for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("how", ["exit", "_exit", "kill"])
def test_a_job_that_ends_its_process_has_died_and_the_next_runs_in_a_fresh_one(worker, how):
    first = worker.run(ProcessId(), 60).value
    assert worker.run(End(how), 60) == Died(timed_out=False, limit_s=60, log="")
    assert worker.process_id == 0
    second = worker.run(Count(), 60)
    assert second.value == 1
    assert worker.starts == 2
    assert worker.process_id not in (0, first)


def test_an_answer_that_cannot_be_sent_ends_the_process_and_says_why_in_its_output(worker):
    reply = worker.run(Unpicklable(), 60)
    assert isinstance(reply, Died)
    assert "pickle" in reply.log.lower()
    assert worker.run(Add(1, 1), 60).value == 2


def test_a_process_that_a_job_calls_unusable_gets_no_further_job(worker):
    first = worker.run(ProcessId(), 60).value
    reply = worker.run(Poison(), 60)
    assert reply == Raised("GpuError", "an illegal memory access was encountered", usable=False)
    assert worker.run(ProcessId(), 60).value != first
    assert eventually(lambda: not is_alive(first))


def test_a_worker_that_was_killed_between_two_jobs_is_replaced_unnoticed(worker):
    first = worker.run(ProcessId(), 60).value
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: not is_alive(first))
    replies = [worker.run(ProcessId(), 60)]
    if isinstance(replies[0], Died):  # the pipe took the job before it was seen to be closed
        replies.append(worker.run(ProcessId(), 60))
    assert replies[-1].value != first


def test_a_job_beyond_its_limit_is_killed_together_with_what_it_started(worker, tmp_path):
    ids = tmp_path / "ids"
    started = time.monotonic()
    worker.send(Sleep(300, str(ids)), 1.5)
    assert eventually(ids.exists)
    both = [int(word) for word in ids.read_text().split()]
    assert all(map(is_alive, both))
    assert worker.poll() is None
    while (reply := worker.poll()) is None:
        time.sleep(0.02)
    assert reply == Died(timed_out=True, limit_s=1.5, log="")
    assert 1.4 < time.monotonic() - started < 10
    assert eventually(lambda: not any(map(is_alive, both)), 5)
    assert worker.run(Add(1, 2), 60).value == 3


def test_a_worker_that_is_killed_in_its_first_moment_is_dead(zygote, tmp_path):
    for number in range(20):
        worker = Worker(zygote, tmp_path / f"{number}.log")
        worker.send(Sleep(300), 600)
        process_id = worker.process_id
        worker.kill()
        assert eventually(lambda process_id=process_id: not is_alive(process_id), 5)


def test_workers_start_from_a_process_with_torch_and_know_nothing_of_this_program(worker):
    main, has_torch = worker.run(MainModule(), 60).value
    assert main.endswith(os.path.join("tuner", "worker", "zygote.py"))
    assert has_torch


_UNGUARDED = """
import sys
from pathlib import Path
with open({log!r}, "a") as log:
    log.write("run\\n")
from tuner.worker.process import Worker
from tuner.worker.zygote import Zygote
from tests.worker.jobs import Add
zygote = Zygote({{}}, Path({folder!r}) / "zygote.log")
workers = [Worker(zygote, Path({folder!r}) / f"{{i}}.log") for i in range(2)]
print([w.run(Add(i, i), 60).value for i, w in enumerate(workers)])
zygote.close()
"""


def test_a_script_without_a_main_guard_runs_once(tmp_path):
    script, log = tmp_path / "script.py", tmp_path / "log"
    script.write_text(_UNGUARDED.format(log=str(log), folder=str(tmp_path)))
    done = run(script, env=environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 2]\n"
    assert log.read_text() == "run\n"


_PARENT = """
import sys, time
from pathlib import Path
from tuner.worker.process import Worker
from tuner.worker.zygote import Zygote
from tests.worker.jobs import ProcessId, Sleep
folder = Path(sys.argv[1])
zygote = Zygote({}, folder / "zygote.log")
idle, busy = Worker(zygote, folder / "idle.log"), Worker(zygote, folder / "busy.log")
idle.run(ProcessId(), 60)
busy.send(Sleep(300), 600)
print(zygote.process_id, idle.process_id, busy.process_id, flush=True)
time.sleep(300)
"""


def test_everything_ends_when_the_program_is_killed(tmp_path):
    program = start("-c", _PARENT, tmp_path, env=environment(), cwd=tmp_path)
    assert program.stdout is not None and program.stderr is not None
    ids = [int(word) for word in program.stdout.readline().split()]
    assert len(ids) == 3, program.stderr.read()
    assert all(map(is_alive, ids))
    program.kill()
    program.communicate()
    assert eventually(lambda: not any(map(is_alive, ids)), 10)


def test_the_end_of_the_starting_process_is_a_clear_error_and_not_the_jobs_fault(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", import_path())
    zygote = Zygote({}, tmp_path / "zygote.log")
    busy, idle = Worker(zygote, tmp_path / "busy.log"), Worker(zygote, tmp_path / "idle.log")
    assert busy.run(Add(1, 1), 60).value == 2
    busy.send(Sleep(300), 600)
    (tmp_path / "zygote.log").write_text("Fatal Python error: out of memory\n")
    os.kill(zygote.process_id, signal.SIGKILL)
    with pytest.raises(MissingError, match=r"process that starts workers ended \(Fatal Python error: out of memory\)"):
        _wait(busy)
    with pytest.raises(MissingError, match="process that starts workers ended"):
        idle.run(Add(1, 1), 60)
    busy.kill()
    zygote.close()


def _wait(worker: Worker) -> None:
    deadline = time.monotonic() + 30
    while worker.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_pool_runs_jobs_side_by_side_first_come_first_served(zygote, tmp_path):
    pool: Pool[str] = Pool(zygote, 2, 60, tmp_path, "test")
    for key in ("a", "b", "c"):
        pool.submit(key, Sleep(1.0))
    assert (pool.size, pool.running, pool.waiting) == (2, 2, 1)
    assert pool.deadline < time.monotonic() + 61
    started, replies = time.monotonic(), []
    assert eventually(lambda: replies.extend(pool.poll()) or len(replies) == 3)
    assert time.monotonic() - started < 2.8  # 2 s side by side, 3 s one after the other
    assert [key for key, _ in replies][2] == "c"
    assert len({reply.value for _, reply in replies}) == 2
    assert (pool.running, pool.waiting, pool.deadline) == (0, 0, float("inf"))
    pool.close()


def test_abandoned_jobs_never_answer_and_their_workers_are_free_at_once(zygote, tmp_path):
    pool: Pool[str] = Pool(zygote, 1, 60, tmp_path, "test")
    pool.submit("slow", Sleep(300))
    pool.submit("waiting", ProcessId())
    assert (pool.running, pool.waiting) == (1, 1)
    pool.abandon()
    assert (pool.running, pool.waiting, pool.busy_workers()) == (0, 0, [])
    pool.submit("next", ProcessId())
    replies: list[object] = []
    assert eventually(lambda: replies.extend(key for key, _ in pool.poll()) or bool(replies))
    assert replies == ["next"]
    pool.close()


def test_a_job_that_is_too_slow_holds_up_its_own_worker_only(zygote, tmp_path):
    pool: Pool[str] = Pool(zygote, 2, 1.0, tmp_path, "test")
    pool.submit("slow", Sleep(300))
    for number in range(3):
        pool.submit(f"quick {number}", Add(number, 1))
    replies: dict[str, object] = {}
    assert eventually(lambda: replies.update(pool.poll()) or len(replies) == 4)
    assert replies.pop("slow") == Died(timed_out=True, limit_s=1.0, log="")
    assert [reply.value for reply in replies.values()] == [1, 2, 3]
    pool.close()


@pytest.mark.parametrize("times", [1, 2])
def test_a_job_whose_process_ended_is_given_to_one_other_process(zygote, tmp_path, times):
    pool: Pool[str] = Pool(zygote, 1, 60, tmp_path, "test")
    pool.submit("ends", EndOften(times, str(tmp_path / "ends")))
    pool.submit("after", Add(1, 1))
    replies: dict[str, object] = {}
    assert eventually(lambda: replies.update(pool.poll()) or len(replies) == 2)
    assert replies["after"].value == 2
    if times == 1:
        assert replies["ends"].value == 1
    else:
        assert replies["ends"] == Died(timed_out=False, limit_s=60, log="")
    assert (tmp_path / "ends").read_text() == times * "ended\n"
    pool.close()


@pytest.mark.parametrize("directly", [True, False])
def test_what_the_machine_refuses_is_told_from_what_a_job_raises(worker, directly):
    reply = worker.run(Refused(directly), 60)
    assert isinstance(reply, Raised) and reply.usable
    assert reply.machine == "No space left on device: /cache/kernel.cubin"
    assert worker.run(Fail("of its own"), 60).machine == ""


def test_a_file_that_is_gone_from_the_cache_is_the_machines_fault_and_any_other_the_jobs(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache" / "triton"))
    gone = tmp_path / "cache" / "variants" / "a.py"
    for path, said in ((gone, f"No such file or directory: {gone}"), (tmp_path / "other.py", "")):
        with pytest.raises(OSError) as caught:
            path.read_text()
        assert machine_fault(caught.value) == said


@pytest.mark.parametrize(("told", "threads"), [("", "1"), ("3", "3")])
def test_a_worker_computes_on_one_core_unless_the_user_says_otherwise(tmp_path, monkeypatch, told, threads):
    monkeypatch.setenv("PYTHONPATH", import_path())
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    if not told:
        monkeypatch.delenv("OMP_NUM_THREADS")
    zygote = Zygote({}, tmp_path / "zygote.log")
    worker = Worker(zygote, tmp_path / "worker.log")
    try:
        assert worker.run(Setting("OMP_NUM_THREADS"), 60).value == threads
    finally:
        worker.kill()
        zygote.close()


def test_a_pool_of_no_workers_is_refused(zygote, tmp_path):
    with pytest.raises(ValueError, match="`size` must be at least 1, but got 0"):
        Pool(zygote, 0, 60, tmp_path, "test")


def test_a_worker_of_a_gpu_sees_that_one_alone_and_so_does_the_process_after_it(zygote, tmp_path):
    worker = Worker(zygote, tmp_path / "worker.log", visible="GPU-abc")
    try:
        assert worker.run(Setting("CUDA_VISIBLE_DEVICES"), 60).value == "GPU-abc"
        worker.kill()
        assert worker.run(Setting("CUDA_VISIBLE_DEVICES"), 60).value == "GPU-abc"
        assert worker.starts == 2
    finally:
        worker.kill()


def test_a_pool_forgets_the_jobs_of_some_keys_and_answers_the_others(zygote, tmp_path):
    pool: Pool[str] = Pool(zygote, 1, 60, tmp_path, "few")
    try:
        pool.submit("stuck", Sleep(300, str(tmp_path / "ids")))
        pool.submit("gone", Add(1, 1))
        pool.submit("kept", Add(2, 2))
        pool.forget(["stuck", "gone"])
        assert (pool.running, pool.waiting) == (0, 1)
        replies: list[tuple[str, Reply]] = []
        assert eventually(lambda: replies.extend(pool.poll()) or replies)
        assert [(key, reply.value) for key, reply in replies if isinstance(reply, Done)] == [("kept", 4)]
    finally:
        pool.close()
