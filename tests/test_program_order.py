"""The order of programs in the interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain

from tests.programs import environment
from tuner.program_order import last_program_first

SCRIPT = """
import json
import torch
import triton
import triton.language as tl
from tuner.check_plan import CheckPlan, PlannedCheck
from tuner.checking import check
from tuner.operators import get
from tuner.precision import PrecisionProfile
from tuner.program_order import last_program_first

@triton.jit
def number_kernel(count_ptr, out_ptr, width):
    count = tl.load(count_ptr)
    tl.store(out_ptr + tl.program_id(1) * width + tl.program_id(0), count)
    tl.store(count_ptr, count + 1)

def numbers():
    count, out = torch.zeros(1, dtype=torch.int32), torch.zeros(2, 3, dtype=torch.int32)
    number_kernel[(3, 2)](count, out, 3)
    return out.tolist()

found = [numbers()]
with last_program_first():
    found.append(numbers())
found.append(numbers())

@triton.jit
def total_kernel(x_ptr, total_ptr, cols, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=float("-inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    tl.store(total_ptr + row, m + tl.log(tl.sum(tl.exp(x - m), axis=0)))

@triton.jit
def write_kernel(x_ptr, total_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    total_kernel(x_ptr, total_ptr, cols, BLOCK)
    here = tl.load(total_ptr + row)
    # Right where the program before this one is done.
    before = tl.load(total_ptr + tl.maximum(row - 1, 0))
    tl.store(out_ptr + row, tl.where(before < 1.0e20, here, 0.0))

def launch(x, out):
    rows, cols = x.shape
    write_kernel[(rows,)](x, torch.empty(rows), out, cols, BLOCK=triton.next_power_of_2(cols))

operator = get("logsumexp")
problem = operator.problem({"rows": 5, "cols": 40}, "fp32")
planned = PlannedCheck(problem, "randn", PrecisionProfile("fp32", "fp32"), repeat=True)
report = check(launch, operator, CheckPlan((planned,)), "cpu", 0)
print(json.dumps([*found, report.passed, report.reason]))
"""


def test_programs_run_from_the_last_to_the_first_and_a_kernel_that_needs_their_order_is_refused():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env=environment(TRITON_INTERPRET="1"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    in_order, backwards, again, passed, reason = json.loads(done.stdout)
    assert in_order == again and sorted(chain(*in_order)) == [0, 1, 2, 3, 4, 5]
    assert backwards == [[5 - number for number in row] for row in in_order]
    assert not passed and "with the last program first, gave other bits at 4 of 5 elements" in reason


def test_where_nothing_is_interpreted_nothing_changes(monkeypatch):
    monkeypatch.delitem(sys.modules, "triton.runtime.interpreter", raising=False)
    with last_program_first():
        pass
    assert "triton.runtime.interpreter" not in sys.modules
