"""Where the repository is, for tests that read its files; they also run from a copy outside it, against the wheel."""

from __future__ import annotations

import os
from pathlib import Path


def checkout() -> Path:
    """The root of the repository: ``TUNER_CHECKOUT``, or the folder above this one."""
    return Path(os.environ.get("TUNER_CHECKOUT", Path(__file__).resolve().parents[1]))


def other_tritons() -> list[Path]:
    """Folders that hold another Triton each, put first on ``PYTHONPATH`` (``TUNER_TEST_TRITON_DIRS``, by colons)."""
    return [Path(text) for text in os.environ.get("TUNER_TEST_TRITON_DIRS", "").split(":") if text]
