"""The part of the Python API that looks after a database. Import it from ``tuner``.

Every function takes ``db``: an SQLAlchemy URL or a path to an SQLite file (None: ``TUNER_DB``, else one file in the
user's data folder), and raises ``StoreError`` where the database cannot be used.
"""

from __future__ import annotations

from tuner.store.location import default_url
from tuner.store.soundness import check_soundness
from tuner.store.store import BUSY_TIMEOUT_S
from tuner.store.upkeep_records import Soundness


def check_database(*, db: str | None = None) -> Soundness:
    """Whether the database is whole, and every row in it is what it says. Nothing is changed.

    Looks at the file's integrity (SQLite), the schema against the models, references, stored sources, configs,
    problems, devices and samples against their hashes, and whether every winner was checked, right and measured.
    """
    return check_soundness(db or default_url(), BUSY_TIMEOUT_S)
