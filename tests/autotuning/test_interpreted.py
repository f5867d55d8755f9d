"""Real kernels in Triton's interpreter, and under torch.compile: nothing is timed, and everything is right."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.checkout import checkout
from tests.programs import environment

SCRIPT = """
import json, warnings
import torch, triton, triton.language as tl
import tuner

def configs(*blocks):
    return [triton.Config({"BLOCK": block}) for block in blocks]

@tuner.autotune(configs(32, 64), key=["n"], pre_hook=lambda named: said.append("hook"))
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def twice(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at) if EVEN else tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, 2 * x, mask=at < n)

def launch(x):
    twice[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x.numel())
    return x

said = []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for n in (96, 100):
        assert torch.equal(launch(torch.ones(n)), torch.full((n,), 2.0))
    graph = torch.compile(lambda x: launch(x * 3) + 1, backend="eager")
    assert torch.equal(graph(torch.ones(40)), torch.full((40,), 7.0))
ours = [str(w.message) for w in caught if "twice" in str(w.message)]
print(json.dumps([ours, twice.best_config.kwargs["BLOCK"], said, len(twice.cache)]))
"""


def test_a_kernel_under_the_interpreter_and_under_torch_compile_is_right_and_is_not_timed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    own = {"TRITON_INTERPRET": "1", "TUNER_CACHE": str(tmp_path / "cache"), "TUNER_DB": str(tmp_path / "tuner.db")}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(script)],
        capture_output=True, text=True, env={**environment(), **own}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    warnings, block, hooked, choices = json.loads(done.stdout)
    assert warnings == ["script.twice: kernels are interpreted, so nothing is timed; the first valid config is used"]
    assert (block, hooked, choices) == (32, [], 3)
    assert not (tmp_path / "tuner.db").exists()


def test_the_example_runs_without_a_gpu(tmp_path):
    own = {"TRITON_INTERPRET": "1", "TUNER_CACHE": str(tmp_path / "cache"), "TUNER_DB": str(tmp_path / "tuner.db")}
    done = subprocess.run(
        [sys.executable, str(checkout() / "examples/autotuned_add.py")],
        capture_output=True, text=True, env={**environment(), **own}, timeout=120,
    )  # fmt: skip
    assert done.stdout.startswith("y = [1.0], with BLOCK: 256, num_warps: 2"), done.stderr
