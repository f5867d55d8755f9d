from __future__ import annotations

import re

import pytest

import tuner
from tuner import shipped
from tuner.errors import MissingError


def test_the_content_folders_are_found_wherever_tuner_is_installed():
    assert (shipped.variants_dir() / "softmax" / "online.py").is_file()
    assert (shipped.search_spaces_dir() / "softmax.yaml").is_file()
    assert shipped.migrations_dir().is_dir()


def test_a_checkout_is_known_by_the_name_in_its_pyproject(tmp_path):
    package = tmp_path / "tuner"
    package.mkdir()
    assert shipped.root(package) == package / "_shipped"
    pyproject = tmp_path / "pyproject.toml"
    for other in ('[project]\nname = "another"\n', "not = [toml", "project = 3\n"):
        pyproject.write_text(other)
        assert shipped.root(package) == package / "_shipped"
    pyproject.write_bytes(b"\xff")
    assert shipped.root(package) == package / "_shipped"
    pyproject.write_text('[project]\nname = "triton-variant-tuner"\n')
    assert shipped.root(package) == tmp_path


def test_a_damaged_installation_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(shipped, "root", lambda: tmp_path)
    shipped._folder.cache_clear()
    try:
        with pytest.raises(MissingError, match=re.escape(f"{tmp_path / 'db'} is missing; reinstall")):
            shipped.migrations_dir()
    finally:
        shipped._folder.cache_clear()


def test_the_content_folders_cannot_be_imported():
    assert not hasattr(tuner, "_shipped")
    assert not list(shipped.variants_dir().rglob("__init__.py"))


def test_the_version_is_three_numbers():
    assert re.fullmatch(r"\d+\.\d+\.\d+", shipped.version())
