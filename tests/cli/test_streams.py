"""What a command does where its streams are closed, full or cut short: real processes, as a shell starts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tuner.cli import run


def shell(redirection: str) -> subprocess.CompletedProcess[str]:
    line = f'"{sys.executable}" -m tuner operators {redirection}'
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("redirection", "printed"), [(">&-", False), ("2>&-", True), (">&- 2>&-", False)])
def test_a_closed_stream_is_no_error(redirection, printed):
    ran = shell(redirection)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ("softmax" in ran.stdout) is printed


def test_a_reader_that_stops_early_is_no_error():
    ran = shell("| head -c 1; exit ${PIPESTATUS[0]}")
    assert ran.stdout and "Traceback" not in ran.stderr and "internal error" not in ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has the device that is always full")
def test_a_full_disk_is_said_to_be_full():
    ran = shell("> /dev/full")
    assert (ran.returncode, ran.stderr) == (2, "error: cannot write: No space left on device\n")


def test_a_refused_file_is_named(api, capsys):
    api.answers["studies"] = PermissionError(13, "Permission denied", "/nowhere/results.db")
    assert run(["studies"]) == 2
    assert capsys.readouterr().err == "error: cannot use /nowhere/results.db: Permission denied\n"


def test_any_other_failure_of_the_system_is_ours(api, capsys):
    api.answers["studies"] = FileNotFoundError(2, "No such file or directory", "/nowhere")
    assert run(["studies"]) == 70
    assert capsys.readouterr().err.startswith("internal error: FileNotFoundError")
