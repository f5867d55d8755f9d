"""The check on a real GPU: streams, graphs, caches, large tensors, the device's own constants, and what it costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner.numerics import EPS_EX2, EPS_LG2
from tuner.own_kernel import read_own_kernel

SCRIPT = Path(__file__).parent / "check_on_gpu.py"
ROOT = Path(__file__).parents[2]
MOST_SECONDS = 0.05  # of one candidate's check on an H200, after the first


def run(what: str, folder: Path) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(SCRIPT), what, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_launches_under_every_condition_are_told_apart(tmp_path: Path) -> None:
    found = run("launches", tmp_path)
    assert found["honest"] == [True, ""]
    assert found["reads_on_the_host"] == [True, ""], "a launch that cannot be captured is judged without a graph"
    wrong = {name: reason for name, (passed, reason) in found.items() if not passed}
    assert set(wrong) == set(found) - {"honest", "reads_on_the_host"}
    # What falls first is a race: the poison may be written after its results, or it may read what is there too early.
    astray = wrong["on_a_stream_of_its_own"]
    assert any(words in astray for words in ("stream", "CUDA graph", "never written")), astray
    assert "left another device or stream current" in wrong["leaves_its_stream"]
    assert wrong["keeps_by_address"].startswith("huge at")
    assert wrong["leaves_its_stream_on_large_numbers"].startswith("huge at")
    assert "left another device or stream current" in wrong["leaves_its_stream_on_large_numbers"]
    assert wrong["wavers_at_full_size"].startswith("randn at softmax rows=2048")
    assert "NaN" in wrong["reads_scratch_first"] or "never written" in wrong["reads_scratch_first"]


def test_the_devices_exponential_and_logarithm_are_no_worse_than_the_bound_takes_them_for(tmp_path: Path) -> None:
    exp2, log2 = run("exponential", tmp_path)
    assert 0.0 < exp2 <= EPS_EX2
    assert 0.0 < log2 <= EPS_LG2


@pytest.mark.alone
def test_the_check_of_one_candidate_is_cheap_once_the_references_are_there(tmp_path: Path) -> None:
    name, reports = run("attention", tmp_path)
    assert [(passed, reason) for passed, reason, _ in reports if not passed] == []
    print(name, [round(1e3 * seconds, 1) for _, _, seconds in reports], "ms")
    if "H200" in name:
        warm = [seconds for at, (_, _, seconds) in enumerate(reports) if at % 3]
        assert min(warm) < MOST_SECONDS


def test_attention_is_right_with_values_of_their_own_dim_and_with_dropout(tmp_path: Path) -> None:
    reports = run("features", tmp_path)
    assert len(reports) >= 5
    assert [(reason, where) for passed, reason, where in reports if not passed] == []


def test_templates_are_right_beyond_two_to_the_31_elements(tmp_path: Path) -> None:
    reports = run("large", tmp_path)
    assert reports
    assert [(reason, where) for passed, reason, where in reports if not passed] == []
    assert {where for _, _, where in reports} == {"softmax rows=70000 cols=32768 row_stride=32768 bf16"}


@pytest.mark.parametrize("rows", [1000, 70_000])
def test_a_kernel_whose_offsets_wrap_is_caught_at_the_size_that_wraps_them(rows: int) -> None:
    kernel = ROOT / "tests/kernels/softmax_plain.py"  # its offsets are 32 bits wide
    assert read_own_kernel(kernel).required == ("BLOCK_COLS", "PROGRAMS")
    problem = tuner.make_problem("softmax", {"rows": rows, "cols": 32_768}, "bf16")
    try:
        report = tuner.check(problem, file=kernel, config="BLOCK_COLS=4096,PROGRAMS=512", gpu=True)
        passed = report.passed
    except tuner.TunerError as error:  # an address far outside every tensor
        assert "crashed" in str(error)
        passed = False
    assert passed == (rows == 1000)
