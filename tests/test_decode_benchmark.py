"""The benchmark of attention_decode beside its peers: what it computes without a GPU."""

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
    return importlib.import_module("benchmarks.compare_attention_decode")


def test_rates_count_the_cache_once_and_speedups_are_over_ours(benchmark):
    found = {"config": "template=split", "ms": {"tuner": 0.05, "flash": 0.1, "math": 0.2}}
    row = benchmark.row_of((8, 4096, 0), benchmark.decode_problem(8, 4096, 0), found, 4.0e12)
    assert row["cache_gib"] == 0.125
    moved = 2**27 + 8 * (2 * 32 * 128 * 2 + 32 * 4 + 4)
    assert row["tb_per_s"] == pytest.approx(moved / 0.05e-3 / 1e12) and row["of_copy"] == row["tb_per_s"] / 4.0
    assert row["speedup"] == {"flash": 2.0, "math": 4.0}
    last = benchmark.table([row]).splitlines()[-1]
    assert last.startswith("| 8 | 4096 | contiguous | 0.12 | 50.0 | ")
    assert last.endswith("| 100.0 | - | - | 200.0 | - | 2.00 x |")


def test_every_peer_that_runs_computes_what_the_operator_says(benchmark):
    operator = get("attention_decode")
    shape = {"batch": 2, "heads": 8, "kv_heads": 2, "kv_len": 40, "head_dim": 16}
    problem = operator.problem(shape, "fp32")
    inputs = operator.timing_inputs(problem, 0, "cpu")
    reference = operator.reference(problem, inputs, PrecisionProfile("fp32", "fp32", tiles=4)).outputs["out"].expected
    calls = benchmark.peers(inputs["q"], inputs["k"], inputs["v"])
    for name in ("math", "flash_packed"):
        got = calls[name]().double().view_as(reference)
        torch.testing.assert_close(got, reference, rtol=1e-5, atol=1e-5, msg=name)


def test_the_largest_problem_is_the_one_that_fills_the_card(benchmark):
    assert max(2 * b * 8 * n * 128 * 2 for b, n, _ in benchmark.DECODE) == 2**35
    assert {page for _, _, page in benchmark.DECODE} == {0, 16, 64}
