"""A space that is recorded here, with estimates, and searched again from its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tuner
from tuner.cli import run
from tuner.errors import UsageError
from tuner.replay.reading import read_recording

SMALL = ("softmax", "--shape", "rows=64,cols=100", "--dtype", "fp32")
SPACE = Path(__file__).parent / "spaces_engine" / "small.yaml"


def test_a_recorded_space_has_every_config_and_can_be_searched_again(tmp_path, capsys):
    path, url = tmp_path / "small.csv.gz", f"sqlite:///{tmp_path / 'tuner.db'}"
    command = ["record", *SMALL, "--estimated", "--space", str(SPACE), "-o", str(path), "--db", url, "--workers", "1"]
    assert run([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["complete"], said["configs"], said["failed"], said["estimated"]) == (True, 4, 0, True)
    recording = read_recording(path)
    assert recording.domain("small") == {"DIVIDE": (False, True), "num_warps": (1, 2)}
    assert [c.values for c in recording.plain()] == [{"DIVIDE": True, "num_warps": 1}]
    assert recording.about["estimated"] is True
    assert recording.best_us == pytest.approx(said["best_us"])
    assert all(row.compile_ms > 0.0 and row.check_ms > 0.0 for row in recording.rows)
    stored = {t.trial.config.label: t.trial.value_us for t in tuner.show(said["study"], db=url).trials}
    assert {row.config.label: pytest.approx(row.time_us) for row in recording.rows} == stored
    (result,) = tuner.replay_search([path], budget=4, seeds=2)
    assert result.by_evaluations[-1].found.tenth == 1.0
    assert run(command) == 0  # all is known
    assert "4 configs, 0 without a time" in capsys.readouterr().out
    assert sorted(read_recording(path).rows, key=str) == sorted(recording.rows, key=str)


def test_without_a_gpu_it_is_refused_in_one_line_that_names_the_way_out(tmp_path, capsys):
    assert run(["record", *SMALL, "-o", str(tmp_path / "x.csv"), "--db", f"sqlite:///{tmp_path / 'x.db'}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "no GPU was found here" in error
    assert "`tuner record --estimated` records estimates" in error
    assert not (tmp_path / "x.csv").exists()


def test_a_folder_that_is_not_there_is_refused_before_anything_is_tried(tmp_path):
    problem = tuner.make_problem("softmax", {"rows": 64, "cols": 100}, "fp32")
    with pytest.raises(UsageError, match="there is no folder"):
        tuner.record(problem, tmp_path / "none" / "x.csv", estimated=True)
