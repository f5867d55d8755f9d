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


def test_the_repair_leaves_nothing_wrong_and_can_be_repeated():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    interpreting, before, after, again, dot_is_wrong = json.loads(done.stdout)
    assert interpreting
    assert set(before) <= {"dot", "cast", "arithmetic", "compare", "sum", "integer"}
    assert after == again == [] and not dot_is_wrong


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
