"""What is stored is measured again on the same card: it holds, and nothing is called a regression."""

from __future__ import annotations

import pytest

import tuner
from tuner.regression.report import Verdict
from tuner.remeasurement import Advice

pytestmark = pytest.mark.alone


def test_a_winner_is_measured_again_and_holds_on_the_same_card_and_software(database: str) -> None:
    problem = tuner.make_problem("softmax", {"rows": 4096, "cols": 4096}, "bf16")
    tuned = tuner.tune(problem, trials=24, db=database, gpu=True)
    assert tuned.winner is not None
    (again,) = tuner.remeasure(db=database)
    assert again.advice in (Advice.KEEP, Advice.SWITCH), again.reason
    assert not again.estimated
    winner = next(e for e in again.entries if e.config.key == tuned.winner.config.key)
    assert winner.median_us is not None
    assert abs(winner.median_us / tuned.winner.record.median_us - 1.0) < 0.05
    stored = tuner.query("measurements", sort=("measurement",), db=database).as_records()
    later = next(r for r in stored if r["stage"] == "remeasure" and r["config"] == tuned.winner.config.label)
    then, now = tuned.winner.created_at.isoformat(), later["created_at"].isoformat()
    report = tuner.regressions({"until": then}, {"since": now}, db=database)
    assert report.rows
    found = [(row.verdict, row.change, row.threshold) for row in report.rows]
    assert {verdict for verdict, *_ in found} <= {Verdict.SAME, Verdict.AMBIGUOUS}, found
    assert all(row.before is None or row.before.conditions.sm_clock > 0 for row in report.rows)


def test_a_stored_measurement_is_run_again_from_its_source(database: str) -> None:
    problem = tuner.make_problem("softmax", {"rows": 4096, "cols": 8192}, "bf16")
    tuner.tune(problem, trials=12, db=database, gpu=True)
    final = next(r for r in tuner.query("measurements", db=database).as_records() if r["stage"] == "final")
    found = tuner.reproduce(final["measurement"], db=database)
    assert not found.trusted and all(check.passed for check in found.checks)
    assert found.row.change is not None and abs(found.row.change) < 0.05
    assert found.row.verdict in (Verdict.SAME, Verdict.AMBIGUOUS)
