"""The benchmark of a large database, at a small size: it runs, and what it made up is found."""

from __future__ import annotations

import json

from tests.checkout import checkout
from tests.programs import environment, run


def test_the_benchmark_builds_a_database_and_times_its_reads(tmp_path):
    script, out = checkout() / "benchmarks/store_size.py", tmp_path / "out.json"
    words = ("--trials", "1200", "--folder", str(tmp_path), "--out", str(out))
    done = run(script, *words, env=environment(), cwd=tmp_path, limit_s=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert (found["trials"], found["winners"]) == (1200, 20)
    assert found["regressions_found"] == {"regression": 1, "same": 9}  # every tenth winner was made slower
    assert found["best"]["median_ms"] < 100  # of the order that it should be, on a machine that does other work too
