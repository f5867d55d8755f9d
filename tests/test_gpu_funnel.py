"""The funnel with a GPU, whose process is played by a stand-in: order, set-up, crashes, pruning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine_jobs import PROBLEM
from tests.fakes import FakeCompilers, FakeWorker, evaluating, timed, wrong
from tuner.errors import MissingError
from tuner.evaluating import EvaluateJob, SetUpJob
from tuner.funnel import Ticket
from tuner.gpu_funnel import GpuFunnel
from tuner.gpu_lane import Lane
from tuner.operators import get
from tuner.space import load_space
from tuner.targets import target
from tuner.tickets import TicketOffice
from tuner.trial import Outcome, TrialRecord
from tuner.worker.messages import Died, Done, Raised, Reply
from tuner.workspace import Workspace

DEVICE = target("h200")
OTHER = get("softmax").problem({"rows": 200, "cols": 70}, "fp32")
CRASH = Died(timed_out=False, limit_s=20.0)


@pytest.fixture
def office(cache, engine_spaces) -> TicketOffice:
    bound = load_space(engine_spaces / "faults.yaml").bind(PROBLEM, DEVICE)
    return TicketOffice(bound, Workspace(cache), "3.9.0")


@pytest.fixture
def tickets(office) -> Callable[..., list[Ticket]]:
    return lambda *texts: [office.ticket(office.bound.parse(text)) for text in texts]


def funnel_of(gpu: FakeWorker, compilers: FakeCompilers | None = None) -> GpuFunnel:
    return GpuFunnel(PROBLEM, DEVICE, compilers or FakeCompilers(), 7, [Lane(gpu)])  # type: ignore[arg-type]


def through(funnel: GpuFunnel, tickets: list[Ticket]) -> list[TrialRecord]:
    for ticket in tickets:
        funnel.submit(ticket)
    records: list[TrialRecord] = []
    for _ in range(100):
        records += [record for _, record in funnel.poll(0.0)]
        if not funnel.in_flight:
            return records
    raise AssertionError("the funnel does not come to an end")


def by_warps(times: dict[int, Reply]) -> Callable[[Any], Reply | None]:
    """Replies by ``num_warps`` and programs: 1, 2 for one program a multiprocessor, 11, 12 for two."""

    def answer(job: EvaluateJob) -> Reply:
        arguments = job.candidate.launch_arguments
        return times[int(arguments["num_warps"]) + (10 if arguments["NUM_PROGRAMS"] == 200 else 0)]

    return evaluating(answer)


def kinds(gpu: FakeWorker) -> list[str]:
    return [type(job).__name__ for job in gpu.jobs]


def test_the_process_is_set_up_once_and_candidates_follow_in_the_order_of_their_compilation(tickets):
    gpu = FakeWorker(by_warps({1: Done(timed(10.0), 1), 2: Done(timed(12.0), 1)}))
    funnel = funnel_of(gpu)
    one, two = through(funnel, tickets("num_warps=1", "num_warps=2"))
    assert kinds(gpu) == ["SetUpJob", "EvaluateJob", "EvaluateJob"]
    assert (one.outcome, one.value_us, two.value_us) == (Outcome.TIMED, 10.0, 12.0)
    assert one.seconds == {"compile": 0.1, "check": 0.1, "recompiled": 0.0}
    assert one.seed == 7
    assert funnel.gpu_busy_seconds == 1.5


def test_each_candidate_is_judged_by_the_best_so_far(tickets):
    gpu = FakeWorker(by_warps({1: Done(timed(10.0), 1), 2: Done(timed(12.0), 1), 11: Done(timed(8.0), 1)}))
    through(funnel_of(gpu), tickets("num_warps=1", "num_warps=2", "num_warps=1,PROGRAMS_PER_SM=2"))
    assert [job.best_us for job in gpu.jobs if isinstance(job, EvaluateJob)] == [math.inf, 10.0, 10.0]


def test_one_that_is_cut_short_is_pruned_with_what_was_measured_and_is_no_best(tickets):
    gpu = FakeWorker(by_warps({1: Done(timed(10.0), 1), 2: Done(timed(45.0, pruned=True), 1)}))
    funnel = funnel_of(gpu)
    _, slow = through(funnel, tickets("num_warps=1", "num_warps=2"))
    assert (slow.outcome, slow.value_us) == (Outcome.PRUNED, None)
    assert slow.reason == "4.5 times slower than the best; cut short"
    assert slow.measurements[0].median_us == 45.0
    assert funnel.best_us == 10.0


def test_a_twin_of_a_pruned_config_is_not_timed_either(tickets):
    gpu = FakeWorker(by_warps({1: Done(timed(10.0), 1), 2: Done(timed(45.0, pruned=True), 1)}))
    compilers = FakeCompilers(binary=lambda job: str(job.launch_arguments["num_warps"]))
    _, slow, twin = through(funnel_of(gpu, compilers), tickets("num_warps=1", "num_warps=2", "num_warps=2,IGNORED=2"))
    assert (twin.outcome, twin.same_as) == (Outcome.PRUNED, slow.config.key)
    assert kinds(gpu).count("EvaluateJob") == 2


def test_a_wrong_one_has_its_report_and_no_measurement(tickets):
    from tuner.evaluating import Evaluation

    gpu = FakeWorker(by_warps({1: Done(Evaluation(wrong("7.0 times the bound"), None), 1)}))
    (record,) = through(funnel_of(gpu), tickets("num_warps=1"))
    assert (record.outcome, record.reason) == (Outcome.WRONG, "randn at softmax rows=9: 7.0 times the bound")
    assert record.measurements == ()


@pytest.mark.parametrize(
    ("reply", "processes", "outcome", "reason"),
    [
        (CRASH, 2, Outcome.CRASHED, "the process that ran it crashed"),
        (Died(True, 20.0), 1, Outcome.TIMED_OUT, "did not run within 20 s"),
    ],
)
def test_one_that_takes_the_process_with_it_ends_alone_and_the_next_process_is_set_up_first(
    tickets, reply, processes, outcome, reason
):
    gpu = FakeWorker(by_warps({1: reply, 2: Done(timed(12.0), 1)}))
    bad, good = through(funnel_of(gpu), tickets("num_warps=1", "num_warps=2"))
    assert (bad.outcome, bad.reason) == (outcome, reason)
    assert good.value_us == 12.0
    assert kinds(gpu) == ["SetUpJob", "EvaluateJob"] * (processes + 1)
    assert gpu.starts == processes + 1


def test_one_whose_process_was_killed_from_outside_is_tried_again(tickets):
    answers = iter([CRASH, Done(timed(10.0), 1)])
    gpu = FakeWorker(evaluating(lambda job: next(answers)))
    (record,) = through(funnel_of(gpu), tickets("num_warps=1"))
    assert (record.outcome, record.value_us) == (Outcome.TIMED, 10.0)
    assert kinds(gpu) == ["SetUpJob", "EvaluateJob"] * 2


def test_a_full_disk_is_no_result(tickets):
    gpu = FakeWorker(by_warps({1: Raised("OSError", "[Errno 28]", True, machine="No space left on device: /cache")}))
    with pytest.raises(MissingError, match=r"could not run: No space left on device: /cache; put that right, then run"):
        through(funnel_of(gpu), tickets("num_warps=1"))


def test_one_that_only_raises_leaves_the_process_as_it_is(tickets):
    gpu = FakeWorker(by_warps({1: Raised("ValueError", "no", True), 2: Done(timed(12.0), 1)}))
    bad, _ = through(funnel_of(gpu), tickets("num_warps=1", "num_warps=2"))
    assert (bad.outcome, bad.reason) == (Outcome.CRASHED, "ValueError: no")
    assert kinds(gpu) == ["SetUpJob", "EvaluateJob", "EvaluateJob"]


def test_a_launch_that_asks_for_too_much_is_out_of_resources(tickets):
    said = "out of resource: shared memory, Required: 262144, Hardware limit: 232448. Reducing block sizes may help."
    gpu = FakeWorker(by_warps({1: Raised("OutOfResources", said, True)}))
    (record,) = through(funnel_of(gpu), tickets("num_warps=1"))
    assert (record.outcome, record.reason) == (Outcome.OUT_OF_RESOURCES, said)


def test_what_cannot_fit_never_reaches_the_gpu(tickets, monkeypatch):
    gpu = FakeWorker(by_warps({}))
    monkeypatch.setattr("tuner.funnel.fits", lambda kernel, device: "kernel: threads: needs 2048 a block")
    (record,) = through(funnel_of(gpu), tickets("num_warps=1"))
    assert (record.outcome, record.reason) == (Outcome.OUT_OF_RESOURCES, "kernel: threads: needs 2048 a block")
    assert "EvaluateJob" not in kinds(gpu)


def test_a_gpu_that_cannot_be_set_up_is_an_error_after_three_attempts(tickets):
    gpu = FakeWorker(lambda job: Raised("GpuError", "CUDA error: out of memory", False))
    gpu.kill()
    with pytest.raises(MissingError, match=r"the GPU cannot be used for softmax rows=200 .*: .*out of memory"):
        through(funnel_of(gpu), tickets("num_warps=1"))
    assert kinds(gpu) == ["SetUpJob"] * 3
    assert all(isinstance(job, SetUpJob) for job in gpu.jobs)


def test_it_is_idle_when_the_gpu_is_set_up_and_waits_for_compilers(tickets):
    gpu = FakeWorker(by_warps({1: Done(timed(10.0), 1)}))
    compilers = FakeCompilers()
    funnel = funnel_of(gpu, compilers)
    assert not funnel.idle  # there is no process yet
    funnel.poll(0.0)
    funnel.poll(0.0)
    assert funnel.idle
    funnel.submit(*tickets("num_warps=1"))
    funnel.poll(0.0)
    assert gpu.busy and not funnel.idle


def test_abandoning_waits_a_moment_for_the_gpu_and_kills_what_does_not_come_back(tickets, monkeypatch):
    monkeypatch.setattr("tuner.gpu_funnel._PATIENCE_S", 0.05)
    gpu = FakeWorker(evaluating(lambda job: None))
    funnel = funnel_of(gpu)
    waiting = tickets("num_warps=1", "num_warps=2")
    for ticket in waiting:
        funnel.submit(ticket)
    funnel.poll(0.0)
    funnel.poll(0.0)
    assert gpu.busy
    assert funnel.abandon() == waiting
    assert not gpu.busy and gpu.kills == 1
    assert funnel.in_flight == 0


def test_abandoning_keeps_a_gpu_process_that_is_done(tickets):
    gpu = FakeWorker(by_warps({1: Done(timed(10.0), 1)}))
    funnel = funnel_of(gpu)
    funnel.submit(*tickets("num_warps=1"))
    funnel.poll(0.0)
    funnel.poll(0.0)
    assert gpu.busy
    funnel.abandon()
    assert not gpu.busy and gpu.kills == 0


def test_it_takes_a_few_candidates_ahead_of_the_gpu(tickets):
    funnel = funnel_of(FakeWorker(evaluating(lambda job: None)))
    assert funnel.capacity() == 4
    for ticket in tickets("num_warps=1", "num_warps=2", "PROGRAMS_PER_SM=2"):
        funnel.submit(ticket)
    assert funnel.capacity() == 1


def test_an_idle_gpu_is_set_up_for_another_problem_too_and_then_looks_at_its_own_again(tickets):
    gpu = FakeWorker(by_warps({1: Done(timed(10.0), 1)}))
    funnel = funnel_of(gpu)
    while not funnel.idle:
        funnel.poll(0.0)
    another = GpuFunnel(OTHER, DEVICE, FakeCompilers(), 7)  # type: ignore[arg-type]
    funnel.set_up_another(another.set_up_job())
    assert not funnel.idle
    (record,) = through(funnel, tickets("num_warps=1"))
    assert record.value_us == 10.0
    assert kinds(gpu) == ["SetUpJob", "SetUpJob", "SetUpJob", "EvaluateJob"]
    assert [job.problem for job in gpu.jobs[:3]] == [PROBLEM, OTHER, PROBLEM]


def test_a_lane_that_is_wanted_elsewhere_gets_no_more_work_and_leaves_when_it_is_free(tickets):
    gpu = FakeWorker(by_warps({1: Done(timed(10.0), 1), 2: Done(timed(12.0), 1)}))
    funnel = funnel_of(gpu)
    for ticket in tickets("num_warps=1", "num_warps=2"):
        funnel.submit(ticket)
    funnel.poll(0.0)
    funnel.poll(0.0)
    (lane,) = funnel.lanes
    lane.ending = True
    assert not lane.free
    assert [record.value_us for _, record in funnel.poll(0.0)] == [10.0]
    assert lane.free and kinds(gpu).count("EvaluateJob") == 1
    funnel.leave(lane)
    assert funnel.gpu_busy_seconds == 1.0 and funnel.poll(0.0) == [] and funnel.in_flight == 1
    funnel.take(lane)
    assert [record.value_us for record in through(funnel, [])] == [12.0]
    assert funnel.gpu_busy_seconds == 1.5


def test_two_gpus_take_from_one_queue_and_one_that_dies_holds_nothing_up(tickets):
    deaths = iter([CRASH])
    steady = FakeWorker(by_warps({n: Done(timed(10.0), 1) for n in (1, 2, 11, 12)}))
    shaky = FakeWorker(evaluating(lambda job: next(deaths, Done(timed(11.0), 1))))
    lanes = [Lane(steady, 0, alone=False), Lane(shaky, 3, alone=False)]  # type: ignore[arg-type]
    funnel = GpuFunnel(PROBLEM, DEVICE, FakeCompilers(), 7, lanes)  # type: ignore[arg-type]
    assert funnel.capacity() == 5
    records = through(
        funnel, tickets("num_warps=1", "num_warps=2", "num_warps=1,PROGRAMS_PER_SM=2", "num_warps=2,PROGRAMS_PER_SM=2")
    )
    assert {record.outcome for record in records} == {Outcome.TIMED} and len(records) == 4
    assert {record.seconds["gpu"] for record in records} == {0.0, 3.0}
    assert (steady.starts, shaky.starts) == (1, 2)
