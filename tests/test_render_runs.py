"""Rendered sources in the real Triton: interpreted, and compiled for sm_90, by every version that there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.checkout import other_tritons
from tests.templates import SOFTMAX
from tuner.rendering import render
from tuner.template import read_template

INTERPRET = """
import importlib.util, json, sys
import torch, triton
report = {"version": triton.__version__}
x = torch.linspace(-8, 8, 5 * 37).reshape(5, 37)
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("variant", path)
    variant = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(variant)
    out = torch.full_like(x, float("nan"))
    variant.launch(x, out, BLOCK=64, num_warps=1)
    report[path] = (out - torch.softmax(x.double(), 1)).abs().max().item()
print(json.dumps(report))
"""

COMPILE = """
import importlib.util, inspect, json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
report = {"version": triton.__version__}
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("variant", path)
    variant = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(variant)
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "cols": "i32"}
    if "constexprs" in inspect.signature(ASTSource.__init__).parameters:
        source = ASTSource(variant.softmax_kernel, {**signature, "BLOCK": "constexpr"}, constexprs={"BLOCK": 64})
    else:
        source = ASTSource(variant.softmax_kernel, signature, constants={"BLOCK": 64})
    report[path] = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1}).asm["ptx"]
print(json.dumps(report))
"""


def run(script: str, folder: Path, triton: Path | None, paths: list[Path], **environment: str) -> dict[str, object]:
    path = os.pathsep.join(p for p in (str(triton or ""), os.environ.get("PYTHONPATH", "")) if p)
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", script, *map(str, paths)],
        env={**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(folder / "cache"), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(report, dict)
    expected = triton.name if triton else ""
    assert str(report["version"]).startswith(expected if expected[:1].isdigit() else "")
    return report


def write_variants(folder: Path) -> list[Path]:
    """Every variant of the small template, for a known and an unknown version."""
    template = read_template("softmax", "small", Path("small.py"), SOFTMAX)
    written = []
    for number, (exp2, divide, version) in enumerate(product([True, False], [True, False], [None, "3.9.0"])):
        path = folder / f"variant_{number}.py"
        path.write_text(render(template, {"USE_EXP2": exp2, "DIVIDE": divide}, version).source)
        written.append(path)
    return written


@pytest.mark.parametrize("triton", [None, *other_tritons()], ids=lambda p: p.name if p else "installed")
def test_every_variant_is_right_in_the_interpreter(tmp_path, triton):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    paths = write_variants(tmp_path)
    report = run(INTERPRET, tmp_path, triton, paths, TRITON_INTERPRET="1")
    assert {path: report[str(path)] < 1e-6 for path in paths} == dict.fromkeys(paths, True)


@pytest.mark.parametrize("triton", [None, *other_tritons()], ids=lambda p: p.name if p else "installed")
def test_every_variant_compiles_for_a_gpu(tmp_path, triton):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    paths = write_variants(tmp_path)
    report = run(COMPILE, tmp_path, triton, paths, TRITON_INTERPRET="0")
    assert {path: "ex2.approx" in report[str(path)] for path in paths} == dict.fromkeys(paths, True)
