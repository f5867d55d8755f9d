"""``@tuner.autotune`` on a real card: a script is run twice, and the second takes every choice from the database."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import tuner
from tests.programs import environment

SCRIPT = Path(__file__).parent / "autotuned_kernels.py"


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    own = {
        "TUNER_DB": str(folder / "tuner.db"),
        "TUNER_CACHE": str(folder / "cache"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        env={**environment(), **own},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_kernels_are_tuned_right_and_a_second_process_times_nothing(tmp_path: Path) -> None:
    first = run(tmp_path)
    assert first["in_place"] and first["accumulating"] and first["matmul"]
    assert not first["best"][2]["BROKEN"], "the wrong config was chosen"
    assert not first["best"][3]["SPOIL"], "the config that changes its input was chosen"
    assert first["recompiled"] == 0, "what was compiled ahead was not used"
    assert first["leftover"] < 2**20, "copies of tensors stayed alive"
    said, left, is_first = first["captured"]
    assert len(said) == 1 and "a CUDA graph is being captured" in said[0]
    assert left == [3.0] and is_first  # 0 -> 1 -> 3: the capture itself runs nothing

    database = str(tmp_path / "tuner.db")
    matmul = next(s for s in tuner.studies(db=database) if "matmul" in s.problem.operator)
    trials = {
        tuple(t.trial.config.values[name] for name in ("M", "N", "K", "BROKEN")): t.trial
        for t in tuner.show(str(matmul.id), db=database).trials
    }
    assert trials[128, 128, 64, True].outcome == "wrong" and "c_ptr" in trials[128, 128, 64, True].reason
    assert (
        trials[128, 128, 128, False].outcome == "out_of_resources"
        and "shared memory" in trials[128, 128, 128, False].reason
    )
    assert (
        trials[64, 64, 32, False].outcome in ("timed", "pruned")
        and trials[64, 64, 32, False].compile_report is not None
    )
    total = next(s for s in tuner.studies(db=database) if "checked_total" in s.problem.operator)
    reasons = {t.trial.reason for t in tuner.show(str(total.id), db=database).trials if t.trial.outcome == "wrong"}
    assert len(reasons) == 1 and "it changes x_ptr" in reasons.pop()
    winner = tuner.show(str(matmul.id), db=database).winner
    assert winner is not None and 1.0 < winner.record.median_us < 1000.0
    assert "not checked" not in winner.record.verdict
    sampled = [m.measurement for t in trials.values() for m in t.measurements]
    assert all(m.states and m.states[0].sm_clock_mhz > 0 for m in sampled)

    second = run(tmp_path, "again")
    assert second["in_place"] and second["accumulating"] and second["matmul"]
    assert second["best"] == first["best"]
