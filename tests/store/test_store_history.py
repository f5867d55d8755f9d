"""The reads of comparisons, and that they go by indexes however large the tables are."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.dialects import sqlite
from store_samples import ESTIMATED_STACK, H200, PROBLEM, STACK, VARIANT, config, measurement, spec, timed

from tuner.store.history import (
    measurements_statement,
    repeats_statement,
    samples_statement,
    trials_statement,
    winners_statement,
)
from tuner.store.listing import Selection, statement_for
from tuner.store.records import WinnerRecord
from tuner.store.store import Store

KEYS = [(PROBLEM.key, H200.key, STACK.key, config(n).key) for n in range(3)]


def plan(store: Store, statement: object) -> str:
    """SQLite's plan of a statement, a step a line."""
    compiled = statement.compile(dialect=sqlite.dialect(), compile_kwargs={"render_postcompile": True})  # type: ignore[attr-defined]
    values = tuple(compiled.params[name] for name in compiled.positiontup)
    with store._database.engine.connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", values)
        return "\n".join(row[3] for row in rows)


@pytest.mark.usefixtures("path")  # what SQLite plans
@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        (trials_statement(KEYS), "(problem_key=? AND device_key=? AND stack_key=? AND config_key=?)"),
        (measurements_statement([1, 2]), "SEARCH tuner_measurement USING INDEX"),
        (samples_statement([1, 2]), "SEARCH tuner_measurement USING INTEGER PRIMARY KEY"),
        (repeats_statement("measured"), "USING INDEX ix_tuner_measurement_stage"),
        (winners_statement(False), "SEARCH tuner_trial USING INTEGER PRIMARY KEY"),
    ],
)
def test_no_read_walks_through_all_trials_or_measurements(store: Store, statement: object, wanted: str) -> None:
    steps = plan(store, statement)
    assert wanted in steps
    assert "SCAN tuner_trial" not in steps and "SCAN tuner_measurement" not in steps


@pytest.mark.usefixtures("path")  # what SQLite plans
@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(problem_keys=[PROBLEM.key]), "(problem_key=?"),
        (Selection(device_keys=[H200.key], stack_keys=[STACK.key]), "ix_tuner_trial_place (device_key=?"),
        (Selection("measurements", problem_keys=[PROBLEM.key]), "SEARCH tuner_measurement USING INDEX"),
        (Selection("winners"), "SEARCH tuner_winner_2 USING INDEX ix_tuner_winner_study_id (study_id=?)"),
        (
            Selection(device_keys=None, outcomes=None, limit=50),
            "SCAN tuner_trial\n",
        ),  # in the order of its key, and no sort
    ],
)
def test_a_query_goes_by_the_indexes_of_what_it_names(store: Store, selection: Selection, wanted: str) -> None:
    steps = plan(store, statement_for(selection))
    assert wanted in f"{steps}\n"
    if selection.problem_keys:
        assert "SCAN tuner_trial" not in steps and "SCAN tuner_measurement" not in steps
    if selection.limit:
        assert "TEMP B-TREE" not in steps


@pytest.mark.usefixtures("path")  # what SQLite plans
def test_the_best_winner_is_found_by_an_index(store: Store) -> None:
    from tuner.store.models import WinnerRow
    from tuner.store.winners import statement_for_winners

    steps = plan(store, statement_for_winners().where(WinnerRow.problem_key == PROBLEM.key))
    assert "SEARCH tuner_winner USING INDEX ix_tuner_winner_best (problem_key=?)" in steps
    assert "SCAN" not in steps.replace("SCAN tuner_device", "").replace("SCAN tuner_stack", "")


def test_what_went_in_comes_out(store: Store, path: Path) -> None:
    study = store.start_study(spec())
    trial = store.record_trial(study.id, timed(1), VARIANT)
    store.record_winner(study.id, WinnerRecord(trial, "winner", "", 10.0, 9.9, 10.1, False, plain_key="p"))
    (again,) = store.record_measurements(trial, [measurement(11.0, "remeasure")])
    store.record_measurements(trial, [measurement(11.5, "final")])
    history = store.history
    (winner,) = history.winners(estimated=False)
    assert (winner.trial_id, winner.config, winner.plain_key) == (trial, config(1), "p")
    assert history.winners(estimated=True) == []
    (found,) = history.trials(KEYS)
    assert (found.id, found.config_key, found.variant_hash) == (trial, config(1).key, VARIANT.hash)
    heads = history.measurements([trial])
    assert [(h.stage, h.confirmed) for h in heads] == [("screen", False), ("remeasure", True), ("final", True)]
    samples = history.samples([again])[again]
    assert samples.us == measurement(11.0).samples_us and samples.processes == (11, 11, 12)
    assert samples.sm_clocks == (1980.0,) * 3 and samples.throttles == (("power_cap",),) * 3
    assert [r.median_us for r in history.repeats("measured")] == [11.1, 11.6]
    (use,) = history.stack_uses("measured")
    assert (use.device_key, use.stack) == (H200.key, STACK)
    assert history.stack_uses("estimated") == []
    store.start_study(spec(stack=ESTIMATED_STACK))
    assert history.stack_uses("estimated") == []  # a stack without results is none to compare
    assert history.catalogue().problems[PROBLEM.key] == PROBLEM
