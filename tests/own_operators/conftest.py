"""Operators of files: what one test loads, no other test knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

DECLARATION = """\
import torch
import triton
import triton.language as tl

import tuner


@triton.jit
def scale_kernel(x_ptr, out_ptr, cols, factor, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * cols + col, (x * factor).to(out_ptr.dtype.element_ty), mask=col < cols)


def launch(x, out, *, factor, BLOCK, num_warps):
    scale_kernel[(x.shape[0],)](x, out, x.shape[1], factor, BLOCK=BLOCK, num_warps=num_warps)


def reference(x, factor):
    return x * factor


def work(sizes):
    return tuner.Work(flops=sizes["rows"] * sizes["cols"])


scaled = tuner.OwnOperator(
    name="scaled",
    summary="x times a number",
    sizes={"rows": 64, "cols": 128},
    inputs={"x": ("rows", "cols")},
    outputs={"out": ("rows", "cols")},
    numbers={"factor": 2.0},
    reduced="cols",
    independent="rows",
    reference=reference,
    work=work,
    space="scaled.yaml",
)
"""

SPACE = """\
operator: scaled
templates:
  row:
    source: scaled.py
    parameters: {num_warps: [1, 2, 4]}
    derived: {BLOCK: next_power_of_2(cols)}
    tiles: {cols: BLOCK}
    max_tiles: {cols: 1}
    plain: {num_warps: 1}
"""


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.operators._REGISTERED", {})
    monkeypatch.setattr("tuner.own_operators.files._LOADED", {})


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes the operator ``scaled`` with each of the given texts replaced; returns how it is named."""

    def written(*changes: tuple[str, str], folder: Path = tmp_path) -> str:
        text = DECLARATION
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / "scaled.py").write_text(text, encoding="utf-8")
        (folder / "scaled.yaml").write_text(SPACE, encoding="utf-8")
        return f"{folder / 'scaled.py'}:scaled"

    return written
