"""Every callable of an exported package is the problem that it would be tuned as."""

from __future__ import annotations

import pytest
import torch

from tuner.capturing.packages import of_package
from tuner.capturing.problems_of import NoProblemError
from tuner.exports.python_operators import CALLABLES

X = torch.randn(4, 6, 10).half()
T = torch.zeros(4, 6, dtype=torch.int64)
Q, K = torch.randn(2, 4, 8, 16).half(), torch.randn(2, 2, 40, 16).half()
LENS = torch.tensor([40, 3], dtype=torch.int32)
ROWS = "rows=24 cols=10 row_stride=10"
HEADS = "batch=2 heads=4 kv_heads=2 q_len=8 kv_len=40 head_dim=16"
CALLS = {
    "softmax": ({"x": X}, f"softmax {ROWS} fp16"),
    "log_softmax": ({"x": X}, f"log_softmax {ROWS} fp16"),
    "logsumexp": ({"x": X}, f"logsumexp {ROWS} fp16"),
    "softmax_bwd": ({"y": X, "dy": X}, f"softmax_bwd {ROWS} fp16"),
    "softmax_topk": ({"x": X, "k": 3}, "softmax_topk rows=24 cols=10 k=3 row_stride=10 fp16"),
    "cross_entropy": (
        {"logits": X, "targets": T, "label_smoothing": 0.25, "z_loss": 0.0},
        f"cross_entropy {ROWS} fp16 label_smoothing=0.25",
    ),
    "cross_entropy_bwd": (
        {"logits": X, "targets": T, "label_smoothing": 0.0, "z_loss": 0.5},
        f"cross_entropy_bwd {ROWS} fp16 z_loss=0.5",
    ),
    "attention_fwd": ({"q": Q, "k": K, "v": K, "causal": True}, f"attention_fwd {HEADS} fp16 causal"),
    "attention_bwd": ({"q": Q, "k": K, "v": K, "scale": 0.5}, f"attention_bwd {HEADS} fp16 scale=0.5"),
    "attention_decode": (
        {"q": Q, "k": K, "v": K, "seq_lens": LENS, "scale": None},
        f"attention_decode {HEADS} page_size=0 fp16",
    ),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_a_call_is_its_problem(name):
    named, label = CALLS[name]
    assert of_package(name, named).problem.label == label


def test_a_callable_of_a_file_that_is_not_named_is_none():
    with pytest.raises(NoProblemError, match=r"its file is not named: --operator FILE.py:rmsnorm"):
        of_package("rmsnorm", {"x": X})
