"""A stand-in GPU for the decorator, and a database and cache of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.autotuning.standin import FakeCard


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path) -> FakeCard:
    """The GPU that the decorator finds."""
    monkeypatch.setenv("TUNER_CACHE", str(cache))
    monkeypatch.setenv("TUNER_DB", f"sqlite:///{tmp_path / 'tuner.db'}")
    found = FakeCard()
    monkeypatch.setattr("tuner.autotuning.card.find_card", lambda: found)
    return found
