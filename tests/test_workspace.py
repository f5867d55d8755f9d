from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.programs import environment, eventually
from tuner.errors import MissingError
from tuner.variant import Variant
from tuner.workspace import Workspace, cache_folder

VARIANT = Variant("softmax", "online", "t" * 64, (), "def launch(x, out): ...\n", "tl.exp2")


def test_the_folder_is_private_and_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "a" / "cache"))
    workspace = Workspace()
    assert workspace.folder == cache_folder() == tmp_path / "a" / "cache"
    for folder in (workspace.folder, workspace.variants, workspace.triton, workspace.logs):
        assert folder.is_dir()
    assert Workspace().logs != workspace.logs
    assert stat.S_IMODE(workspace.variants.stat().st_mode) == 0o700


def test_without_the_variable_it_is_the_users_cache_folder(monkeypatch):
    monkeypatch.delenv("TUNER_CACHE", raising=False)
    assert cache_folder().name == "tuner"
    monkeypatch.setenv("TUNER_CACHE", "~/kernels")
    assert cache_folder() == Path.home() / "kernels"


def test_a_folder_that_cannot_be_made_is_an_error_that_says_what_to_set(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingError, match=r"the cache folder .*cache cannot be used .*; set TUNER_CACHE"):
        Workspace(tmp_path / "file" / "cache")


def test_a_variant_has_one_file_named_by_its_content(tmp_path):
    workspace = Workspace(tmp_path)
    path = workspace.source_path(VARIANT)
    assert path.name == f"online_{VARIANT.hash[:32]}.py"
    assert path.read_text() == VARIANT.source
    written = path.stat().st_mtime_ns
    assert workspace.source_path(VARIANT) == path
    assert path.stat().st_mtime_ns == written
    other = workspace.source_path(replace(VARIANT, source="def launch(x, out): pass\n"))
    assert other != path


def test_a_file_that_was_cut_off_is_written_again_and_nothing_is_left_beside_it(tmp_path):
    workspace = Workspace(tmp_path)
    path = workspace.source_path(VARIANT)
    path.write_text("def laun")
    assert workspace.source_path(VARIANT).read_text() == VARIANT.source
    assert os.listdir(workspace.variants) == [path.name]


_HOLD = """
import sys, time
from pathlib import Path
from tuner.workspace import Workspace
with Workspace(Path(sys.argv[1])).gpu_lock("NVIDIA H200"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holding(folder: Path) -> subprocess.Popen[str]:
    """Another process that holds the H200 until a line comes, or until it is killed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_gpu_is_held_by_one_study_at_a_time_and_the_next_is_told_that_it_waits(tmp_path):
    holder = holding(tmp_path)
    workspace, waits, got = Workspace(tmp_path), [], []
    with workspace.gpu_lock("NVIDIA H100", lambda: waits.append("H100")):
        pass
    assert waits == []  # another card is free

    def wait_for_it() -> None:
        with workspace.gpu_lock("NVIDIA H200", lambda: waits.append("H200")):
            got.append("H200")

    waiter = threading.Thread(target=wait_for_it)
    waiter.start()
    assert eventually(lambda: waits == ["H200"])
    assert got == []
    holder.communicate("\n", timeout=20)
    waiter.join(20)
    assert got == ["H200"]


def test_a_killed_holder_lets_the_gpu_go(tmp_path):
    holder = holding(tmp_path)
    holder.kill()
    holder.communicate()
    waits: list[str] = []
    with Workspace(tmp_path).gpu_lock("NVIDIA H200", lambda: waits.append("waits")):
        pass
    assert waits == []


def test_programs_that_share_a_name_go_on_beside_each_other_and_one_that_does_not_waits(tmp_path):
    workspace, waits = Workspace(tmp_path), []
    with workspace.gpu_lock("NVIDIA H200", shared=True):
        with workspace.gpu_lock("NVIDIA H200", lambda: waits.append("shared"), shared=True):
            pass
        assert waits == []
        waiter = threading.Thread(target=_hold, args=(workspace, lambda: waits.append("alone")))
        waiter.start()
        assert eventually(lambda: waits == ["alone"])
        assert waiter.is_alive()
    waiter.join(20)
    assert not waiter.is_alive()


def _hold(workspace: Workspace, on_wait: object) -> None:
    with workspace.gpu_lock("NVIDIA H200", on_wait):
        pass
