"""Which modules are a library's, known by name and version, and which are the user's own, known by what they hold."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import site
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from tuner.shipped import version

# Wherever they lie: a checkout that is worked on, or a folder on PYTHONPATH.
_ALWAYS = ("torch", "triton", "numpy")


def library_of(module: str) -> str:
    """Name and version of the library that the module of this name belongs to; empty where it is the user's own.

    The standard library has Python's version. What lies where packages are installed, and comes from an index, has the
    version of its package; what was installed from a folder or a file is the user's own, since its version may stay.
    """
    top = module.partition(".")[0]
    found = sys.modules.get(top)
    return "" if found is None else _library(found, top)


@functools.cache
def _library(module: ModuleType, top: str) -> str:
    where = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    installed = where is not None and _is_within(where, _installed())
    # A module of the user's may have the name of one of the standard library.
    if top in sys.stdlib_module_names and not installed and (where is None or _is_within(where, _standard())):
        return f"python {sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"
    if top == __name__.partition(".")[0]:
        return f"{top} {version()}"
    if top in _ALWAYS:
        return f"{top} {getattr(module, '__version__', '')}"
    number = _version(top) if installed else ""
    return f"{top} {number}" if number else ""


def _is_within(where: str, folders: tuple[Path, ...]) -> bool:
    return any(Path(where).resolve().is_relative_to(folder) for folder in folders)


@functools.cache
def _standard() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple(Path(paths[name]).resolve() for name in ("stdlib", "platstdlib"))


@functools.cache
def _installed() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    folders = [paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()]
    # Those of another environment, which a .pth file has put on the path.
    folders += [folder for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")]
    return tuple(Path(folder).resolve() for folder in folders)


def _version(top: str) -> str:
    try:
        package = importlib.metadata.distribution(top)
    except importlib.metadata.PackageNotFoundError:  # it has another name than its module
        names = importlib.metadata.packages_distributions().get(top)
        if not names:
            return ""
        package = importlib.metadata.distribution(names[0])
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    return "" if str(origin.get("url", "")).startswith("file:") else package.version
