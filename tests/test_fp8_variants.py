"""attention_fwd's templates in fp8: right in the interpreter, compiled for sm_90, and made of the products they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton runs on Linux only")

HEADS = {"batch": 2, "heads": 2, "kv_heads": 1, "q_len": 40, "kv_len": 70}
PADDED, WHOLE = {**HEADS, "head_dim": 40, "v_head_dim": 48}, {**HEADS, "head_dim": 32}
POINTER = "template=pointer,BLOCK_M=32,BLOCK_N=32,num_warps=2,num_stages=1"
DESCRIPTOR = "template=descriptor,BLOCK_M=64,BLOCK_N=32,num_warps=4,KV_STAGES=2"
LARGE = {"batch": 4, "heads": 32, "kv_heads": 8, "q_len": 4096, "head_dim": 64}
CASES = [
    (f"{POINTER},USE_EXP2=false", PADDED, {"causal": True, "sinks": True}),
    (f"{DESCRIPTOR},OVERLAP_QK=true,DOT_PRECISION=bf16", WHOLE, {}),
]
CHECKS = """
import json, sys, tempfile
from functools import partial
from pathlib import Path
from tuner.check_plan import CheckPlan, PlannedCheck
from tuner.checking import check
from tuner.interpreter import repair_interpreter
from tuner.loading import load_source
from tuner.operators import get
from tuner.rendering import render
from tuner.space import load_space
from tuner.targets import target

repair_interpreter()
operator = get("attention_fwd")
for text, shape, options in json.loads(sys.argv[1]):
    problem = operator.problem(shape, "fp8", options)
    space = load_space("attention_fwd").bind(problem, target("h200"))
    config = space.parse(text)
    path = Path(tempfile.mkdtemp()) / "variant.py"
    path.write_text(render(space.template(config), dict(config.switches), "3.9.0").source)
    launch = partial(load_source(path).launch, **space.launch_arguments(config))
    families = [f for f in operator.families(problem) if f in ("randn", "sinking", "nonfinite")]
    plan = CheckPlan(tuple(PlannedCheck(problem, family, space.precision(config)) for family in families))
    report = check(launch, operator, plan, "cpu", 0)
    print(json.dumps([report.passed, report.reason, len(families), report.worst_ratio]))
"""


def answers(script, *given, **environment):
    """The lines that ``script`` prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *map(json.dumps, given)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_both_ways_of_the_second_product_give_right_results():
    found = answers(CHECKS, CASES, TRITON_INTERPRET="1")
    assert [(passed, reason) for passed, reason, *_ in found] == [(True, "")] * len(CASES)
    assert [families for _, _, families, _ in found] == [3, 2]
    assert all(0.02 < ratio < 1.0 for *_, ratio in found), "the bound is of the order of the errors"


PRODUCTS = """
import json, re, sys, tempfile
from pathlib import Path
from tuner.compiling import _warm_up_only, activate_nothing_driver, launch_tensors
from tuner.loading import load_source
from tuner.operators import get
from tuner.rendering import render
from tuner.space import load_space
from tuner.targets import target

device = target("h200")
activate_nothing_driver(device)
found = {}
for text in json.loads(sys.argv[1]):
    problem = get("attention_fwd").problem(json.loads(sys.argv[2]), "fp8")
    space = load_space("attention_fwd").bind(problem, device)
    config = space.parse(text)
    path = Path(tempfile.mkdtemp()) / "variant.py"
    path.write_text(render(space.template(config), dict(config.switches), "3.9.0").source)
    tensors = launch_tensors(problem)
    with _warm_up_only(tensors) as kernels:
        module = load_source(path)
        module.launch(**tensors, **get("attention_fwd").scalars(problem), **space.launch_arguments(config))
    ptx = kernels[0].compiled.asm["ptx"]
    kinds = ("e4m3", "bf16")
    found[text] = {kind: len(re.findall(f"wgmma.mma_async[^;]*{kind}", ptx)) for kind in kinds}
    found[text]["local"] = ptx.count("st.local")
    found[text]["shared"] = kernels[0].compiled.metadata.shared <= device.shared_bytes_per_block
print(json.dumps(found))
"""


def test_both_products_are_of_fp8_in_tensor_cores_and_nothing_is_in_local_memory(tmp_path):
    text = "template=descriptor,BLOCK_M=64,BLOCK_N=64,num_warps=4"
    (found,) = answers(PRODUCTS, [text], LARGE, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    # Per loop of tiles: 2 of 32 elements of head_dim, and 2 of the 64 keys.
    assert found[text] == {"e4m3": 8, "bf16": 0, "local": 0, "shared": True}
