"""Imports a rendered variant from its file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tuner.errors import TemplateError

VARIANT_MODULE = "tuner_variant_"
"""What the names of the modules of loaded variants begin with."""


def load_source(path: Path) -> ModuleType:
    """The module in ``path``, imported once per process under a name made of its file's name.

    Triton reads a kernel's source through ``inspect``, so the module must come from a file. Whatever the file raises
    propagates; ``TemplateError`` where it has no ``launch``.
    """
    name = f"{VARIANT_MODULE}{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TemplateError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        if not callable(getattr(module, "launch", None)):
            raise TemplateError(f"{path}: defines no function `launch`")
    except BaseException:
        del sys.modules[name]
        raise
    return module
