"""The comparison of the cross-entropy with its peers: what can be known of it without a GPU."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

from tests.checkout import checkout
from tuner.operators import get
from tuner.precision import PrecisionProfile

BENCHMARK = "benchmarks.compare_cross_entropy"


@pytest.fixture
def benchmark_module(monkeypatch):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    # Last, so that `tuner` stays the one that is tested.
    monkeypatch.setattr(sys, "path", [*sys.path, str(checkout())])
    return importlib.import_module(BENCHMARK)


def test_every_peer_that_is_here_computes_what_the_winner_computes(benchmark_module, monkeypatch, capsys):
    monkeypatch.setattr(benchmark_module, "compiled", lambda function, *given: lambda: function(*given))
    for missing in ("liger_kernel", "quack"):
        monkeypatch.setitem(sys.modules, missing, None)
    for name, makers, output in (
        ("cross_entropy", benchmark_module.forward_peers, "loss"),
        ("cross_entropy_bwd", benchmark_module.backward_peers, "dlogits"),
    ):
        operator = get(name)
        problem = operator.problem({"rows": 6, "cols": 40}, "fp32")
        inputs = operator.timing_inputs(problem, 0, "cpu")
        calls = benchmark_module.made(makers(inputs), problem)
        assert set(calls) == {"torch", "inductor"}
        expected = operator.reference(problem, inputs, PrecisionProfile("fp32", "fp32")).outputs[output].expected
        for call in calls.values():
            torch.testing.assert_close(call().double(), expected, rtol=1e-5, atol=1e-5)
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].split(" ")[0] for line in said] == ["liger", "quack", "liger_both", "quack"]
    assert all("ModuleNotFoundError: " in line for line in said)


def test_rates_are_bytes_moved_once_and_the_table_has_them_beside_the_best_peer(benchmark_module):
    problem = get("cross_entropy").problem({"rows": 1000, "cols": 999_992}, "bf16")
    rate = benchmark_module.rates(problem, {"tuner": 1.0, "torch": 4.0})
    assert rate == {"tuner": pytest.approx(2.0), "torch": pytest.approx(0.5)}
    row = {"rows": 1000, "cols": 999_992, "us": 1000.0, "tb_per_s": rate}
    lines = benchmark_module.table("cross_entropy", [row], 4.0, benchmark_module.FORWARD_PEERS).splitlines()
    assert lines[-1] == "| 1000 | 999992 | 1000.0 | 2.00 | 0.50 | 0.50 | - | - | - | 4.00 |"
    assert lines[0] == "cross_entropy, TB/s" and lines[2].count("|") == lines[3].count("|") == lines[4].count("|")
    alone = row | {"tb_per_s": {"tuner": 2.0}}
    gradient = benchmark_module.table("cross_entropy_bwd", [alone], 4.0, benchmark_module.BACKWARD_PEERS)
    assert gradient.endswith("| - | - | - | - | - |")
