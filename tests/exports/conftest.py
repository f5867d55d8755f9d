"""One database of made-up winners for the session, and the package that is exported from it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tuner
from tests.exports.stored_winners import attention, smooth_us, softmax, store_winner

WARPS = {512: (1, 2, 4), 1024: (1, 2, 4, 8), 2048: (1, 2, 4, 8), 4096: (1, 2, 4, 8)}


@pytest.fixture(scope="session")
def winners(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Softmax at four widths and attention at three lengths, full and causal, on one H200. Read only."""
    path = tmp_path_factory.mktemp("winners") / "tuner.db"
    for cols, warps in WARPS.items():
        configs = [f"template=whole_row,USE_EXP2=true,RECOMPUTE_EXP=false,num_warps={w}" for w in warps]
        store_winner(path, softmax(64, cols), *configs, us=smooth_us)
    for causal in (False, True):
        for q_len in (64, 128, 256):
            tiles = [f"template=pointer,BLOCK_M={m},BLOCK_N=32,num_warps=4,num_stages=2" for m in (64, 128)]
            store_winner(path, attention(q_len, causal=causal), *tiles[: 1 if q_len == 64 else 2][::-1])
    return path


@pytest.fixture(scope="session")
def exported(winners: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package. Read only."""
    path = tmp_path_factory.mktemp("package") / "tuned_kernels"
    tuner.export("python", path, db=str(winners))
    return path


@pytest.fixture
def package(exported: Path, tmp_path: Path) -> Path:
    """A copy of the package that a test may change."""
    return shutil.copytree(exported, tmp_path / "tuned_kernels")
