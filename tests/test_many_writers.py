"""The benchmark of many writers, small: it must go on running, and finds what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checkout import checkout
from tests.programs import environment, run


@pytest.mark.parametrize("share", [False, True])
def test_every_trial_is_written_once_and_the_figures_fit(share: bool, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ["--processes", "2", "--trials", "4", "--folder", tmp_path, "--out", out, *(["--share"] if share else [])]
    done = run("-m", "benchmarks.many_writers", *words, env=environment(checkout()), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert (found["processes"], found["shared"], found["trials"], found["sound"]) == (2, share, 8, True)
    assert found["rows_per_s"] == pytest.approx(3 * found["trials_per_s"], rel=0.02)
    assert 0.0 < found["claim_ms"]["median"] <= found["claim_ms"]["p99"] <= found["claim_ms"]["most"]
