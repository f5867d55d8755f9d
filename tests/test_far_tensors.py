"""Tensors whose elements are more than 2^31 apart, and what the check does with them."""

from __future__ import annotations

import mmap

import pytest
import torch

from tuner.check_plan import CheckPlan, plan
from tuner.checking import check
from tuner.errors import MissingError
from tuner.far_tensors import FarOutputs
from tuner.operators import OutputSpec, get
from tuner.precision import PrecisionProfile

SOFTMAX = get("softmax")
PROFILE = PrecisionProfile("bf16", "bf16", tiles=40)


def planned(rows):
    problem = SOFTMAX.problem({"rows": rows, "cols": 40_000}, "bf16")
    return plan(SOFTMAX, problem, {"cols": 1024}, {}, PROFILE, full_size=False).checks


def test_a_tuned_problem_of_more_than_2_31_elements_is_checked_on_rows_so_far_apart():
    assert not any(c.far for c in planned(50_000))
    far = [c for c in planned(60_000) if c.far]
    assert [c.name for c in far] == ["randn (2^31 elements apart)"]
    seen = []

    def launch(x, out, rows=None):
        seen.append(((len(x) - 1) * x.stride(0), (len(out) - 1) * out.stride(0)))
        out[:rows].copy_(torch.softmax(x[:rows].float(), 1))

    def all_but_the_last(x, out):
        launch(x, out, -1)

    assert check(launch, SOFTMAX, CheckPlan(tuple(far)), "cpu", 0, variation=3).passed
    assert seen and all(distance >= 2**31 for distance in seen[0])
    refused = check(all_but_the_last, SOFTMAX, CheckPlan(tuple(far)), "cpu", 0)
    assert not refused.passed and "never written" in refused.reason


def test_what_is_left_and_what_is_written_is_told_apart():
    outputs = FarOutputs({"out": OutputSpec((2, 3), "fp32"), "at": OutputSpec((2,), "int64")}, {"out": (2**31, 1)})
    outputs.poison(0)
    outputs.tensors[0]["out"][1, 2] = 0.0
    outputs.tensors[0]["at"][0] = 5
    assert outputs.left(0, "out").tolist() == [[True, True, True], [True, True, False]]
    assert outputs.left(0, "at").tolist() == [False, True]


def test_addresses_that_cannot_be_had_are_said(monkeypatch):
    def refuse(*given, **named):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MissingError, match=r"in 8 GiB of addresses.*Cannot allocate memory; raise `ulimit -v`"):
        FarOutputs({"out": OutputSpec((2, 3), "bf16")}, {"out": (2**31, 1)})
