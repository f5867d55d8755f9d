"""The figures of ``benchmarks.time_to_best``, whose runs take a GPU."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.checkout import checkout
from tuner.operators import names


@pytest.fixture
def benchmark(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(checkout())
    return importlib.import_module("benchmarks.time_to_best")


def run(track: list[tuple[float, str, float]], winner: str, **more: Any) -> dict[str, Any]:
    return {"seconds": 20.0, "space": 4, "trials": len(track), "outcomes": {}, "gpu_busy_share": 0.5,
            "winner": winner, "track": track, **more}  # fmt: skip


def test_every_operator_has_a_problem(benchmark):
    assert set(benchmark.problems()) == set(names(shipped=True))


def test_what_is_found_is_judged_by_the_run_over_everything(benchmark):
    every = run([(1.0, "a", 20.0), (2.0, "b", 10.1), (3.0, "c", 10.0), (4.0, "d", 11.0)], "c", seconds=99.0)
    cold = run([(2.0, "d", 9.0), (4.0, "b", 10.5), (5.0, "c", 10.4)], "b")  # d was lucky, and is 10 % slower
    row = benchmark.row_of(every, cold, {"configs": 2, "seconds": 20.0, "best": {"config": "a", "us": 1.0}})
    assert (row["seconds_to_98"], row["trials_to_98"]) == (4.0, 2)
    assert row["share_of_best"] == pytest.approx(10.0 / 10.1)
    assert row["trials_per_minute"] == pytest.approx(9.0)
    assert row["autotune_share"] == pytest.approx(0.5)
    cells = [cell.strip() for cell in benchmark.table({"p": row}).splitlines()[-1].split("|")[1:-1]]
    assert cells == ["p", "4", "99", "4.0", "2", "20.0", "3", "99.0%", "50%", "9", "2", "50%"]


def test_what_was_not_reached_is_a_dash(benchmark):
    every = run([(1.0, "a", 20.0), (2.0, "b", 10.0)], "b")
    row = benchmark.row_of(every, run([(2.0, "a", 9.0)], "a"), None)
    assert (row["seconds_to_98"], row["trials_to_98"], row["share_of_best"]) == (None, None, 0.5)
    cells = [cell.strip() for cell in benchmark.table({"p": row}).splitlines()[-1].split("|")[1:-1]]
    assert cells[3:5] == ["-", "-"] and cells[-2:] == ["-", "-"]
