"""The check accepts kernels that are right and rejects each of the classic ways to get online softmax wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.mutants import HONEST, keys

SCRIPT = Path(__file__).parent / "kernels" / "mutants.py"
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def results() -> dict[str, tuple[bool, str, str, float]]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {key: tuple(value) for key, value in json.loads(done.stdout).items()}


@pytest.mark.parametrize(("kernel", "dtype"), sorted({(kernel, dtype) for kernel, dtype, _ in keys()}))
def test_an_honest_kernel_passes_every_family(results, kernel, dtype):
    passed, _, reason, ratio = results[f"{kernel}/{dtype}/{HONEST}"]
    assert passed, reason
    assert 0.0 < ratio <= 1.0


@pytest.mark.parametrize(("kernel", "dtype", "mutant"), [key for key in keys() if key[2] != HONEST])
def test_a_kernel_with_a_planted_bug_is_rejected(results, kernel, dtype, mutant):
    passed, _, reason, _ = results[f"{kernel}/{dtype}/{mutant}"]
    assert not passed
    assert reason


def test_bugs_that_random_data_hide_fall_on_the_families_made_for_them(results):
    # Maxima that fall by more than 88 nats a tile overflow alpha; logits of -4e6 lie below every sentinel.
    fell_on = {key: family for key, (_, family, _, _) in results.items()}
    assert fell_on["attention/bf16/block_max_not_carried"] == "falling_far"
    assert fell_on["attention/bf16/m_starts_at_zero"] == "needle"  # a third of its rows lie far below 0
    assert fell_on["attention/bf16/masked_with_finite_sentinel"] == "very_negative"
    assert fell_on["softmax/bf16/no_guard_on_empty_tile"] == "masked"


def test_the_reason_names_what_a_person_should_look_for(results):
    assert "written" in results["softmax/bf16/writes_past_the_row"][2]
    assert "zero" in results["softmax/bf16/zeros"][2]
    assert "column 5 of 32" in results["attention/bf16/one_column_wrong_by_3_percent"][2]
    assert "log2(e)" in results["attention/bf16/lse_in_base_2"][2]
