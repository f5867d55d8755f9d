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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What takes ``db_url`` or ``store`` runs on both databases; what looks into the file, at ``path``, on SQLite."""
    if "db_url" in metafunc.fixturenames and "path" not in metafunc.fixturenames:
        metafunc.parametrize("db_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def db_url(request: pytest.FixtureRequest) -> str:
    """The URL of a database for one test."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{request.getfixturevalue('path')}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(db_url: str) -> Iterator[Store]:
    with Store.open(db_url) as opened:
        yield opened
