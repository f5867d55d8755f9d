"""The benchmark of attention_bwd beside its peers: what it computes without a GPU."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend

from tests.checkout import checkout
from tuner.operators import get
from tuner.precision import PrecisionProfile

pytest.importorskip("triton", reason="Triton runs on Linux only")


@pytest.fixture
def benchmark(monkeypatch):
    """The script, of the checkout; last on the path, so that ``tuner`` stays the one that is tested."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(checkout())])
    return importlib.import_module("benchmarks.compare_attention_bwd")


def test_the_backward_pass_counts_as_two_and_a_half_forward_passes_and_half_of_it_where_causal(benchmark):
    found = {"config": "template=fused", "ms": {"tuner": 2.0, "cudnn": 1.0}, "difference": {"cudnn": 0.004}}
    full, causal = (benchmark.row_of((4, 32, 4096, 128, flag), found) for flag in (False, True))
    assert full["tflops"]["tuner"] == pytest.approx(2.5 * 4 * 4 * 32 * 4096**2 * 128 / 2e-3 / 1e12)
    assert causal["tflops"]["cudnn"] == full["tflops"]["tuner"]
    last = benchmark.table([full, causal]).splitlines()[-1]
    assert last == "| 4 32 4096 128 | causal | 687 | - | 1374 | - | 0.50 x | 4.0e-03 | template=fused |"


def test_a_peer_computes_what_the_operator_says_from_one_forward_pass(benchmark):
    operator = get("attention_bwd")
    problem = operator.problem({"batch": 2, "heads": 2, "q_len": 40, "head_dim": 16}, "fp32", {"causal": True})
    inputs = operator.timing_inputs(problem, 0, "cpu")
    call = benchmark.gradients(SDPBackend.MATH, inputs, True)
    with torch.no_grad():  # as it is captured
        call()
        theirs = call()
    expected = operator.reference(problem, inputs, PrecisionProfile("fp32", "fp32")).outputs
    for found, name in zip(theirs, ("dq", "dk", "dv"), strict=True):
        torch.testing.assert_close(found.double(), expected[name].expected, rtol=1e-4, atol=1e-5)
    ours = {name: of.expected.float() for name, of in expected.items()}
    assert benchmark.difference(ours, theirs) < 1e-4
    ours["dk"] = 1.01 * ours["dk"]
    assert benchmark.difference(ours, theirs) == pytest.approx(0.01, rel=0.01)
    assert set(benchmark.peers(inputs, True)) == {"flash", "cudnn"}
