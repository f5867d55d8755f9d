"""The cache holds what is run, so it is its owner's alone."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from tests.checkout import checkout
from tests.programs import environment, run
from tuner.doctor import Status, _cache
from tuner.errors import MissingError
from tuner.workspace import Workspace

PICKLES = ("dill", "joblib", "marshal", "pickle", "shelve")
THROUGH_PIPES = ("autotuning/compile_ahead.py", "autotuning/kernel_source.py")
"""They pickle what a worker gets through its pipe, and no file."""


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in (folder, *(p for p in folder.rglob("*") if p.is_dir()))}


def test_it_is_made_for_the_user_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        workspace = Workspace(tmp_path / "cache")
        with workspace.gpu_lock("NVIDIA H200"):
            assert workspace.logs.is_dir()
    finally:
        os.umask(before)
    assert modes(tmp_path / "cache") == {0o700}


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o750])
def test_an_empty_folder_is_made_private(tmp_path, mode):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    Workspace(folder)
    assert modes(folder) == {0o700}


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_to_which_others_could_write_is_refused_with_what_lies_in_it(tmp_path, mode):
    folder = Workspace(tmp_path / "cache").folder
    folder.chmod(mode)
    with pytest.raises(MissingError, match=rf"others may write to the cache folder .*mode {mode:o}.*TUNER_CACHE"):
        Workspace(folder)
    assert folder.stat().st_mode & 0o777 == mode


def test_a_folder_inside_to_which_others_could_write_is_refused_too(tmp_path):
    workspace = Workspace(tmp_path / "cache")
    (workspace.variants / "planted.py").write_text("")
    workspace.variants.chmod(0o777)
    with pytest.raises(MissingError, match=r"others may write to the cache folder .*variants"):
        Workspace(workspace.folder)


def test_a_folder_that_others_could_only_read_is_made_private_and_kept(tmp_path):
    workspace = Workspace(tmp_path / "cache")
    (workspace.variants / "kept.py").write_text("kept")
    workspace.folder.chmod(0o755)
    assert (Workspace(workspace.folder).variants / "kept.py").read_text() == "kept"
    assert modes(workspace.folder) == {0o700}


def test_another_users_folder_is_refused(tmp_path, monkeypatch):
    Workspace(tmp_path / "cache")
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(MissingError, match="belongs to another user"):
        Workspace(tmp_path / "cache")


def test_the_doctor_says_so(tmp_path):
    folder = Workspace(tmp_path / "cache").folder
    assert _cache(folder).status is Status.OK
    folder.chmod(0o777)
    check = _cache(folder)
    assert check.status is Status.MISSING and "others may write" in check.remedy


def test_a_command_refuses_it_in_one_line(tmp_path):
    folder = Workspace(tmp_path / "cache").folder
    folder.chmod(0o777)
    words = ["tune", "softmax", "--shape", "rows=64,cols=64", "--dtype", "fp32", "--no-gpu", "--db", "t.db"]
    done = run("-m", "tuner", *words, env=environment(TUNER_CACHE=str(folder)), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: others may write to the cache folder")
    assert not (tmp_path / "t.db").exists()


def test_nothing_reads_a_format_that_can_run_code():
    """Workers are spoken to through pipes of their own (multiprocessing.connection); files are text and JSON."""
    folder = checkout() / "tuner"
    for path in sorted(folder.rglob("*.py")):
        if str(path.relative_to(folder)) in THROUGH_PIPES:
            assert "pickle.load(" not in path.read_text(encoding="utf-8"), path
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & set(PICKLES), path
