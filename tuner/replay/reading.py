"""Reading recorded search spaces, whatever program wrote them."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.replay.kernel_tuner_cache import is_cache, read_cache
from tuner.replay.recording import Recording
from tuner.replay.t4_results import is_t4, read_t4
from tuner.replay.table import read_table

MOST_BYTES = 1 << 30
"""A file that unpacks to more than this is no recording."""

FORMATS = "a table (CSV), T4 results, or a Kernel Tuner cache file; any of them gzip'd"


def read_recording(path: Path | str) -> Recording:
    """The recording in a file. Raises ``UsageError`` with the file, and the line where there is one."""
    path = Path(path)
    name = path.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".json")
    text = _text(path)
    if not text.lstrip().startswith("{"):
        return read_table(text, name, path)
    document = _document(text, path)
    if is_t4(document):
        return read_t4(document, name, path)
    if is_cache(document):
        return read_cache(document, name, path)
    raise UsageError(f"{path}: this is no recording of a search space; it must be {FORMATS}")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file; give a recording of a search space ({FORMATS})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: the gzip'd file is cut off or damaged ({error}); fetch it again") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path}: unpacks to more than {MOST_BYTES >> 20} MiB; that is no recording of a search space")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not text (byte {error.start}); a recording is {FORMATS}") from None


def _document(text: str, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        # Kernel Tuner appends to its cache and closes the braces when it ends: an interrupted run's file lacks them.
        try:
            document = json.loads(text.rstrip().rstrip(",") + "}}")
        except json.JSONDecodeError:
            raise UsageError(f"{path}:{error.lineno}: is no JSON: {error.msg}; the file may be cut off") from None
    except RecursionError:
        raise UsageError(f"{path}: is nested too deeply for a recording") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path}: this is no recording of a search space; it must be {FORMATS}")
    return document
