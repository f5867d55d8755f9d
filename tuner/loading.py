"""Imports a rendered variant from its file."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tuner.errors import TemplateError

VARIANT_MODULE = "tuner_variant_"
"""What the names of the modules of loaded variants begin with."""


class _FromSource(SourceFileLoader):
    """Compiles the file each time: a ``.pyc`` that was damaged, or that another wrote, would be run as it is."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def load_source(path: Path) -> ModuleType:
    """The module in ``path``, imported once per process under a name made of its file's name.

    Triton reads a kernel's source through ``inspect``, so the module must come from a file. Whatever the file raises
    propagates; ``TemplateError`` where it has no ``launch``.
    """
    name = f"{VARIANT_MODULE}{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    if path.suffix != ".py":
        raise TemplateError(f"{path}: not a Python file")
    spec = importlib.util.spec_from_file_location(name, path, loader=_FromSource(name, str(path)))
    assert spec is not None and spec.loader is not None
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
