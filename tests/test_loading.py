from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tuner.errors import TemplateError
from tuner.loading import load_source


def written(folder: Path, text: str, name: str = "variant_0001.py") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def forget_variants():
    yield
    for name in [n for n in sys.modules if n.startswith("tuner_variant_")]:
        del sys.modules[name]


def test_a_file_is_imported_once(tmp_path):
    path = written(tmp_path, "loads = []\ndef launch():\n    loads.append(1)\n    return len(loads)\n")
    load_source(path).launch()
    assert load_source(path).launch() == 2


def test_files_of_one_name_in_two_folders_are_two_modules(tmp_path):
    first = written(tmp_path / "a", "def launch():\n    return 'a'\n")
    second = written(tmp_path / "b", "def launch():\n    return 'b'\n")
    assert load_source(first).launch() == "a"
    assert load_source(second).launch() == "b"


def test_a_file_without_launch_is_refused_each_time(tmp_path):
    path = written(tmp_path, "def lunch():\n    pass\n")
    for _ in range(2):
        with pytest.raises(TemplateError, match="defines no function `launch`"):
            load_source(path)


def test_what_a_file_raises_is_raised_each_time(tmp_path):
    path = written(tmp_path, "raise LookupError('not today')\n")
    for _ in range(2):
        with pytest.raises(LookupError, match="not today"):
            load_source(path)


def test_a_file_that_is_not_python_is_refused(tmp_path):
    with pytest.raises(TemplateError, match=r"notes\.txt: not a Python file"):
        load_source(written(tmp_path, "", "notes.txt"))
