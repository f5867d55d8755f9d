"""What is a library's, and what is the user's own whatever its name and place."""

from __future__ import annotations

import sys

import pytest
import torch
import triton
import yaml

from tuner.autotuning.fingerprint import fingerprint
from tuner.autotuning.libraries import library_of
from tuner.shipped import version

PYTHON = f"python {sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"


@pytest.mark.parametrize(
    ("module", "library"),
    [
        ("torch.nn.functional", f"torch {torch.__version__}"),
        ("triton.language", f"triton {triton.__version__}"),
        ("math", PYTHON),
        ("collections.abc", PYTHON),
        ("builtins", PYTHON),
        ("yaml", f"yaml {yaml.__version__}"),
        ("tuner.errors", f"tuner {version()}"),
        ("tests.autotuning.kernels", ""),
        ("__main__", ""),
        ("nowhere.imported", ""),
    ],
)
def test_libraries_have_a_version_and_the_users_own_modules_have_none(module, library):
    found = library_of(module)
    assert found.startswith(library) and bool(found) == bool(library)


def test_a_module_of_the_users_with_the_name_of_one_of_the_standard_library_is_its_own(tmp_path, monkeypatch):
    (tmp_path / "this.py").write_text("GAIN = 2\ndef helper(x):\n    return x * GAIN\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "this", raising=False)
    import this

    assert this.__file__ == str(tmp_path / "this.py") and library_of("this") == ""
    before = fingerprint(reference=this.helper)
    this.GAIN = 3
    assert fingerprint(reference=this.helper) != before
    monkeypatch.delitem(sys.modules, "this")


@pytest.mark.parametrize(("origin", "library"), [(None, "own_package_{} 1.5"), ("file:///home/me/own", "")])
def test_what_was_installed_from_a_folder_is_the_users_own(tmp_path, monkeypatch, origin, library):
    name = f"own_package_{'index' if origin is None else 'folder'}"
    (tmp_path / f"{name}.py").write_text("def helper(x):\n    return x\n")
    info = tmp_path / f"{name}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    if origin is not None:
        (info / "direct_url.json").write_text(f'{{"url": "{origin}", "dir_info": {{}}}}')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("tuner.autotuning.libraries._installed", lambda: (tmp_path.resolve(),))
    __import__(name)
    assert library_of(name) == library.format("index")
