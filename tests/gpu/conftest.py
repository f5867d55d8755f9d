"""Tests that need a GPU. They are skipped where torch sees none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.present import gpu_is_here

SPACES = Path(__file__).parent / "spaces"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if gpu_is_here():
        return
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs a GPU that torch can see"))


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "tuner.db")


@pytest.fixture
def spaces() -> Path:
    return SPACES
