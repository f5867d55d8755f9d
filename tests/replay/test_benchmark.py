"""The comparison of samplers, on a small recording."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.checkout import checkout
from tests.programs import environment


def test_the_default_sampler_is_ahead_of_every_baseline_on_a_small_space(recorded, tmp_path):
    command = [sys.executable, "-m", "benchmarks.samplers", str(recorded.parent), "--seeds", "8", "--budget", "25"]
    done = subprocess.run(
        [*command, "--chosen-on", "other", "--out", str(tmp_path / "table.md")],
        capture_output=True, text=True, env=environment(checkout()), cwd=tmp_path, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "table.md").read_text()
    assert "| toy | 93 | 4 | no |" in text
    table = text.split("## After 25")[1].split("## Overhead")[0]
    medians = {name: float(median) for name, median in re.findall(r"^\| ([\w ]+) \| ([\d.]+) /", table, re.MULTILINE)}
    assert set(medians) == {"auto", "tpe", "qmc", "random", "annealing", "genetic", "local search"}
    assert medians["auto"] == 100.0 >= max(medians.values())
    assert medians["auto"] > medians["random"]


def test_unknown_samplers_and_an_empty_folder_are_refused(tmp_path):
    for words, message in (([str(tmp_path)], "no recording"), ([str(tmp_path), "--only", "x"], "no recording")):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.samplers", *words],
            capture_output=True, text=True, env=environment(checkout()), cwd=tmp_path, timeout=60,
        )  # fmt: skip
        assert done.returncode == 1 and message in done.stderr
