"""What a candidate does wrong ends its own trial, as what it was, and the study goes on."""

from __future__ import annotations

from pathlib import Path

import tuner
from tuner.trial import Outcome


def test_every_kind_of_bad_candidate_ends_as_its_own_outcome_and_the_right_one_wins(
    database: str, spaces: Path
) -> None:
    problem = tuner.make_problem("softmax", {"rows": 2048, "cols": 2048}, "bf16")
    result = tuner.tune(problem, space=spaces / "faulty.yaml", db=database, gpu=True)
    detail = tuner.show(result.study.name, db=database)
    outcomes = {dict(t.trial.config.switches)["FAULT"]: t.trial.outcome for t in detail.trials}
    assert outcomes == {
        "none": Outcome.TIMED,
        "wrong": Outcome.WRONG,
        "half": Outcome.WRONG,
        "endless": Outcome.TIMED_OUT,
        "illegal": Outcome.CRASHED,
        "shared": Outcome.OUT_OF_RESOURCES,
        "type": Outcome.COMPILE_ERROR,
    }
    assert result.winner is not None
    assert dict(result.winner.config.switches)["FAULT"] == "none"
    reasons = {dict(t.trial.config.switches)["FAULT"]: t.trial.reason for t in detail.trials}
    assert "within" in reasons["endless"]
    assert "shared" in reasons["shared"]
    assert "never written" in reasons["half"] or "NaN" in reasons["half"]
