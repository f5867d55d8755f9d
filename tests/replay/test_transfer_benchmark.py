"""The figures of ``benchmarks.transfer`` on a small recording."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checkout import checkout
from tuner.replay.reading import read_recording


@pytest.fixture
def benchmark(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(checkout())
    return importlib.import_module("benchmarks.transfer")


def test_a_search_begins_with_the_other_problems_winner(benchmark, recorded):
    recording = read_recording(recorded)
    best = min((row for row in recording.rows if row.time_us), key=lambda row: row.time_us).config
    nearest: dict[str, Any] = {best.key: best}
    source = benchmark.Swept("small", "toy", None, recording, best)
    target = benchmark.Swept("large", "toy", SimpleNamespace(nearest=lambda c: nearest.get(c.key)), recording, best)
    row = benchmark.compared(source, target, 3, 40)
    assert (row.source, row.target, row.configs) == ("small", "large", 93)
    assert row.begun == 1, "a recording without plain configs begins with the winner"
    assert row.cold > 2
    nearest.clear()  # the winner is not valid there, and nothing is near
    assert benchmark.compared(source, target, 3, 40).begun == row.cold
    assert benchmark.table([row]).splitlines()[-1].startswith("| small | large | 93 | ")


def test_a_search_that_does_not_get_there_counts_as_the_budget(benchmark, recorded):
    recording = read_recording(recorded)
    worst = max((row for row in recording.rows if row.time_us), key=lambda row: row.time_us).config
    assert benchmark.trials_to(recording, 0, 1, [worst]) == 1
    assert benchmark.trials_to(recording, 0, 3, [worst]) == 3
