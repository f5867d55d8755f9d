"""Where the database is when nobody says. Loads nothing heavy, so that ``--help`` may name it."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

ENVIRONMENT_VARIABLE = "TUNER_DB"


def default_path() -> Path:
    """``tuner/tuner.db`` in the user's data folder."""
    return Path(platformdirs.user_data_dir("tuner", appauthor=False)) / "tuner.db"


def default_url() -> str:
    """The environment variable ``TUNER_DB`` where set, else one SQLite file in the user's data folder."""
    return os.environ.get(ENVIRONMENT_VARIABLE, "").strip() or f"sqlite:///{default_path()}"
