"""The figures of ``benchmarks.many_problems``, whose runs take a GPU."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checkout import checkout
from tuner.errors import StudyFailedError
from tuner.problem import Problem
from tuner.results import TuneResult

PROBLEM = Problem("softmax", (("rows", 8), ("cols", 9)), "bf16")


@pytest.fixture
def benchmark(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(checkout())
    return importlib.import_module("benchmarks.many_problems")


def result(trials: int, busy_s: float, speedup: float | None) -> Any:
    study: Any = SimpleNamespace(trials=trials, gpu_busy_s=busy_s)
    winner: Any = SimpleNamespace(record=SimpleNamespace(speedup=speedup))
    return TuneResult(PROBLEM, study, winner)


def test_its_table_sums_what_the_studies_came_to_and_leaves_out_what_failed(benchmark):
    outcomes = [result(10, 4.0, 2.0), StudyFailedError("none"), None, result(20, 5.0, 8.0), result(5, 0.0, None)]
    way = benchmark.way("together", 20.0, 2, outcomes)
    assert way == benchmark.Way("together", 20.0, 35, 3, 0.225, pytest.approx(4.0))
    assert benchmark.table([way]).splitlines() == [
        "| way | wall s | configs | winners | GPU busy | gain over plain |",
        "|---|---|---|---|---|---|",
        "| together | 20.0 | 35 | 3 | 22% | 4.000 |",
    ]
