"""Which modules are a library's, known by name and version, and which are the user's own, known by what they hold."""

from __future__ import annotations

import functools
import importlib.metadata
import site
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

# Wherever they lie: a checkout that is worked on, or a folder on PYTHONPATH.
_ALWAYS = ("torch", "triton", "numpy", "tuner")


@functools.cache
def library_of(module: str) -> str:
    """Name and version of the library that the module of this name belongs to; empty where it is the user's own.

    The standard library has Python's version. What lies where packages are installed and says a version is a library.
    """
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "builtins":
        return f"python {sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"
    found = sys.modules.get(top)
    if found is None or not (top in _ALWAYS or _is_installed(found)):
        return ""
    version = _version(found, top)
    return f"{top} {version}" if version else ""


def _is_installed(module: ModuleType) -> bool:
    where = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    return where is not None and any(Path(where).resolve().is_relative_to(folder) for folder in _folders())


@functools.cache
def _folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    folders = [paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(folder).resolve() for folder in folders)


def _version(module: ModuleType, top: str) -> str:
    said = getattr(module, "__version__", None)
    if said is not None:
        return str(said)
    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        return ""
