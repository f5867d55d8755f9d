"""What is tuned here, what on other software, and what not, by how often it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tuner
from tests.exports.stored_winners import ESTIMATED, H100, H200, MEASURED, softmax, store_winner
from tuner.cli import run as command
from tuner.device import Stack
from tuner.errors import UsageError
from tuner.tuned_coverage import Coverage

OLDER = Stack("measured", "3.6.0", "2.11.0", "ptxas 13.0", "570.1", "13.0")
WINNER = "template=whole_row,num_warps=2"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.tuned_coverage._here", lambda target, gpu: (H200, MEASURED))


@pytest.fixture
def database(tmp_path: Path) -> str:
    """512 columns are tuned here, 1024 with older software, 2048 on another device, 4096 are estimated."""
    path = tmp_path / "tuner.db"
    store_winner(path, softmax(64, 512), WINNER, stack=OLDER)
    store_winner(path, softmax(64, 512), WINNER)
    store_winner(path, softmax(64, 1024), WINNER, stack=OLDER)
    store_winner(path, softmax(64, 2048), WINNER, device=H100)
    store_winner(path, softmax(64, 4096), WINNER, stack=ESTIMATED)
    return str(path)


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.yaml"
    counts = {512: 60, 1024: 20, 2048: 5, 4096: 5, 100: 10}
    lines = [
        f"- {{operator: softmax, shape: {{rows: 64, cols: {c}}}, dtype: fp16, count: {n}}}" for c, n in counts.items()
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.usefixtures("here")
def test_calls_are_weighed_and_what_matters_most_comes_first(database, problems):
    report = tuner.coverage(problems, db=database)
    assert [(p.problem.sizes["cols"], p.status, p.count) for p in report.problems] == [
        (100, "untuned", 10), (2048, "untuned", 5), (4096, "untuned", 5), (1024, "stale", 20), (512, "tuned", 60),
    ]  # fmt: skip
    assert [report.share(status) for status in Coverage] == [0.6, 0.2, 0.2]
    assert report.problems[1].elsewhere == ("NVIDIA H100 80GB HBM3",)
    assert report.problems[3].stack.startswith("Triton 3.6.0") and report.problems[4].stack.startswith("Triton 3.9.0")
    assert "template=whole_row" in report.problems[4].config and report.problems[4].us == 10.0
    assert not report.estimated


@pytest.mark.usefixtures("here")
def test_without_a_file_every_studied_problem_counts_once(database):
    report = tuner.coverage(db=database)
    assert [report.calls(status) for status in Coverage] == [1, 1, 2]


def test_estimates_are_looked_at_where_nothing_is_measured(database, problems, monkeypatch):
    monkeypatch.setattr("tuner.tuned_coverage._here", lambda target, gpu: (H200, ESTIMATED))
    report = tuner.coverage(problems, db=database)
    assert report.estimated and [p.problem.sizes["cols"] for p in report.problems if p.status is Coverage.TUNED] == [
        4096
    ]


@pytest.mark.usefixtures("here")
def test_the_command_prints_shares_and_exits_with_1_where_something_is_left(database, problems, tmp_path, capsys):
    assert command(["coverage", "--problems", str(problems), "--db", database, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["shares"] == {"tuned": 0.6, "stale": 0.2, "untuned": 0.2}
    assert answer["rows"][0]["status"] == "untuned" and answer["rows"][0]["problem"]["shape"]["cols"] == 100
    assert command(["coverage", "--problems", str(problems), "--db", database]) == 1
    assert "calls: 60% tuned (60 calls), 20% stale (20 calls), 20% untuned (20 calls)" in capsys.readouterr().out
    only = tmp_path / "only.yaml"
    only.write_text("- {operator: softmax, shape: {rows: 64, cols: 512}, dtype: fp16}\n")
    assert command(["coverage", "--problems", str(only), "--db", database]) == 0


@pytest.mark.usefixtures("here")
def test_a_file_that_is_not_there_is_an_error(tmp_path):
    store_winner(tmp_path / "tuner.db", softmax(64, 512), WINNER)
    with pytest.raises(UsageError, match="no such file; check the path"):
        tuner.coverage(tmp_path / "nothing.yaml", db=str(tmp_path / "tuner.db"))


@pytest.mark.usefixtures("tune_environment")
def test_the_device_and_software_here_are_those_of_a_study(database, tmp_path):
    from tuner.tuned_coverage import _here

    device, stack = _here("h200", False)
    assert device.name == "sm_90 (as NVIDIA H200)" or "H200" in device.name
    assert stack.mode == "estimated" and stack.triton
