"""What a worker's failure is called, with messages as Triton, ptxas and the CUDA runtime write them."""

from __future__ import annotations

import pytest

from tuner.outcomes import outcome_of
from tuner.trial import Outcome
from tuner.worker.messages import Died, Raised

SOURCE_THEN_REASON = """at 12:8:
    y = p / tl.sum(p, axis=0)
    y = y + tl.zeros([64], tl.float32)
        ^
ValueError('Cannot make_shape_compatible: incompatible dimensions 128 and 64')
"""
PTXAS_LOG = """ptxas info    : (C7508) Potential Performance Loss
ptxas /tmp/tmpabc.ptx, line 44; error   : ignored
ptxas fatal   : Ptx assembly aborted due to errors
"""
LLVM_LOG = "variant.py:12:8: error: 'tt.dot' op expected shapes\nmodule {\n  error: not this one\n"


@pytest.mark.parametrize(
    ("reply", "doing", "outcome", "reason"),
    [
        (Died(True, 120.0), "compile", Outcome.TIMED_OUT, "did not compile within 120 s"),
        (Died(True, 0.5), "run", Outcome.TIMED_OUT, "did not run within 0.5 s"),
        (Died(False, 20.0), "run", Outcome.CRASHED, "the process that ran it crashed"),
        (
            Died(False, 20.0, LLVM_LOG),
            "compile",
            Outcome.COMPILE_ERROR,
            "the compiler crashed: 'tt.dot' op expected shapes",
        ),
        (
            Raised("CompilationError", SOURCE_THEN_REASON, True),
            "compile",
            Outcome.COMPILE_ERROR,
            "CompilationError: ValueError('Cannot make_shape_compatible: incompatible dimensions 128 and 64')",
        ),
        (
            Raised("PTXASError", "PTXAS error: Internal Triton PTX codegen error", True, PTXAS_LOG),
            "compile",
            Outcome.COMPILE_ERROR,
            "PTXASError: Ptx assembly aborted due to errors",
        ),
        (
            Raised("OutOfResources", "out of resource: shared memory, Required: 262144, Hardware limit: 232448.", True),
            "run",
            Outcome.OUT_OF_RESOURCES,
            "out of resource: shared memory, Required: 262144, Hardware limit: 232448.",
        ),
        (
            Raised("RuntimeError", "Triton Error [CUDA]: too many resources requested for launch", True),
            "run",
            Outcome.OUT_OF_RESOURCES,
            "Triton Error [CUDA]: too many resources requested for launch",
        ),
        (
            Raised("GpuError", "CUDA error: an illegal memory access was encountered", False),
            "run",
            Outcome.CRASHED,
            "GpuError: CUDA error: an illegal memory access was encountered",
        ),
        (Raised("KeyError", "\n  ^^^\n", True), "run", Outcome.CRASHED, "KeyError: no message"),
    ],
)
def test_a_failure_has_an_outcome_and_a_reason_in_one_line(reply, doing, outcome, reason):
    assert outcome_of(reply, doing) == (outcome, reason)


def test_a_reason_is_never_longer_than_300_characters():
    _, reason = outcome_of(Raised("RuntimeError", "x" * 5000, True), "run")
    assert len(reason) == 300
    assert reason.endswith("xxx...")
