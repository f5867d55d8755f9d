from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tuner.store.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuner.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(str(path)) as opened:
        yield opened
