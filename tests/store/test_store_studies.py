from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from store_samples import (
    ESTIMATED_STACK,
    H100,
    H200,
    NEWER_STACK,
    OTHER_PROBLEM,
    PROBLEM,
    STACK,
    VARIANT,
    failed,
    spec,
    timed,
)

from tuner.errors import StoreError, UsageError
from tuner.store.records import Refusal, WinnerRecord
from tuner.store.store import Store
from tuner.trial import Outcome


def test_the_same_study_is_resumed_with_what_it_had(store: Store) -> None:
    first = store.start_study(spec())
    assert (first.resumed, first.trials, first.wall_s) == (False, 0, 0.0)
    store.record_trial(first.id, timed(1), VARIANT)
    store.finish_study(first.id, "interrupted", 12.0, 6.0)
    second = store.start_study(spec(seed=5, max_trials=400))
    assert (second.id, second.name, second.optuna_name) == (first.id, first.name, first.optuna_name)
    assert (second.resumed, second.previous_state, second.trials) == (True, "interrupted", 1)
    assert (second.wall_s, second.gpu_busy_s) == (12.0, 6.0)
    store.finish_study(first.id, "finished", 3.0, 1.0)
    summary = store.studies()[0]
    assert (summary.state, summary.wall_s, summary.gpu_busy_s) == ("finished", 15.0, 7.0)
    assert (summary.seed, summary.max_trials, summary.space_size) == (5, 400, 10_000_000_000)
    assert summary.finished_at is not None and summary.finished_at.tzinfo is UTC
    assert abs(datetime.now(UTC) - summary.finished_at) < timedelta(minutes=1)


def test_a_heartbeat_stores_how_far_the_run_is(store: Store) -> None:
    study = store.start_study(spec())
    store.finish_study(study.id, "interrupted", 10.0, 1.0)
    store.start_study(spec())
    assert store.heartbeat(study.id, wall_s=2.0, gpu_busy_s=0.5)
    assert store.heartbeat(study.id, wall_s=4.0)
    summary = store.studies()[0]
    assert (summary.state, summary.wall_s, summary.gpu_busy_s) == ("running", 14.0, 1.5)


@pytest.mark.parametrize(
    "change",
    [
        {"space_digest": "another"},
        {"stack": NEWER_STACK},
        {"stack": ESTIMATED_STACK},
        {"device": H100},
        {"problem": OTHER_PROBLEM},
    ],
)
def test_another_space_stack_device_or_problem_is_another_study(store: Store, change: dict[str, object]) -> None:
    first = store.start_study(spec())
    second = store.start_study(spec(**change))
    assert second.id != first.id and second.name != first.name and not second.resumed


def test_a_name_says_operator_problem_device_and_space_and_that_it_is_estimated(store: Store) -> None:
    key = PROBLEM.key[:8]
    assert store.start_study(spec()).name == f"softmax-{key}-nvidia-h200-aaaaaa"
    newer = store.start_study(spec(stack=NEWER_STACK)).name
    assert newer == f"softmax-{key}-nvidia-h200-aaaaaa-{NEWER_STACK.key[:6]}"
    estimated = store.start_study(spec(stack=ESTIMATED_STACK)).name
    assert estimated == f"softmax-{key}-nvidia-h200-estimated-aaaaaa"


def test_an_extended_space_is_a_new_study_that_reuses_the_old_trials(store: Store) -> None:
    first = store.start_study(spec())
    old = store.record_trial(first.id, timed(1), VARIANT)
    store.finish_study(first.id, "finished", 1.0, 1.0)
    second = store.start_study(spec(space_digest="extended", space_text="operator: softmax\n# more\n"))
    known = store.known_trials(PROBLEM.key, H200.key, STACK.key)
    assert [trial.id for trial in known.values()] == [old]
    store.reuse_trial(second.id, old)
    store.reuse_trial(second.id, old)
    store.record_trial(second.id, timed(2), VARIANT)
    detail = store.study(second.id)
    assert [(t.ordinal, t.reused, t.trial.value_us) for t in detail.trials] == [(0, True, 10.1), (1, False, 10.1)]
    assert (detail.summary.trials, detail.summary.reused) == (2, 1)
    assert detail.space_text == "operator: softmax\n# more\n"
    assert store.study(first.id).summary.trials == 1


def test_a_trial_of_another_stack_is_not_reused(store: Store) -> None:
    old = store.record_trial(store.start_study(spec()).id, timed(1), VARIANT)
    newer = store.start_study(spec(stack=NEWER_STACK))
    with pytest.raises(ValueError, match="another stack_key"):
        store.reuse_trial(newer.id, old)
    assert not store.known_trials(PROBLEM.key, H200.key, NEWER_STACK.key)


