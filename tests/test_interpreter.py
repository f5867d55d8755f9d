"""bf16 under Triton's interpreter: found wrong, repaired, and rounded as the hardware rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.checkout import other_tritons
from tuner.errors import MissingError

ROOT = Path(__file__).parents[1]
SCRIPT = """
import json
from tuner.interpreter import bf16_dot_is_wrong, is_interpreting, repair_bf16_dot, wrong_bf16_paths
before = wrong_bf16_paths()
repair_bf16_dot()
after = wrong_bf16_paths()
repair_bf16_dot()
print(json.dumps([is_interpreting(), before, after, wrong_bf16_paths(), bf16_dot_is_wrong()]))
"""


CHECKS = """
import importlib.util, json, pathlib, sys, tempfile
from functools import partial
from tuner.check_plan import CheckPlan, PlannedCheck
from tuner.checking import check
from tuner.interpreter import repair_bf16_dot
from tuner.operators import get
from tuner.precision import PrecisionProfile
repair_bf16_dot()
kernels = pathlib.Path(sys.argv[1])
operator = get("attention_fwd")
problem = operator.problem({"batch": 1, "heads": 1, "q_len": 20, "kv_len": 70, "head_dim": 16}, "bf16")
profile = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=3)
plan = CheckPlan(tuple(PlannedCheck(problem, f, profile) for f in ("randn", "needle", "nonfinite", "tiny")))
source = (kernels / "attention_plain.py").read_text()
found = {}
for name, old, new in (
    ("honest", "", ""),
    ("acc not rescaled", "acc = acc * alpha[:, None]", "acc = acc"),
    ("one key short", "cols[None, :] < kv_len", "cols[None, :] < kv_len - 1"),
):
    assert old in source
    path = pathlib.Path(tempfile.mkdtemp()) / "kernel.py"
    path.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    launch = partial(module.launch, **json.loads(sys.argv[2]))
    report = check(launch, operator, plan, "cpu", 0)
    found[name] = [report.passed, report.reason]
print(json.dumps(found))
"""

PLAIN_ARGUMENTS = {"IS_CAUSAL": False, "BLOCK_M": 16, "BLOCK_N": 32, "PROGRAMS": 2}


def interpreted(script, triton, *words):
    """What ``script`` prints as JSON in an interpreting process with this Triton (None: the environment's own)."""
    path = os.pathsep.join([*([str(triton)] if triton else []), str(ROOT)])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore", "-c", script, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


TRITONS = pytest.mark.parametrize("triton", [None, *other_tritons()], ids=lambda path: path.name if path else "own")


@TRITONS
def test_the_repair_leaves_nothing_wrong_and_can_be_repeated(triton):
    interpreting, before, after, again, dot_is_wrong = interpreted(SCRIPT, triton)
    assert interpreting
    assert set(before) <= {"dot", "cast", "arithmetic", "compare", "sum", "integer"}
    assert after == again == [] and not dot_is_wrong


@TRITONS
def test_bf16_is_checked_as_strictly_as_on_a_gpu_in_every_version(triton):
    found = interpreted(CHECKS, triton, str(ROOT / "tests/kernels"), json.dumps(PLAIN_ARGUMENTS))
    assert found["honest"] == [True, ""]
    assert [name for name, (passed, _) in found.items() if passed] == ["honest"]


def test_a_process_that_compiles_is_told_so():
    from tuner.interpreter import is_interpreting, wrong_bf16_paths

    assert not is_interpreting()
    with pytest.raises(MissingError, match="TRITON_INTERPRET=1"):
        wrong_bf16_paths()


def test_narrowing_rounds_every_kind_of_value_as_torch_does():
    from tuner.interpreter import narrow, widen

    generator = np.random.default_rng(0)
    values = generator.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, 3.4e38, 1e-40, 1.00390625, 1.01171875], np.float32)
    values = np.concatenate([values, special])
    got = widen(narrow(values))
    expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    nan = np.isnan(values)
    assert nan.any() and np.isnan(got[nan]).all()
    np.testing.assert_array_equal(got[~nan].view(np.uint32), expected[~nan].view(np.uint32))


