"""The template in Gluon, which no interpreter runs: right on a GPU, and its bugs are rejected there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.gluon_bugs import GLUON

SCRIPT = Path(__file__).parent / "gluon_on_gpu.py"
ROOT = Path(__file__).parents[2]


def test_it_is_right_and_every_bug_in_it_is_rejected(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    if not found:
        pytest.skip("the template is for sm_90")
    honest = {name: reason for name, (passed, reason) in found.items() if name.startswith("honest")}
    assert len(honest) == 4
    assert not {name: reason for name, reason in honest.items() if not found[name][0]}
    assert found.keys() - honest.keys() == {mutant.name for mutant in GLUON}
    assert not [mutant.name for mutant in GLUON if found[mutant.name][0]], "wrong, and not rejected"
