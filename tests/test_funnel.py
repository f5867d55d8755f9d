"""The funnel without a GPU: every bad candidate ends as what it is, and one binary is checked once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.engine_jobs import PROBLEM, office_for
from tuner.estimate_funnel import EstimateFunnel
from tuner.evaluating import InterpretJob
from tuner.funnel import Ticket
from tuner.program import Program
from tuner.tickets import TicketOffice
from tuner.trial import Outcome, TrialRecord
from tuner.worker.messages import Raised
from tuner.worker.pool import Pool

Run = Callable[..., dict[str, TrialRecord]]


@pytest.fixture
def office(machine, engine_spaces) -> TicketOffice:
    return office_for(machine, engine_spaces / "faults.yaml")


@pytest.fixture
def funnel(machine, compilers, interpreters) -> EstimateFunnel:
    return EstimateFunnel(PROBLEM, machine.device, compilers, 0, interpreters)


def through(funnel: EstimateFunnel, tickets: list[Ticket]) -> dict[str, TrialRecord]:
    """What becomes of the tickets, by label, in the order in which they come out."""
    for ticket in tickets:
        funnel.submit(ticket)
    records: dict[str, TrialRecord] = {}
    deadline = time.monotonic() + 60
    while funnel.in_flight:
        assert time.monotonic() < deadline
        for ticket, record in funnel.poll(0.2):
            assert record.config == ticket.config
            assert record.variant_hash == ticket.variant.hash
            records[record.config.label.split(",", 1)[1]] = record
    return records


@pytest.fixture
def run(funnel, office) -> Run:
    def with_configs(*texts: str) -> dict[str, TrialRecord]:
        records = through(funnel, [office.ticket(office.bound.parse(text)) for text in texts])
        return dict(zip(texts, (records[office.bound.parse(t).label.split(",", 1)[1]] for t in texts), strict=True))

    return with_configs


def test_a_right_config_is_ranked_by_an_estimate_that_says_so(run, funnel):
    record = run("")[""]
    assert record.outcome is Outcome.TIMED
    assert record.reason == "estimated"
    assert record.check_report is not None and record.check_report.passed
    assert record.check_report.mode == "interpreter"
    assert record.compile_report is not None and record.compile_report.instructions
    (measurement,) = record.measurements
    assert (measurement.stage, measurement.protocol) == ("estimate", "estimate-2")
    assert record.value_us == measurement.median_us == funnel.best_us
    assert set(record.seconds) == {"compile", "check"}
    assert funnel.gpu_busy_seconds == 0.0


def test_each_bad_config_ends_as_what_it_is_and_the_others_go_on(run):
    records = run("FAULT=wrong", "FAULT=type", "FAULT=shared", "FAULT=exit", "num_warps=2")
    outcomes = {text: record.outcome for text, record in records.items()}
    assert outcomes == {
        "FAULT=wrong": Outcome.WRONG,
        "FAULT=type": Outcome.COMPILE_ERROR,
        "FAULT=shared": Outcome.OUT_OF_RESOURCES,
        "FAULT=exit": Outcome.CRASHED,
        "num_warps=2": Outcome.TIMED,
    }
    wrong = records["FAULT=wrong"]
    assert wrong.reason.startswith("randn at softmax rows=")
    assert wrong.check_report is not None and wrong.check_report.families[-1].ratio > 1
    assert wrong.measurements == () and wrong.value_us is None
    assert records["FAULT=shared"].reason == (  # eight buffers of two tiles of 64 x 64 floats
        "faults_kernel: shared memory: needs 262144 bytes a block, but sm_90 (as NVIDIA H100 80GB HBM3) has 232448"
    )
    assert records["FAULT=shared"].check_report is None
    assert records["FAULT=exit"].reason == "the process that ran it crashed"
    assert records["FAULT=type"].reason.startswith("CompilationError: ")


def test_a_config_that_never_returns_is_timed_out(run, interpreters, monkeypatch):
    monkeypatch.setattr(interpreters, "_limit_s", 1.0)
    record = run("FAULT=endless")["FAULT=endless"]
    assert record.outcome is Outcome.TIMED_OUT
    assert record.reason == "did not run in the interpreter within 1 s"


def test_a_compilation_that_never_ends_is_timed_out(machine, engine_spaces, funnel, compilers, monkeypatch):
    monkeypatch.setattr(compilers, "_limit_s", 1.0)
    office = office_for(machine, engine_spaces / "sleepy.yaml")
    (record,) = through(funnel, [office.ticket(office.bound.plain()[0])]).values()
    assert record.outcome is Outcome.TIMED_OUT
    assert record.reason == "did not compile within 1 s"
    assert record.compile_report is None


class Submissions:
    """A pool that notes what is submitted to it."""

    def __init__(self, pool: Pool[int]) -> None:
        self._pool = pool
        self.jobs: list[InterpretJob] = []

    def submit(self, key: int, job: InterpretJob) -> None:
        self.jobs.append(job)
        self._pool.submit(key, job)

    def __getattr__(self, name: str) -> object:
        return getattr(self._pool, name)


def test_configs_with_one_binary_are_checked_once_whether_they_meet_or_follow(machine, compilers, interpreters, office):
    noted = Submissions(interpreters)
    funnel = EstimateFunnel(PROBLEM, machine.device, compilers, 0, noted)  # type: ignore[arg-type]
    together = through(funnel, [office.ticket(office.bound.parse(f"IGNORED={n}")) for n in (1, 2)])
    later = through(funnel, [office.ticket(office.bound.parse("IGNORED=3"))])
    first, *twins = [*together.values(), *later.values()]
    assert first.same_as == ""
    assert [twin.same_as for twin in twins] == [first.config.key] * 2
    assert [twin.value_us for twin in twins] == [first.value_us] * 2
    assert [twin.measurements for twin in twins] == [(), ()]
    assert all(twin.check_report == first.check_report for twin in twins)
    assert len(noted.jobs) == 1


def test_a_twin_of_a_wrong_config_is_wrong_for_the_same_reason(run):
    one, two = run("FAULT=wrong,IGNORED=1", "FAULT=wrong,IGNORED=2").values()
    assert one.outcome is two.outcome is Outcome.WRONG
    assert one.reason == two.reason
    assert sorted([one.same_as, two.same_as]) == sorted(["", one.config.key if two.same_as else two.config.key])


def test_a_twin_of_a_crashed_config_is_tried_itself(run):
    one, two = run("FAULT=exit,IGNORED=1", "FAULT=exit,IGNORED=2").values()
    assert one.outcome is two.outcome is Outcome.CRASHED
    assert (one.same_as, two.same_as) == ("", "")


def test_a_binary_that_was_timed_before_is_not_checked_again(machine, compilers, interpreters, office, run):
    known = run("IGNORED=1")["IGNORED=1"]
    noted = Submissions(interpreters)
    funnel = EstimateFunnel(PROBLEM, machine.device, compilers, 0, noted)  # type: ignore[arg-type]
    assert known.compile_report is not None
    funnel.know(Program(known.compile_report.binary_hash, office.candidate(known.config).promise), known)
    (record,) = through(funnel, [office.ticket(office.bound.parse("IGNORED=2"))]).values()
    assert (record.outcome, record.same_as, record.value_us) == (Outcome.TIMED, known.config.key, known.value_us)
    assert noted.jobs == []


def test_a_binary_that_promises_another_precision_is_checked_itself(machine, compilers, interpreters, office, run):
    known = run("IGNORED=1")["IGNORED=1"]
    noted = Submissions(interpreters)
    funnel = EstimateFunnel(PROBLEM, machine.device, compilers, 0, noted)  # type: ignore[arg-type]
    assert known.compile_report is not None
    candidate = office.candidate(known.config)
    laxer = replace(candidate, profile=replace(candidate.profile, l_from_rounded_p=True))
    funnel.know(Program(known.compile_report.binary_hash, laxer.promise), known)
    (record,) = through(funnel, [office.ticket(office.bound.parse("IGNORED=2"))]).values()
    assert (record.outcome, record.same_as) == (Outcome.TIMED, "")
    assert len(noted.jobs) == 1


def test_what_is_abandoned_comes_back_as_tickets_and_nothing_of_it_later(funnel, office):
    tickets = [office.ticket(office.bound.parse(f"IGNORED={n},FAULT=none")) for n in (1, 2, 3)]
    for ticket in tickets:
        funnel.submit(ticket)
    assert funnel.in_flight == 3
    assert funnel.abandon() == tickets
    assert funnel.in_flight == 0
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert funnel.poll(0.1) == []


def test_it_asks_for_no_more_than_twice_its_compilers(funnel, office):
    assert funnel.capacity() == 4
    for number in (1, 2, 3):
        funnel.submit(office.ticket(office.bound.parse(f"IGNORED={number}")))
    assert funnel.capacity() == 1
    assert funnel.compile_queue == 3
    funnel.abandon()


def test_a_compile_worker_cannot_interpret(machine, office):
    worker = machine.fresh_worker("mistaken")
    reply = worker.run(InterpretJob(PROBLEM, office.candidate(office.bound.plain()[0]), 0), 60)
    assert isinstance(reply, Raised)
    assert reply.message == "this worker was not started for the interpreter"