FP8 = """
import json, torch, triton
import triton.language as tl
from tuner.interpreter import repair_interpreter
repair_interpreter()

@triton.jit
def kernel(x_ptr, narrow_ptr, wide_ptr, bf16_ptr, dot_ptr):
    offsets = tl.arange(0, 1024)
    narrow = tl.load(x_ptr + offsets).to(tl.float8e4nv)
    tl.store(narrow_ptr + offsets, narrow)
    tl.store(wide_ptr + offsets, narrow.to(tl.float32))
    tl.store(bf16_ptr + offsets, tl.load(x_ptr + offsets).to(tl.bfloat16).to(tl.float8e4nv).to(tl.bfloat16))
    square = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tile = tl.load(narrow_ptr + square)
    tl.store(dot_ptr + square, tl.dot(tile, tl.trans(tile), max_num_imprecise_acc=32))

x = torch.randn(1024, generator=torch.Generator().manual_seed(0)) * 30.0
x[:8] = torch.tensor([448.0, 464.0, 480.0, 1.0e9, -3.0e38, 0.0, -0.0, 2.0**-10])
x[100:400] = torch.arange(300) * 2.0**-10  # subnormal numbers, and ties between any two
x[-1] = float("nan")
narrow = torch.zeros(1024, dtype=torch.float8_e4m3fn)
wide, bf16, dot = torch.zeros(1024), torch.zeros(1024, dtype=torch.bfloat16), torch.zeros(32, 32)
kernel[(1,)](x, narrow, wide, bf16, dot)
clamped = x.clamp(-448.0, 448.0)
expected = clamped.to(torch.float8_e4m3fn)
tile = expected.double().reshape(32, 32)
products = tile @ tile.T
near = torch.isclose(dot.double(), products, rtol=1e-6, atol=1e-3, equal_nan=True)
twice = clamped.bfloat16().to(torch.float8_e4m3fn).bfloat16()
print(json.dumps({
    "narrow": torch.equal(narrow.view(torch.uint8)[:-1], expected.view(torch.uint8)[:-1]),
    "wide": torch.equal(wide[:-1], expected.float()[:-1]),
    "bf16": torch.equal(bf16[:-1], twice[:-1]),
    "nan": bool(narrow.float()[-1].isnan() & wide[-1].isnan() & bf16[-1].isnan()),
    "dot": bool(near.all()) and int(dot.isnan().sum()) == 63,
}))
"""


@TRITONS
def test_fp8_is_cast_as_torch_casts_it_and_saturates_and_keeps_a_nan(triton, tmp_path):
    path = tmp_path / "script.py"  # a kernel needs a file
    path.write_text(FP8)
    found = interpreted(f"import runpy; runpy.run_path({str(path)!r})", triton)
    assert all(found.values()), found


REMAPPING = """
import json
import torch, triton, triton.language as tl
from triton.runtime import interpreter
from tuner.interpreter import repair_interpreter

@triton.jit
def _twice(x):
    return x + x

@triton.jit
def kernel(x_ptr, FAIL: tl.constexpr):
    lanes = tl.arange(0, 16)
    x = _twice(_twice(tl.load(x_ptr + lanes))) + tl.zeros_like(lanes)  # a function of Triton's own
    if FAIL:
        x = x + tl.zeros([3], tl.float32)
    tl.store(x_ptr + lanes, _twice(x))

remaps = []
remap = interpreter._patch_lang
interpreter._patch_lang = lambda function: (remaps.append(1), remap(function))[1]
def launched(fail=False):
    del remaps[:]
    arange, exp = tl.arange, tl.math.exp
    x = torch.ones(16)
    try:
        kernel[(2,)](x, FAIL=fail)
    except Exception as error:
        assert fail, error
    return len(remaps), x.tolist(), tl.arange is arange and tl.math.exp is exp
before = launched()
repair_interpreter()
repair_interpreter()
puts_back = hasattr(interpreter, "_LangPatchScope")
print(json.dumps([puts_back, before, launched(), launched(True), launched()]))
"""


@TRITONS
def test_the_language_is_remapped_once_a_launch_and_put_back_also_where_a_launch_fails(triton, tmp_path):
    script = tmp_path / "remapping.py"  # the interpreter reads kernels from a file
    script.write_text(REMAPPING)
    puts_back, before, after, failed, again = interpreted(f"import runpy; runpy.run_path({str(script)!r})", triton)
    assert before[1] == after[1] == again[1] == [64.0] * 16
    assert before[0] > 2, "this Triton does it by itself, and needs no help"
    if puts_back:
        # Once for what the kernel names, once for what Triton's own functions do.
        assert (after[0], again[0]) == (2, 2) and before[2] and after[2] and failed[2] and again[2]
    else:  # it stays remapped for good, and nothing says when a launch is over
        assert after[0] == again[0] == before[0]
