"""attention_fwd in fp8 on a GPU that has it: right with the sums that its tensor cores make, and bugs are rejected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "fp8_on_gpu.py"
ROOT = Path(__file__).parents[2]


def test_every_template_is_right_in_fp8_and_every_bug_in_it_is_rejected(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    arch, found = json.loads(done.stdout.splitlines()[-1])
    if not found:
        pytest.skip("the device has no fp8")
    wrong = {name: reason for name, (passed, reason) in found.items() if name.startswith("honest") and not passed}
    assert not wrong
    bugs = {name: passed for name, (passed, _) in found.items() if not name.startswith("honest")}
    assert len(bugs) > 20 or arch != 90
    assert not [name for name, passed in bugs.items() if passed], "wrong, and not rejected"
