"""Runs the softmax_topk templates in Triton's interpreter, without the check; run as a script, with cases on stdin.

A case is [template, dtype, rows, cols, k, arguments of launch()]. One JSON line comes back for each, in order: by kind
of rows, how many indices differ from a stable sort of the input, and the largest relative error of a value.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from tuner.interpreter import repair_interpreter
from tuner.loading import load_source
from tuner.operators.tensors import TORCH_DTYPES
from tuner.shipped import variants_dir


def matrices(rows: int, cols: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Normal logits of which many are equal, and ones that grow along the row, so that the last are the largest."""
    x = torch.randn(rows, cols, generator=torch.Generator().manual_seed(1))
    rising = torch.arange(cols) * (8.0 / cols) + 0.01 * x
    return {"ties": (4.0 * x).round().to(dtype) / 4.0, "rising": rising.to(dtype)}


def run(template: str, dtype: str, rows: int, cols: int, k: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """What one case gives."""
    launch = load_source(variants_dir() / "softmax_topk" / f"{template}.py").launch
    found = {}
    for name, x in matrices(rows, cols, TORCH_DTYPES[dtype]).items():
        values = torch.full((rows, k), float("nan"), dtype=x.dtype)
        indices = torch.full((rows, k), -1)
        launch(x, values, indices, **arguments)
        wanted = torch.sort(x.double() + 0.0, dim=1, descending=True, stable=True).indices[:, :k]
        expected = torch.softmax(x.double(), 1).gather(1, wanted)
        # Below the normal range of fp16 an error is absolute.
        error = ((values.double() - expected).abs() / expected.clamp(min=2.0**-14)).nan_to_num(nan=float("inf"))
        found[name] = [int((indices != wanted).sum()), float(error.max())]
    return found


def main() -> None:
    repair_interpreter()
    for case in json.load(sys.stdin):
        sys.stdout.write(json.dumps(run(*case)) + "\n")


if __name__ == "__main__":
    main()
