"""Where the shipped content is: kernel templates, search spaces and migrations, in a checkout or installed.

In a checkout (also an editable install) the folders lie beside the package; in a wheel they are
``tuner/_shipped/<name>``.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

from tuner.errors import MissingError

DISTRIBUTION = "triton-variant-tuner"
"""The name of the distribution, as in ``pyproject.toml``."""

FOLDERS = ("variants", "search_spaces", "db")
"""The content folders, as the checkout names them."""

_PACKAGE = Path(__file__).resolve().parent


def variants_dir() -> Path:
    """The folder of the shipped kernel templates. Raises ``MissingError`` where the installation is damaged."""
    return _folder("variants")


def search_spaces_dir() -> Path:
    """The folder of the shipped search spaces. Raises ``MissingError`` where the installation is damaged."""
    return _folder("search_spaces")


def migrations_dir() -> Path:
    """The folder of the database's migrations. Raises ``MissingError`` where the installation is damaged."""
    return _folder("db")


def in_checkout(package: Path = _PACKAGE) -> bool:
    """Whether ``package`` (the folder of ``tuner``) lies in a checkout of this project."""
    return _project(package).get("name") == DISTRIBUTION


def root(package: Path = _PACKAGE) -> Path:
    """The folder that holds ``FOLDERS``: the checkout's root, or ``tuner/_shipped`` where installed."""
    return package.parent if in_checkout(package) else package / "_shipped"


def version() -> str:
    """The version of this project: the installed one or, where it is not installed, that of its ``pyproject.toml``."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return str(_project(_PACKAGE).get("version", "unknown"))


@cache
def _folder(name: str) -> Path:
    folder = root() / name
    if not folder.is_dir():
        raise MissingError(f"{folder} is missing; reinstall {DISTRIBUTION}")
    return folder


def _project(package: Path) -> dict[str, object]:
    """The ``[project]`` table of the ``pyproject.toml`` beside ``package``; empty where there is none."""
    try:
        data = tomllib.loads((package.parent / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}
    table = data.get("project")
    return table if isinstance(table, dict) else {}
