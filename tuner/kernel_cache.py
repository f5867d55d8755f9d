"""Triton's cache of compiled kernels with a checksum beside each file, so that a damaged file is compiled again.

Triton takes what it finds: a bit that flipped in machine code would be measured, and one in the metadata would become
the config's compile error for good. Triton itself loads this class, where ``TRITON_CACHE_MANAGER`` names it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from triton.runtime.cache import FileCacheManager

_SUFFIX = ".sha256"


class CheckedCache(FileCacheManager):  # type: ignore[misc]
    """One folder of the cache. A file that is not as it was written counts as not there."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        super().__init__(key, override=override, dump=dump)
        self._checked = not (override or dump)  # those folders are the user's own

    def put(self, data: object, filename: str, binary: bool = True) -> str:
        """Write the file, then its checksum; returns its path."""
        content = data if isinstance(data, bytes) else str(data).encode()
        path: str = super().put(content, filename)
        if self._checked:
            super().put(hashlib.sha256(content).hexdigest(), f"{filename}{_SUFFIX}")
        return path

    def get_file(self, filename: str) -> str | None:
        """The file's path; None where it is not there or not whole."""
        path: str | None = super().get_file(filename)
        return path if path is not None and self._is_whole(path) else None

    def get_group(self, filename: str) -> dict[str, str] | None:
        """The paths of a kernel's files by name; None where one of them is not there or not whole."""
        if not self._is_whole(self._make_path(f"__grp__{filename}")):
            return None
        group: dict[str, str] | None = super().get_group(filename)
        return group if group is not None and all(map(self._is_whole, group.values())) else None

    def _is_whole(self, path: str) -> bool:
        if not self._checked:
            return True
        try:
            said = Path(f"{path}{_SUFFIX}").read_bytes()
            return hashlib.sha256(Path(path).read_bytes()).hexdigest().encode() == said
        except OSError:
            return False
