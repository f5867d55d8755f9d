"""Tests that need a GPU. They are skipped where torch sees none."""

from __future__ import annotations

import os
from collections.abc import Iterator
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


@pytest.fixture(autouse=True, scope="session")
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of several test processes on one card each has a cache, and with it a lock of the GPU, of its own.

    One study would wait for the other's end otherwise. Tests that judge times are marked `alone`.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ and gpu_is_here():
            patch.setenv("TUNER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "tuner.db")


@pytest.fixture
def spaces() -> Path:
    return SPACES