def test_a_summary_counts_outcomes_and_names_the_fastest_until_a_winner_is_chosen(store: Store) -> None:
    study = store.start_study(spec())
    store.record_trial(study.id, timed(1, 12.0), VARIANT)
    fast = store.record_trial(study.id, timed(2, 10.0), VARIANT)
    store.record_trial(study.id, failed(3, Outcome.CRASHED, "illegal access"), VARIANT)
    summary = store.studies()[0]
    assert summary.outcomes == {"timed": 2, "crashed": 1}
    assert (summary.best_us, summary.best_label) == (10.0, "template=online,BLOCK_COLS=2,num_warps=4")
    assert (summary.plain_us, summary.speedup, summary.verdict) == (None, None, "")
    record = WinnerRecord(
        fast, "winner", "2 % faster", 10.2, 10.1, 10.3, False, plain_us=15.3, speedup=1.5, margin=0.02
    )
    store.record_winner(study.id, record)
    summary = store.studies()[0]
    assert (summary.best_us, summary.plain_us, summary.speedup) == (10.2, 15.3, 1.5)
    assert summary.verdict == "2 % faster"
    assert store.study(study.name).winner is not None


def test_studies_are_filtered_and_the_last_changed_comes_first(store: Store) -> None:
    softmax = store.start_study(spec())
    attention = store.start_study(spec(problem=OTHER_PROBLEM, device=H100))
    store.finish_study(softmax.id, "finished", 1.0, 1.0)
    assert [s.id for s in store.studies()] == [softmax.id, attention.id]
    assert [s.id for s in store.studies(operator="attention_fwd")] == [attention.id]
    assert [s.id for s in store.studies(device="h200")] == [softmax.id]
    assert [s.id for s in store.studies(state="running")] == [attention.id]
    assert [s.id for s in store.studies(limit=1)] == [softmax.id]
    assert store.studies(operator="attention_fwd")[0].problem == OTHER_PROBLEM


def test_reasons_that_differ_in_numbers_only_are_one_refusal(store: Store) -> None:
    study = store.start_study(spec())
    for block in (1, 2, 3):
        reason = f"needs {block * 100000} bytes of shared memory, the limit is 232448"
        store.record_trial(study.id, failed(block, Outcome.OUT_OF_RESOURCES, reason), VARIANT)
    store.record_trial(study.id, failed(4, Outcome.WRONG, "normal: ratio 3.5"), VARIANT)
    store.record_trial(study.id, timed(5), VARIANT)
    assert store.study(study.name).refusals == (
        Refusal(
            Outcome.OUT_OF_RESOURCES,
            "needs 100000 bytes of shared memory, the limit is 232448",
            3,
            "template=online,BLOCK_COLS=1,num_warps=4",
        ),
        Refusal(Outcome.WRONG, "normal: ratio 3.5", 1, "template=online,BLOCK_COLS=4,num_warps=4"),
    )


def test_a_study_is_found_by_name_id_or_the_beginning_of_its_name(store: Store) -> None:
    study = store.start_study(spec())
    store.start_study(spec(problem=OTHER_PROBLEM))
    for reference in (study.name, study.id, str(study.id), "softmax-"):
        assert store.study(reference).summary.id == study.id
    detail = store.study("softmax-")
    assert (detail.device, detail.summary.stack, detail.summary.problem) == (H200, STACK, PROBLEM)


def test_an_unknown_study_is_answered_with_close_names(store: Store) -> None:
    with pytest.raises(UsageError, match="no study in this database yet"):
        store.study("softmax")
    study = store.start_study(spec())
    store.start_study(spec(space_digest="other"))
    with pytest.raises(UsageError, match=f"no study .*; did you mean {study.name}"):
        store.study(study.name.replace("softmax", "sofmax"))
    with pytest.raises(UsageError, match="several studies begin with 'softmax'"):
        store.study("softmax")
    with pytest.raises(UsageError, match="`tuner studies` lists them"):
        store.study("12345")


def test_writing_to_a_study_that_does_not_exist_is_an_error(store: Store) -> None:
    with pytest.raises(StoreError, match="no study 77"):
        store.record_trial(77, timed(1), VARIANT)
    with pytest.raises(ValueError, match="finished or interrupted"):
        store.finish_study(1, "done", 1.0, 1.0)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_budgets_and_times_that_are_no_times_are_refused(store: Store, seconds: float) -> None:
    study = store.start_study(spec())
    with pytest.raises(ValueError, match="must be finite and not negative"):
        spec(max_seconds=seconds)
    with pytest.raises(ValueError, match="must be finite and not negative"):
        store.heartbeat(study.id, seconds)
    with pytest.raises(ValueError, match="must be finite and not negative"):
        store.finish_study(study.id, "finished", 1.0, seconds)


def test_device_and_stack_are_stored_by_content_once(store: Store, path: Path) -> None:
    store.start_study(spec())
    store.start_study(spec(space_digest="other"))
    store.start_study(spec(device=replace(H200, memory_bytes=1)))
    with sqlite3.connect(path) as other:
        counts = [other.execute(f"SELECT count(*) FROM tuner_{t}").fetchone()[0] for t in ("device", "stack", "study")]
    other.close()
    assert counts == [1, 1, 2]
