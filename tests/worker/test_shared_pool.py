"""One pool for several pieces of work: who goes first, what waits for what is the same, and what is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.worker.messages import Done
from tuner.worker.shared_pool import SharedPool


class Pool:
    """The face of a pool of two workers, whose jobs end when the test says so."""

    size = 2

    def __init__(self) -> None:
        self.at: dict[int, Any] = {}
        self.ended: list[tuple[int, Done]] = []
        self.forgotten: list[Any] = []

    def submit(self, key: int, job: Any) -> None:
        assert len(self.at) < self.size
        self.at[key] = job

    def end(self, job: Any) -> None:
        key = next(key for key, running in self.at.items() if running == job)
        del self.at[key]
        self.ended.append((key, Done(job, 0.1)))

    def poll(self) -> list[tuple[int, Done]]:
        ended, self.ended = self.ended, []
        return ended

    def busy_workers(self) -> list[Any]:
        return []

    def forget(self, keys: list[int]) -> None:
        self.forgotten += [self.at.pop(key) for key in keys]


@pytest.fixture
def pool() -> Any:
    return Pool()


def test_a_free_worker_takes_the_job_of_the_share_that_goes_first(pool):
    shared = SharedPool(pool)
    first, second = shared.share(), shared.share()
    for number in range(3):
        second.submit(number, f"second {number}")
    first.submit(7, "first 7")
    assert list(pool.at.values()) == ["second 0", "second 1"]
    assert (first.waiting, first.running, second.waiting, second.running) == (1, 0, 1, 2)
    pool.end("second 0")
    assert second.poll() == [(0, Done("second 0", 0.1))]
    assert list(pool.at.values()) == ["second 1", "first 7"]
    shared.rank([second])
    first.submit(8, "first 8")
    pool.end("first 7")
    assert first.poll() == [(7, Done("first 7", 0.1))] and second.poll() == []
    assert list(pool.at.values()) == ["second 1", "second 2"]


def test_what_is_the_same_as_a_job_in_hand_waits_for_it_and_others_pass(pool):
    shared = SharedPool(pool, same=lambda job: job[0])
    one, other = shared.share(), shared.share()
    one.submit(1, "a1")
    other.submit(1, "a2")
    other.submit(2, "b")
    assert list(pool.at.values()) == ["a1", "b"]
    pool.end("b")
    assert other.poll() == [(2, Done("b", 0.1))]
    assert list(pool.at.values()) == ["a1"]
    pool.end("a1")
    assert other.poll() == [] and one.poll() == [(1, Done("a1", 0.1))]
    assert list(pool.at.values()) == ["a2"]


def test_jobs_of_which_nothing_is_known_do_not_wait_for_one_another(pool):
    share = SharedPool(pool).share()
    share.submit(1, "a")
    share.submit(2, "a")
    assert share.running == 2


def test_a_share_that_is_abandoned_leaves_the_jobs_of_the_others(pool):
    shared = SharedPool(pool)
    kept, gone = shared.share(), shared.share()
    gone.submit(1, "gone 1")
    kept.submit(1, "kept 1")
    gone.submit(2, "gone 2")
    gone.abandon()
    assert pool.forgotten == ["gone 1"] and list(pool.at.values()) == ["kept 1"]
    kept.submit(2, "kept 2")
    pool.end("kept 1")
    assert kept.poll() == [(1, Done("kept 1", 0.1))] and gone.poll() == [] and gone.waiting == 0
    gone.close()
    assert list(pool.at.values()) == ["kept 2"]
