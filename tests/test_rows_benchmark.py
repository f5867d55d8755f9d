"""The comparison of log_softmax, logsumexp and softmax_bwd with torch's: what can be known of it without a GPU."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

from tests.checkout import checkout
from tuner.operators import get
from tuner.precision import PrecisionProfile


@pytest.fixture
def benchmark_module(monkeypatch):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    # Last, so that `tuner` stays the one that is tested.
    monkeypatch.setattr(sys, "path", [*sys.path, str(checkout())])
    return importlib.import_module("benchmarks.compare_rows")


def test_every_peer_computes_what_the_winner_computes(benchmark_module, monkeypatch):
    monkeypatch.setattr(benchmark_module, "compiled", lambda function, *given: lambda: function(*given))
    for name in benchmark_module.FUNCTIONS:
        operator = get(name)
        problem = operator.problem({"rows": 6, "cols": 40}, "fp32")
        inputs = operator.timing_inputs(problem, 0, "cpu")
        makers = benchmark_module.peers_of(name)(inputs)
        assert tuple(makers) == benchmark_module.PEERS
        (reference,) = operator.reference(problem, inputs, PrecisionProfile("fp32", "fp32")).outputs.values()
        for make in makers.values():
            torch.testing.assert_close(make()().double(), reference.expected, rtol=1e-5, atol=1e-6)


def test_the_problems_are_those_of_softmax(benchmark_module):
    from benchmarks.problems import SOFTMAX, row_problem

    labels = [row_problem("softmax_bwd", *shape).label for shape in SOFTMAX]
    assert labels[0] == "softmax_bwd rows=4096 cols=1024 row_stride=1024 bf16" and len(labels) == 4
