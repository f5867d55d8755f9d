"""kill -9 in the middle of a study costs the trials in flight and nothing else."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

_TUNE = ["tune", "softmax", "--shape", "rows=1024,cols=8192", "--dtype", "bf16", "--trials", "60", "--gpu", "--json"]


def _trials(path: Path) -> int:
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            return int(connection.execute("select count(*) from tuner_trial").fetchone()[0])
    except sqlite3.Error:
        return 0


def test_a_killed_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    command = [sys.executable, "-m", "tuner", *_TUNE, "--db", str(path)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while _trials(path) < 15 and time.monotonic() < deadline:
        assert first.poll() is None, "the study ended before it could be killed"
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    before = _trials(path)
    assert before >= 15
    second = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert second.returncode == 0, second.stderr
    with sqlite3.connect(path) as connection:
        rows = connection.execute("select config_key, variant_id, count(*) from tuner_trial group by 1, 2").fetchall()
    assert {count for _, _, count in rows} == {1}
    assert len(rows) == 60
