"""Made-up values for the tests of the store, and a way to run a script of this folder in another process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import tuner
from tuner.config import Config
from tuner.device import Device, Stack
from tuner.problem import Problem
from tuner.store.records import StudySpec
from tuner.trial import (
    CheckReport,
    CompileReport,
    DeviceState,
    FamilyReport,
    KernelResources,
    Measurement,
    Outcome,
    TrialRecord,
)
from tuner.variant import Variant

H200 = Device(
    "NVIDIA H200", "cuda", 90, 32, 132, 150_000_000_000, 62_914_560, 232_448, 233_472, 65_536, 65_536, 1024, 2048
)
H100 = replace(H200, name="NVIDIA H100 80GB HBM3", memory_bytes=85_000_000_000)
STACK = Stack("measured", "3.6.0", "2.11.0", "ptxas 13.0", "580.159", "13.0", (("TRITON_F32_DEFAULT", "ieee"),))
NEWER_STACK = replace(STACK, triton="3.9.0")
ESTIMATED_STACK = Stack("estimated", "3.6.0", "2.11.0", "ptxas 13.0")
PROBLEM = Problem("softmax", (("rows", 4096), ("cols", 1024)), "bf16", (("row_stride", None),))
OTHER_PROBLEM = Problem("attention_fwd", (("batch", 4), ("heads", 32)), "fp16", (("causal", True), ("scale", 0.125)))
VARIANT = Variant("softmax", "online", "t" * 64, (("USE_EXP2", True),), "def launch(x, out): ...\n", "tl.exp2")
OTHER_VARIANT = replace(VARIANT, source="def launch(x, out): pass\n")
CHECK = CheckReport((FamilyReport("normal", "softmax rows=3 cols=70", True, 0.25, 1e-4, 4e-4, "out", (1, 2)),), 7, 0.5)


def spec(**changes: object) -> StudySpec:
    values: dict[str, object] = {
        "problem": PROBLEM,
        "device": H200,
        "stack": STACK,
        "space_name": "softmax",
        "space_digest": "aaaaaabbbbbbcccc",
        "space_text": "operator: softmax\n",
        "sampler": "tpe",
        "seed": 2**40,
        "protocol": "timer-1",
        "space_size": 10_000_000_000,
        "max_trials": 200,
        "max_seconds": 60.0,
    }
    return StudySpec(**{**values, **changes})  # type: ignore[arg-type]


def config(block: int) -> Config:
    return Config(
        "online", (("USE_EXP2", True),), (("BLOCK_COLS", block), ("num_warps", 4)), ("BLOCK_COLS", "num_warps")
    )


def compiled(binary: str = "b" * 64) -> CompileReport:
    return CompileReport(
        binary, (KernelResources("softmax_online", 64, 0, 4096, 128),), 1.5, (("ex2", 12),), (132, 1, 1)
    )


def measurement(first_us: float = 10.0, stage: str = "screen") -> Measurement:
    return Measurement(
        stage,
        "timer-1",
        (first_us, first_us + 0.1, first_us + 1 / 3),
        first_us + 0.1,
        first_us,
        first_us + 1 / 3,
        rounds=(0, 0, 1),
        process=(11, 11, 12),
        states=(DeviceState(1980, 3201, 45, 512.5, ("power_cap",)),),
        notes=("L2 cleared",),
    )


def timed(block: int, value_us: float = 10.1, *, binary: str | None = None, variant: Variant = VARIANT) -> TrialRecord:
    return TrialRecord(
        config(block),
        variant.hash,
        Outcome.TIMED,
        value_us=value_us,
        compile_report=compiled(binary or hashlib.sha256(str(block).encode()).hexdigest()),
        check_report=CHECK,
        measurements=(measurement(value_us),),
        seed=3,
        seconds={"compile": 1.5, "check": 0.5},
    )


def failed(block: int, outcome: Outcome, reason: str) -> TrialRecord:
    return TrialRecord(config(block), VARIANT.hash, outcome, reason)


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def start_script(name: str, *arguments: object) -> subprocess.Popen[str]:
    """Runs a script of this folder with this interpreter and this ``tuner``."""
    places = [str(Path(tuner.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-B", str(Path(__file__).with_name(name)), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
    )


def finish_script(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out
