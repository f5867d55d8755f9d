"""Which parameters of a stored study mattered, and which values were never good."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

import tuner
from tests.stored_history import GUESSED, OLD, Recorder, problem, simulated
from tuner.cli import run
from tuner.config import Config
from tuner.device import Stack
from tuner.errors import UsageError
from tuner.store.store import Store
from tuner.study_importance import ValueRecord
from tuner.trial import Outcome


def config(template: str, **launch: int) -> Config:
    return Config(template, (), tuple(sorted(launch.items())), tuple(launch))


def stored(path: Path, stack: Stack = OLD) -> str:
    """24 configs of `online`: BLOCK decides, 64 fails, and 128 is half as fast as 512; and one slow one of `row`."""
    url = f"sqlite:///{path / 'tuner.db'}"
    with Store.open(url) as store:
        recorder = Recorder(store)
        for block, warps, stages in product((64, 128, 256, 512), (4, 8), (1, 2, 3)):
            at = config("online", BLOCK=block, num_warps=warps, num_stages=stages)
            if block == 64:
                recorder.failed(problem(1024), stack, at, Outcome.WRONG, "too small")
            else:
                us = {128: 20.0, 256: 10.5, 512: 10.0}[block] * (1.0 + 0.001 * stages)
                recorder.timed(problem(1024), stack, at, simulated(us, (block, warps, stages)), value_us=us)
        recorder.timed(problem(1024), stack, config("row", num_warps=4), simulated(40.0, "row"), value_us=40.04)
    return url


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> str:
    return stored(tmp_path_factory.mktemp("importance"))


def test_the_parameter_that_decides_comes_first_and_its_bad_values_are_named(url):
    found = tuner.importance("1", db=url)
    assert (found.evaluator, found.estimated, found.best_us) == ("ped-anova", False, pytest.approx(10.01))
    online, row = found.templates
    assert (online.template, online.tried, online.timed, online.best_ratio) == ("online", 24, 18, 1.0)
    assert (row.template, row.tried, row.parameters) == ("row", 1, ())
    assert row.best_ratio == pytest.approx(4.0)
    first = online.parameters[0]
    assert first.name == "BLOCK" and first.share is not None and first.share >= 0.5
    assert first.never_good == (64, 128)
    assert [(r.value, r.tried, r.timed) for r in first.values] == [(64, 6, 0), (128, 6, 6), (256, 6, 6), (512, 6, 6)]
    assert first.values[0].best_ratio is None
    assert first.values[1].best_ratio == pytest.approx(2.0)
    assert {p.name: p.never_good for p in online.parameters[1:]} == {"num_warps": (), "num_stages": ()}


@pytest.mark.parametrize(
    ("tried", "ratio", "never"), [(5, 1.2, True), (4, 1.2, False), (5, 1.05, False), (5, None, True), (4, None, False)]
)
def test_a_value_is_called_never_good_only_after_five_tries(tried, ratio, never):
    assert ValueRecord(64, tried, 0 if ratio is None else tried, ratio).never_good is never


def test_estimates_say_so(tmp_path, capsys):
    url = stored(tmp_path, GUESSED)
    assert tuner.importance("1", db=url).estimated
    assert run(["importance", "1", "--db", url]) == 0
    text = capsys.readouterr().out
    assert "values (tried, best estimate)" in text and "timed" not in text
    assert "online: 24 tried, 18 estimated, best 1.00x\n" in text and "fewer than 8 with an estimate" in text


def test_the_command_prints_a_table_and_json(url, capsys):
    assert run(["importance", "1", "--db", url]) == 0
    text = capsys.readouterr().out
    assert "64 (6, failed), 128 (6, 2.00x)" in text
    why = "; fewer than 8 with a time, so no importance is said"
    assert f"row: 1 tried, 1 timed, best 4.00x{why}\n" in text
    assert text.count(why) == 1  # the other template has enough
    assert run(["importance", "1", "--db", url, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    parameter = document["templates"][0]["parameters"][0]
    assert (parameter["name"], parameter["never_good"]) == ("BLOCK", [64, 128])
    assert parameter["values"][1] == {"value": 128, "tried": 6, "timed": 6, "best_ratio": pytest.approx(2.0)}


def test_what_cannot_be_answered_is_refused_in_one_line(url, capsys, tmp_path):
    with pytest.raises(UsageError, match="unknown evaluator 'shap'; choose one of ped-anova, fanova"):
        tuner.importance("1", evaluator="shap", db=url)
    assert run(["importance", "99", "--db", url]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    empty = f"sqlite:///{tmp_path / 'empty.db'}"
    with Store.open(empty) as store:
        Recorder(store).failed(problem(64), OLD, config("online", BLOCK=64), Outcome.WRONG, "no")
    with pytest.raises(UsageError, match="has a time yet"):
        tuner.importance("1", db=empty)
