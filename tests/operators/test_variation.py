"""Variations: other inputs, whose right outputs are the old ones changed back, to the bit."""

from __future__ import annotations

import pytest
import torch

from tests.operators.test_references import BF16, torch_attention
from tuner.operators import get

ATTENTION = get("attention_fwd")
SHAPE = {"batch": 3, "heads": 4, "kv_heads": 2, "q_len": 20, "kv_len": 40, "head_dim": 16}


def applied(variation, inputs):
    given = {name: torch.empty_like(tensor) for name, tensor in inputs.items()}
    variation.apply(inputs, given)
    return given


def undone(variation, name, output):
    into = torch.empty(output.shape, dtype=torch.float64)
    variation.undo(name, output, into)
    return into


@pytest.mark.parametrize("family", ["randn", "nonfinite", "coverage", "v_offset", "very_negative"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_varied_inputs_is_the_varied_attention(family, causal):
    problem = ATTENTION.problem(SHAPE, "bf16", {"causal": causal})
    inputs = ATTENTION.make_inputs(problem, family, 0, "cpu")
    expected = dict(zip(("out", "lse"), torch_attention(inputs, 0.25, causal), strict=True))
    found = set()
    for seed in range(8):
        variation = ATTENTION.variation(problem, "cpu", seed)
        varied = applied(variation, inputs)
        found.add(varied["v"].nan_to_num(0.5).float().sum(dim=(0, 1, 2)).tolist().__repr__())
        got = dict(zip(("out", "lse"), torch_attention(varied, 0.25, causal), strict=True))
        for name, want in expected.items():
            back = undone(variation, name, got[name])
            torch.testing.assert_close(back, want, rtol=1e-12, atol=1e-12, equal_nan=True)
            index = tuple(torch.randint(size, (40,)) for size in want.shape[:3])
            some = torch.empty_like(want[index])
            variation.undo(name, got[name], some, index)
            assert torch.equal(some.nan_to_num(0.5), back[index].nan_to_num(0.5))
    assert len(found) == 8 or family == "coverage"  # of which few columns of v are not zero


def test_a_place_is_told_in_the_output_as_it_was_written():
    problem = ATTENTION.problem(SHAPE, "bf16")
    variation = ATTENTION.variation(problem, "cpu", 5)
    written = torch.zeros(3, 4, 20, 16, dtype=torch.bfloat16)
    written[2, 1, 7, 3] = 1.0
    (where,) = undone(variation, "out", written).nonzero().tolist()
    assert variation.place("out", tuple(where), written.shape) == (2, 1, 7, 3)


def test_softmax_rows_change_places_and_one_row_stays():
    softmax = get("softmax")
    problem = softmax.problem({"rows": 6, "cols": 5}, "fp32")
    x = softmax.make_inputs(problem, "randn", 0, "cpu")
    orders = {tuple(applied(softmax.variation(problem, "cpu", seed), x)["x"][:, 0].tolist()) for seed in range(20)}
    assert len(orders) == 6
    single = softmax.problem({"rows": 1, "cols": 5}, "fp32")
    one = softmax.make_inputs(single, "randn", 0, "cpu")
    assert torch.equal(applied(softmax.variation(single, "cpu", 3), one)["x"], one["x"])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_invariants_hold_for_right_outputs_and_not_where_one_row_is_off(dtype, causal):
    from dataclasses import replace

    profile = replace(BF16, input=dtype, output=dtype, p=dtype, dot="ieee" if dtype == "fp32" else "16bit")
    problem = ATTENTION.problem({**SHAPE, "q_len": 50}, dtype, {"causal": causal})
    inputs = ATTENTION.make_inputs(problem, "randn", 0, "cpu")
    invariant = ATTENTION.invariant(problem, inputs, profile)
    out, _ = torch_attention(dict(invariant.inputs), 0.25, causal)
    right = {"out": out.to(inputs["q"].dtype)}
    assert float(invariant.excess(right)) < 1.0
    right["out"][2, 3, 30, 7] *= 1.05
    assert float(invariant.excess(right)) > 1.0
    right["out"][2, 3, 30, 7] = float("nan")
    assert float(invariant.excess(right)) == float("inf")

    softmax = get("softmax")
    rows = softmax.problem({"rows": 6, "cols": 500}, dtype)
    x = softmax.make_inputs(rows, "randn", 0, "cpu")
    sums = softmax.invariant(rows, x, replace(BF16, input=dtype, output=dtype))
    y = torch.softmax(x["x"].double(), 1).to(x["x"].dtype)
    assert float(sums.excess({"out": y})) < 1.0
    y[4] = y[4] * 1.05
    assert float(sums.excess({"out": y})) > 1.0
