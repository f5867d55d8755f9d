"""Where files that can be made again live: rendered sources, Triton's cache, logs. Private to the user."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import platformdirs

from tuner.errors import MissingError
from tuner.private_folder import make_private
from tuner.variant import Variant


def cache_folder() -> Path:
    """The cache's folder: ``TUNER_CACHE`` where that is set, else the user's cache folder."""
    chosen = os.environ.get("TUNER_CACHE")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("tuner", appauthor=False))


class Workspace:
    """The cache folder, made private (0700) on first use.

    Raises ``MissingError`` where it cannot be written, is another user's, or may be written by others.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()
        try:
            for path in (self.folder, self.variants, self.triton, self.folder / "logs"):
                make_private(path)
        except OSError as error:
            raise MissingError(
                f"the cache folder {self.folder} cannot be used ({error.strerror}); "
                "set TUNER_CACHE to a writable folder"
            ) from None

    @property
    def variants(self) -> Path:
        """Rendered sources, one file each, named by content."""
        return self.folder / "variants"

    @property
    def triton(self) -> Path:
        """Triton's cache of compiled kernels."""
        return self.folder / "triton"

    @cached_property
    def logs(self) -> Path:
        """A new folder for what workers print: two runs at once, in one program too, do not share one."""
        return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.folder / "logs"))

    def source_path(self, variant: Variant) -> Path:
        """The file that holds ``variant``'s source, written if it is not there (or not whole)."""
        path = self.variants / f"{variant.template}_{variant.hash[:32]}.py"
        text = variant.source.encode()
        if not path.exists() or path.read_bytes() != text:
            # Another process may read it at any moment: write beside it and rename.
            self.variants.mkdir(parents=True, exist_ok=True, mode=0o700)  # the cache may be deleted at any time
            partial = path.with_suffix(f".{os.getpid()}.tmp")
            partial.write_bytes(text)
            partial.replace(path)
        return path

    @contextlib.contextmanager
    def gpu_lock(self, name: str, on_wait: object = None, *, shared: bool = False) -> Iterator[None]:
        """Hold the GPU ``name`` for timing: two studies at once on one card would disturb each other's times.

        ``on_wait`` is called once, without arguments, where another process holds it. ``shared``: beside others that
        share it, as programs on several cards of one name do.
        """
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        locks = self.folder / "locks"
        make_private(locks)
        with (locks / f"{''.join(c if c.isalnum() else '-' for c in name)}.lock").open("a") as handle:
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if callable(on_wait):
                    on_wait()
                fcntl.flock(handle, kind)
            yield
