from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import timedelta
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
    config,
    failed,
    spec,
    timed,
)

from tuner.device import Device, Stack
from tuner.errors import UsageError
from tuner.store.records import WinnerRecord
from tuner.store.store import Store
from tuner.trial import Outcome


def crowned(store: Store, block: int, device: Device = H200, stack: Stack = STACK, us: float = 10.0) -> int:
    study = store.start_study(spec(device=device, stack=stack))
    trial_id = store.record_trial(study.id, timed(block, us), VARIANT)
    estimated = stack.mode == "estimated"
    winner_id = store.record_winner(study.id, WinnerRecord(trial_id, "winner", "only one", us, us, us, estimated))
    store.finish_study(study.id, "finished", 1.0, 0.5)
    return winner_id


def test_a_winner_comes_back_as_it_went_in(store: Store) -> None:
    study = store.start_study(spec())
    trial_id = store.record_trial(study.id, timed(1), VARIANT)
    record = WinnerRecord(
        trial_id,
        "tie",
        "a tie of 2; the simpler one",
        10.0,
        9.9,
        10.1,
        False,
        margin=0.001,
        interval=(-0.002, 0.004),
        tie_set=(config(1).key, config(2).key),
        plain_key=config(3).key,
        plain_us=12.5,
        speedup=1.25,
        finalists=({"config": config(1).key, "ratio": 1.0}, {"config": config(2).key, "ratio": 1.001}),
    )
    winner_id = store.record_winner(study.id, record)
    best = store.best(PROBLEM, "NVIDIA H200")
    assert best is not None
    assert (best.id, best.study_id, best.study_name, best.record) == (winner_id, study.id, study.name, record)
    assert (best.problem, best.device, best.stack, best.config) == (PROBLEM, H200, STACK, config(1))
    assert best.variant_hash == VARIANT.hash


def test_nothing_tuned_is_none(store: Store) -> None:
    assert store.best(PROBLEM, None) is None
    crowned(store, 1)
    assert store.best(OTHER_PROBLEM, None) is None
    assert store.best(PROBLEM, "A100") is None


def test_the_newest_winner_is_the_best_and_a_stack_can_be_asked_for(store: Store) -> None:
    old = crowned(store, 1, us=9.0)
    new = crowned(store, 2, stack=NEWER_STACK, us=9.5)
    best = store.best(PROBLEM, None)
    assert best is not None and best.id == new
    older = store.best(PROBLEM, None, stack_key=STACK.key)
    assert older is not None and older.id == old


def test_a_small_space_tuned_later_does_not_hide_the_faster_winner_of_another(store: Store) -> None:
    fast = crowned(store, 1, us=9.0)
    study = store.start_study(spec(space_digest="another", space_name="mine"))
    slower = store.record_trial(study.id, timed(2, 11.0), VARIANT)
    store.record_winner(study.id, WinnerRecord(slower, "winner", "only one", 11.0, 11.0, 11.0, False))
    best = store.best(PROBLEM, None)
    assert best is not None and best.id == fast
    # A newer winner of the same study replaces its older one, faster or not.
    newer = crowned(store, 3, us=9.4)
    best = store.best(PROBLEM, None)
    assert best is not None and best.id == newer


def test_a_clock_that_was_set_back_does_not_hide_the_newest_winner(store: Store, path: Path) -> None:
    first = crowned(store, 1)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE tuner_winner SET created_at = '2999-01-01 00:00:00.000000'")
    other.close()
    second = crowned(store, 2)
    best = store.best(PROBLEM, None)
    assert best is not None and best.id == second != first
    assert best.created_at.year == 2999 and best.created_at.microsecond == timedelta(microseconds=1).microseconds


def test_a_device_is_named_in_any_case_whole_by_key_or_by_a_part_that_only_it_has(store: Store) -> None:
    h200, h100 = crowned(store, 1), crowned(store, 1, H100)
    for name, expected in [
        ("nvidia h200", h200),
        ("h200", h200),
        ("H100", h100),
        ("80gb", h100),
        (H200.key, h200),
    ]:
        best = store.best(PROBLEM, name)
        assert best is not None and best.id == expected, name
    with pytest.raises(UsageError, match="several devices: NVIDIA H100 80GB HBM3, NVIDIA H200; say which"):
        store.best(PROBLEM, None)
    with pytest.raises(UsageError, match="several devices: NVIDIA H100 80GB HBM3, NVIDIA H200; say which"):
        store.best(PROBLEM, None, estimated=True)
    with pytest.raises(UsageError, match="'nvidia' is part of several devices' names: NVIDIA H100"):
        store.best(PROBLEM, "nvidia")


def test_a_whole_name_is_preferred_to_being_part_of_another(store: Store) -> None:
    plain = crowned(store, 1)
    crowned(store, 1, replace(H200, name="NVIDIA H200 NVL", sms=114))
    best = store.best(PROBLEM, "NVIDIA H200")
    assert best is not None and best.id == plain


def test_an_estimated_winner_is_given_only_when_asked_for_and_after_a_measured_one(store: Store) -> None:
    estimated = crowned(store, 1, stack=ESTIMATED_STACK)
    assert store.best(PROBLEM, None) is None
    best = store.best(PROBLEM, None, estimated=True)
    assert best is not None and best.id == estimated and best.record.estimated
    measured = crowned(store, 1)
    crowned(store, 2, stack=ESTIMATED_STACK)
    best = store.best(PROBLEM, None, estimated=True)
    assert best is not None and best.id == measured


def test_a_trial_that_was_not_timed_cannot_win(store: Store) -> None:
    study = store.start_study(spec())
    wrong = store.record_trial(study.id, failed(1, Outcome.WRONG, "wrong"), VARIANT)
    with pytest.raises(ValueError, match="must be a timed trial"):
        store.record_winner(study.id, WinnerRecord(wrong, "winner", "", 1.0, 1.0, 1.0, False))


def test_a_winner_that_is_later_found_wrong_is_no_longer_given(store: Store) -> None:
    first = crowned(store, 1)
    crowned(store, 2)
    study = store.start_study(spec())
    store.record_trial(study.id, failed(2, Outcome.WRONG, "a race"), VARIANT)
    best = store.best(PROBLEM, None)
    assert best is not None and best.id == first


def test_an_estimate_cannot_be_recorded_as_measured(store: Store) -> None:
    study = store.start_study(spec(stack=ESTIMATED_STACK))
    trial_id = store.record_trial(study.id, timed(1), VARIANT)
    with pytest.raises(ValueError, match="`estimated` must be that of the study"):
        store.record_winner(study.id, WinnerRecord(trial_id, "winner", "", 1.0, 1.0, 1.0, False))


def test_a_trial_of_another_problem_cannot_win(store: Store) -> None:
    trial_id = store.record_trial(store.start_study(spec(problem=OTHER_PROBLEM)).id, timed(1), VARIANT)
    study = store.start_study(spec())
    with pytest.raises(ValueError, match="another problem"):
        store.record_winner(study.id, WinnerRecord(trial_id, "winner", "", 1.0, 1.0, 1.0, False))


@pytest.mark.parametrize(
    "change", [{"kind": "maybe"}, {"median_us": float("nan")}, {"speedup": 0.0}, {"interval": (0.0, float("inf"))}]
)
def test_a_winner_holds_no_nonsense(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        replace(WinnerRecord(1, "winner", "", 1.0, 1.0, 1.0, False), **change)  # type: ignore[arg-type]
