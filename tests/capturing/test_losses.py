"""A cross-entropy is one problem where it is called, with its gradient; what no operator computes is said."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import tuner
from tests.capturing.test_capture import counted, passed_over

TARGETS = torch.tensor([1, 2, 3, -100])


def logits(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(4, 10, dtype=dtype, requires_grad=True)


def test_a_cross_entropy_and_its_gradient_are_problems_and_its_log_softmax_is_none():
    x = logits()
    with tuner.capture() as recording:
        functional.cross_entropy(x, TARGETS).backward()
        torch.nn.CrossEntropyLoss(reduction="sum")(x, TARGETS).backward()
        functional.cross_entropy(x, TARGETS, label_smoothing=0.25, reduction="none").sum().backward()
        functional.cross_entropy(x[0].detach(), TARGETS[0])
        functional.cross_entropy(input=logits(torch.bfloat16), target=TARGETS)
    assert counted(recording) == {
        "cross_entropy rows=4 cols=10 row_stride=10 fp32": 2,
        "cross_entropy_bwd rows=4 cols=10 row_stride=10 fp32": 2,
        "cross_entropy rows=4 cols=10 row_stride=10 fp32 label_smoothing=0.25": 1,
        "cross_entropy_bwd rows=4 cols=10 row_stride=10 fp32 label_smoothing=0.25": 1,
        "cross_entropy rows=1 cols=10 row_stride=10 fp32": 1,
        "cross_entropy rows=4 cols=10 row_stride=10 bf16": 1,
    }
    assert passed_over(recording) == {}


def test_rows_that_are_ignored_by_another_number_are_a_note():
    with tuner.capture() as recording:
        functional.cross_entropy(logits(), TARGETS.clamp(0), ignore_index=0)
    (item,) = recording.problems
    assert item.notes == ("ignore_index=0: the operator leaves out rows of target -100; put that in its place",)


def test_what_no_operator_computes_is_said_and_its_log_softmax_counts():
    x = logits()
    with tuner.capture() as recording:
        functional.cross_entropy(x, TARGETS, weight=torch.ones(10)).backward()
        functional.cross_entropy(x, torch.full((4, 10), 0.1))
        functional.cross_entropy(torch.randn(2, 10, 5), torch.zeros(2, 5, dtype=torch.int64))
        functional.cross_entropy(x.double(), TARGETS)
    reasons = {why: times for (what, why), times in passed_over(recording).items() if what == "cross_entropy"}
    assert reasons == {
        "it has weights of classes": 1,
        "its targets are probabilities": 1,
        "its classes are not along the last axis; move them there, and make rows of the others": 1,
        "cross_entropy takes no float64": 1,
    }
    assert counted(recording) == {"log_softmax rows=4 cols=10 row_stride=10 fp32": 2}


def test_a_log_softmax_beside_it_keeps_its_own_backward_pass():
    x = logits()
    with tuner.capture() as recording:
        loss = functional.cross_entropy(x, TARGETS)
        other = torch.log_softmax(x, -1).sum()
        other.backward()
        loss.backward()
        torch.log_softmax(x, -1).sum().backward()
    assert counted(recording)["cross_entropy_bwd rows=4 cols=10 row_stride=10 fp32"] == 1
    assert sum(times for (what, _), times in passed_over(recording).items() if "backward pass" in what) == 2


def test_a_call_that_torch_refuses_is_refused_as_without_a_capture():
    with tuner.capture() as recording, pytest.raises((RuntimeError, ValueError)):
        functional.cross_entropy(logits(), torch.zeros(3, dtype=torch.int64))
    assert sum(counted(recording).values()) + len(passed_over(recording)) == 1
