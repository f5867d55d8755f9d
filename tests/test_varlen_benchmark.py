"""The benchmark of attention_varlen beside its peers: what it computes without a GPU."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

from tests.checkout import checkout
from tuner.operators import get
from tuner.precision import PrecisionProfile

pytest.importorskip("triton", reason="Triton runs on Linux only")

SHAPE = {"batch": 4, "heads": 4, "kv_heads": 2, "max_len": 24, "head_dim": 16}


@pytest.fixture
def benchmark(monkeypatch):
    """The script, of the checkout; last on the path, so that ``tuner`` stays the one that is tested."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(checkout())])
    return importlib.import_module("benchmarks.compare_attention_varlen")


def test_rates_count_what_is_there_and_ratios_are_over_the_best_peer(benchmark):
    shape = (4, 8, 8, "uniform", True)  # 6, 2, 8 and 4 tokens
    found = {"config": "template=pointer", "ms": {"tuner": 0.1, "flash": 0.2, "padded_cudnn": 0.125}}
    row = benchmark.row_of(shape, {**found, "difference": {"flash": 2e-3, "padded_cudnn": 1e-3}})
    assert row["tflops"]["tuner"] == pytest.approx(4 * 128 * 32 * (21 + 3 + 36 + 10) / 1e-4 / 1e12)
    lines = benchmark.table([row]).splitlines()
    assert lines[-1].startswith("| 4 | 8, 8 | uniform | causal | 0 | - | 0 | - | 0 | 1.25 x | 2.0e-03 |")
    assert len({line.count("|") for line in lines}) == 1
    alone = benchmark.row_of(shape, {"config": "", "ms": {"tuner": 0.1}, "difference": {}})
    assert "| - | - | - | - | - | - |" in benchmark.table([alone])


def test_padding_is_offered_where_it_changes_nothing(benchmark):
    def names(causal, lengths, **changes):
        problem = get("attention_varlen").problem({**SHAPE, **changes}, "fp32", {"causal": causal, "lengths": lengths})
        return list(benchmark.peers({}, problem))

    every = ["varlen_attn", "flash", "padded_flash", "padded_cudnn"]
    assert names(True, "skewed") == names(False, "equal") == every
    assert names(False, "skewed") == names(True, "skewed", max_kv_len=30) == every[:2]


def test_what_is_padded_computes_what_the_operator_says(benchmark):
    operator = get("attention_varlen")
    problem = operator.problem(SHAPE, "fp32", {"causal": True, "lengths": "uniform"})
    inputs = operator.timing_inputs(problem, 0, "cpu")
    expected = operator.reference(problem, inputs, PrecisionProfile("fp32", "fp32")).outputs["out"].expected
    math = benchmark.padded_sdpa(benchmark.SDPBackend.MATH, inputs, 24, True)
    got = benchmark.repacked(math(), inputs["cu_seqlens_q"])
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
    assert benchmark.difference(got, expected) < 1e-5 < 0.1 < benchmark.difference(got.roll(1, 0), expected)


def test_torch_takes_the_arguments_that_its_own_function_and_its_kernel_are_given(benchmark):
    """Neither runs on a CPU; both say so only after they have read their arguments, and are not made then."""
    problem = get("attention_varlen").problem(SHAPE, "bf16", {"causal": True})
    inputs = get("attention_varlen").timing_inputs(problem, 0, "cpu")
    for make in (benchmark.flash, benchmark.varlen_attn):
        if make is benchmark.varlen_attn:
            pytest.importorskip("torch.nn.attention.varlen", reason="torch has it from 2.10 on")
        with pytest.raises((RuntimeError, NotImplementedError), match=r"CPU|backend"):
            make(inputs, 24, 24, True)


def test_the_problems_differ_in_what_matters(benchmark):
    assert {lengths for _, _, _, lengths, _ in benchmark.VARLEN} == {"equal", "uniform", "skewed"}
    assert {causal for *_, causal in benchmark.VARLEN} == {True, False}
    for shape in benchmark.VARLEN:
        problem = benchmark.varlen_problem(*shape)
        assert get("attention_varlen").bytes_moved(problem) < 2**35
