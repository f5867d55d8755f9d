"""The errors of exp2 and log2 are measured: in the interpreter they are numpy's, far below what a GPU may do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tuner.numerics import EPS_EX2, EPS_LG2

ROOT = Path(__file__).parents[1]
SCRIPT = """
import warnings
warnings.simplefilter("ignore")
from tuner import exponential_error
print(*exponential_error.exponential_error("cpu", 2**16 + 1))
"""


def test_the_interpreters_exponential_and_logarithm_are_nearly_rounded_once():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    exp2, log2 = (float(word) for word in done.stdout.split())
    assert 2.0**-26 < exp2 < EPS_EX2 and 2.0**-27 < log2 < EPS_LG2
