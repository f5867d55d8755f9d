"""Which templates a git revision holds, by the hash that stored variants name them by."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from tuner.errors import UsageError
from tuner.shipped import variants_dir


def template_hashes(revision: str, flag: str, folder: Path | None = None) -> frozenset[str]:
    """The hashes of the templates in ``folder`` (None: the shipped ones) as they were at ``revision``.

    Raises ``UsageError`` where the folder is in no git repository, or has no such revision.
    """
    folder = folder or variants_dir()
    if revision.startswith("-"):
        raise UsageError(f"{flag}: templates: {revision!r} is no git revision; name a commit, tag or branch")
    listed = _git(folder, flag, revision, "ls-tree", "-r", "-z", "--name-only", revision, "--", ".")
    names = [name for name in listed.decode("utf-8", "replace").split("\0") if name.endswith(".py")]
    if not names:
        raise UsageError(f"{flag}: templates: there are no templates in {folder} at {revision}; name a later revision")
    contents = (_git(folder, flag, revision, "show", f"{revision}:./{name}") for name in names)
    # As templates are read: line ends and a byte order mark do not count.
    plain = (content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n") for content in contents)
    return frozenset(hashlib.sha256(content).hexdigest() for content in plain)


def _git(folder: Path, flag: str, revision: str, *words: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError(f"{flag}: templates={revision} needs git, which was not found; install it") from None
    if done.returncode != 0:
        said = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["git failed"])[0]
        raise UsageError(
            f"{flag}: templates={revision}: git says of {folder}: {said}; run it from a checkout, with a revision of it"
        )
    return done.stdout
