"""Where the database is when nobody says. Loads nothing heavy, so that ``--help`` may name it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import platformdirs

ENVIRONMENT_VARIABLE = "TUNER_DB"

_URL = re.compile(r"([A-Za-z0-9+._-]+:/{2,3}[^:/@]*)(:.*)?@(.*)", re.DOTALL)
_SECRET_OPTION = re.compile(r"([?&;](?:[a-z_]*(?:password|passwd|secret|token|key)|pwd)=)[^&#;]*", re.IGNORECASE)


def default_path() -> Path:
    """``tuner/tuner.db`` in the user's data folder."""
    return Path(platformdirs.user_data_dir("tuner", appauthor=False)) / "tuner.db"


def default_url() -> str:
    """The environment variable ``TUNER_DB`` where set, else one SQLite file in the user's data folder."""
    return os.environ.get(ENVIRONMENT_VARIABLE, "").strip() or f"sqlite:///{default_path()}"


def without_password(text: str) -> str:
    """A database URL as it may be shown: stars for its password, also in its options, or in what is no URL at all."""
    text = _SECRET_OPTION.sub(r"\1***", text)
    if "@" not in text:
        return text
    found = _URL.fullmatch(text)
    if found is None:
        return f"***@{text.rpartition('@')[2]}"
    start, password, rest = found.groups()
    return f"{start}{':***' if password else ''}@{rest}"
