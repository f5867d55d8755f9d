"""Work in steps: it is driven to its end, waits for workers no longer than it must, and hears of Ctrl-C."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.fakes import FakeWorker
from tuner.steps import Pause, Steps, finish, reply_in_steps, rest
from tuner.worker.messages import Done


def test_it_is_driven_to_its_result():
    def work() -> Steps[str]:
        yield Pause((), 0.0)
        yield Pause((), 0.0)
        return "done"

    assert finish(work()) == "done"


def test_ctrl_c_while_it_waits_is_raised_where_it_waits(monkeypatch):
    def interrupted(pauses: Any) -> None:
        raise KeyboardInterrupt

    def work() -> Steps[str]:
        try:
            yield Pause()
        except KeyboardInterrupt:
            return "stopped"
        return "done"

    monkeypatch.setattr("tuner.steps.rest", interrupted)
    assert finish(work()) == "stopped"


def test_ctrl_c_that_it_does_not_take_comes_out():
    def work() -> Steps[None]:
        yield Pause((), 0.0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finish(work())


def test_the_rest_is_over_when_one_of_all_workers_answers_or_the_shortest_time_is_up():
    quiet, quick = FakeWorker(lambda job: None), FakeWorker(lambda job: Done(1, 0.1))
    workers: Any = quiet, quick
    for worker in workers:
        worker.send("job", 60.0)
    began = time.monotonic()
    rest([Pause(workers[:1], 30.0), Pause(workers[1:], 30.0)])
    assert time.monotonic() - began < 5.0
    rest([Pause(workers[:1], 30.0), Pause(workers[:1], 0.05)])
    quiet.deadline = time.monotonic() + 0.05
    rest([Pause(workers[:1], 30.0)])
    assert time.monotonic() - began < 10.0


def test_a_reply_is_waited_for():
    worker: Any = FakeWorker(lambda job: Done(job, 0.1))
    assert finish(reply_in_steps(worker, "job", 60.0)) == Done("job", 0.1)
