"""Where the consumers' own packages are, for tests of an export with the loader that reads it.

``TUNER_TEST_CONSUMERS`` lists folders made with ``pip install --no-deps --target FOLDER fla-core==0.6.0 einops
packaging`` and the like; the Makefile makes them. Without them these tests are skipped, and the consumer's rules are
tested as they are written down in each test.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest


def folders(distribution: str) -> list[Path]:
    """The folders that hold ``distribution``."""
    name = re.sub(r"[-_.]+", "_", distribution)
    listed = [Path(part) for part in os.environ.get("TUNER_TEST_CONSUMERS", "").split(os.pathsep) if part]
    return sorted(folder for folder in listed if list(folder.glob(f"{name}-*.dist-info")))


def consumers(distribution: str) -> list[object]:
    """One parameter for each folder, or one that skips and says how to get it."""
    found = folders(distribution)
    if found:
        return [pytest.param(folder, id=folder.name) for folder in found]
    why = f"pip install --no-deps --target FOLDER {distribution} einops packaging; set TUNER_TEST_CONSUMERS=FOLDER"
    return [pytest.param(None, marks=pytest.mark.skip(reason=why), id=distribution)]
