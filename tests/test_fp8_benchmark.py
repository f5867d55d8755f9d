"""The benchmark of attention in fp8 beside its peers: what it computes without a GPU."""

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
    return importlib.import_module("benchmarks.compare_attention_fp8")


def test_rates_and_ratios_are_of_ours_in_fp8(benchmark):
    shape = (2, 4, 512, 64, True)
    found = {"configs": {"tuner_fp8": "template=pointer"}, "difference": 2e-3}
    row = benchmark.row_of(shape, {**found, "ms": {"tuner_fp8": 0.1, "tuner_bf16": 0.15, "cudnn_bf16": 0.125}})
    assert row["tflops"]["tuner_fp8"] == pytest.approx(4 * 64 * 8 * (512 * 513 / 2) / 1e-4 / 1e12)
    lines = benchmark.table([row]).splitlines()
    assert lines[-1] == (
        "| 2, 4, 512, 64 | causal | 3 | 2 | 2 | - | - | 1.50 x | 1.25 x | 2.0e-03 | template=pointer |"
    )
    assert len({line.count("|") for line in lines}) == 1
    alone = benchmark.row_of(shape, {"configs": {"tuner_fp8": ""}, "ms": {"tuner_fp8": 0.1}, "difference": None})
    assert "| 3 | - | - | - | - | - | - | - |" in benchmark.table([alone])


def test_the_peer_in_bf16_computes_what_the_operator_says_of_the_same_numbers(benchmark):
    problem = benchmark.attention_problem(1, 2, 48, 32, True, dtype="fp8")
    operator = get("attention_fwd")
    inputs = operator.timing_inputs(problem, 0, "cpu")
    profile = PrecisionProfile("fp8", "bf16", p="fp8", dot="8bit", pv_terms=32, p_scale=256)
    expected = operator.reference(problem, inputs, profile).outputs["out"].expected
    got = benchmark.sdpa(benchmark.SDPBackend.MATH, inputs, True)()
    assert got.dtype is torch.bfloat16
    assert benchmark.difference(got, expected) < 2e-2 < 0.1 < benchmark.difference(got.roll(1, 2), expected)


def test_a_peer_that_is_not_installed_is_not_made(benchmark):
    problem = benchmark.attention_problem(1, 2, 48, 32, True, dtype="fp8")
    inputs = get("attention_fwd").timing_inputs(problem, 0, "cpu")
    assert list(benchmark.peers(inputs, True)) == ["cudnn_bf16", "flash_bf16", "fa3_fp8"]
    with pytest.raises((ImportError, RuntimeError, NotImplementedError)):
        benchmark.peers(inputs, True)["fa3_fp8"]()


def test_each_shape_is_tuned_in_both_dtypes(benchmark):
    problems = [benchmark.attention_problem(*s, dtype=d) for s in benchmark.ATTENTION for d in ("fp8", "bf16")]
    assert len({problem.key for problem in problems}) == 2 * len(benchmark.ATTENTION)
