"""The benchmark of attention's features beside SDPA: what it computes without a GPU."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

from tests.checkout import checkout
from tuner.operators import get
from tuner.precision import PrecisionProfile

pytest.importorskip("triton", reason="Triton runs on Linux only")


@pytest.fixture
def benchmark(monkeypatch):
    """The script, of the checkout; last on the path, so that ``tuner`` stays the one that is tested."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(checkout())])
    return importlib.import_module("benchmarks.compare_attention_features")


def test_rates_count_both_dims_and_ratios_are_over_the_best_peer(benchmark):
    found = {"config": "template=pointer", "ms": {"tuner": 2.0, "efficient": 4.0}, "difference": {"efficient": 2e-3}}
    row = benchmark.row_of((4, 32, 4096, 192, 128, False, 0.0), found)
    assert row["tflops"]["tuner"] == pytest.approx(2 * 4 * 32 * 4096**2 * (192 + 128) / 2e-3 / 1e12)
    dropped = benchmark.row_of((4, 32, 4096, 64, 64, True, 0.17), {**found, "ms": {"tuner": 2.0}, "difference": {}})
    lines = benchmark.table([row, dropped]).splitlines()
    assert lines[2].startswith("| 4 32 4096 192, 128 | full | 0.0 | 687 | - | - | 344 | 2.00 x | 2.0e-03 |")
    assert lines[3].startswith("| 4 32 4096 64, 64 | causal | 0.17 | ") and "| - | - | - | - | - |" in lines[3]
    assert len({line.count("|") for line in lines}) == 1


def test_a_peer_computes_what_the_operator_says(benchmark):
    operator = get("attention_fwd")
    shape = {"batch": 2, "heads": 2, "q_len": 40, "head_dim": 32, "v_head_dim": 16}
    problem = operator.problem(shape, "fp32", {"causal": True})
    inputs = operator.timing_inputs(problem, 0, "cpu")
    expected = operator.reference(problem, inputs, PrecisionProfile("fp32", "fp32")).outputs["out"].expected
    got = benchmark.sdpa(benchmark.SDPBackend.MATH, inputs, True, 0.0)()
    assert benchmark.difference(got, expected) < 1e-5 < 0.1 < benchmark.difference(got.roll(1, 2), expected)
    torch.manual_seed(0)
    gone = benchmark.sdpa(benchmark.SDPBackend.MATH, inputs, True, 0.9)()[:, :, 0]
    assert 0.0 < float((gone == 0.0).all(-1).double().mean()) <= 1.0  # of one weight most are gone
    assert set(benchmark.peers(inputs, problem)) == {"flash", "cudnn", "efficient"}


def test_every_problem_has_configs(benchmark):
    problems = [benchmark.attention_features_problem(*shape) for shape in benchmark.ATTENTION_FEATURES]
    assert len({problem.key for problem in problems}) == len(problems)
    assert [("v_head_dim" in p.sizes, "dropout" in p.settings) for p in problems] == [(True, False)] * 4 + [
        (False, True)
    ] * 3
