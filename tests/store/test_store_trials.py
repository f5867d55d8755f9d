from __future__ import annotations

import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import (
    CHECK,
    H200,
    OTHER_VARIANT,
    PROBLEM,
    STACK,
    VARIANT,
    compiled,
    config,
    failed,
    measurement,
    spec,
    timed,
)

from tuner.errors import StoreError, UsageError
from tuner.store.rows import measurement_values
from tuner.store.store import Store
from tuner.trial import Measurement, Outcome, TrialRecord

HERE = (PROBLEM.key, H200.key, STACK.key)


@pytest.fixture
def study_id(store: Store) -> int:
    return store.start_study(spec()).id


def test_a_trial_comes_back_as_it_went_in(store: Store, study_id: int) -> None:
    record = timed(1024, 10.123456789012345)
    stored = store.trial(store.record_trial(study_id, record, VARIANT))
    assert (stored.config, stored.variant_hash, stored.outcome) == (record.config, VARIANT.hash, Outcome.TIMED)
    assert stored.config.label == record.config.label and stored.config.key == record.config.key
    assert stored.value_us == 10.123456789012345
    assert stored.compile_report == record.compile_report
    assert stored.check_report == CHECK
    assert (stored.seed, stored.seconds) == (3, {"compile": 1.5, "check": 0.5})
    assert tuple(m.measurement for m in stored.measurements) == record.measurements
    assert stored.created_at.utcoffset() is not None
    assert (stored.problem_key, stored.device_key, stored.stack_key) == HERE


def test_a_check_that_failed_by_infinity_comes_back(store: Store, study_id: int) -> None:
    family = replace(CHECK.families[0], passed=False, ratio=math.inf, error=math.nan, reason="nan in out")
    record = replace(failed(1, Outcome.WRONG, "nan in out"), check_report=replace(CHECK, families=(family,)))
    stored = store.trial(store.record_trial(study_id, record, VARIANT))
    assert stored.check_report is not None
    assert stored.check_report.families[0].ratio == math.inf
    assert math.isnan(stored.check_report.families[0].error)


def test_recording_the_same_trial_again_changes_nothing(store: Store, study_id: int) -> None:
    first = store.record_trial(study_id, timed(1), VARIANT)
    before = store.study(study_id)
    assert store.record_trial(study_id, timed(1), VARIANT) == first
    after = store.study(study_id)
    assert after.trials == before.trials


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("pruned", "crashed", "crashed"),
        ("crashed", "pruned", "crashed"),
        ("crashed", "timed", "timed"),
        ("timed", "crashed", "timed"),
        ("timed", "wrong", "wrong"),
        ("wrong", "timed", "wrong"),
        ("compile_error", "timed_out", "compile_error"),
    ],
)
def test_the_better_informed_outcome_is_kept_in_either_order(
    store: Store, study_id: int, first: str, second: str, kept: str
) -> None:
    for outcome in (first, second):
        record = timed(1) if outcome == "timed" else failed(1, Outcome(outcome), f"it was {outcome}")
        trial_id = store.record_trial(study_id, record, VARIANT)
    stored = store.trial(trial_id)
    assert stored.outcome == kept
    assert stored.reason == ("" if kept == "timed" else f"it was {kept}")
    assert stored.value_us == (10.1 if kept == "timed" else None)
    assert store.studies()[0].trials == 1


def test_a_report_that_the_first_record_lacked_is_filled_in(store: Store, study_id: int) -> None:
    store.record_trial(study_id, failed(1, Outcome.WRONG, "first"), VARIANT)
    second = replace(failed(1, Outcome.WRONG, "second"), compile_report=compiled())
    stored = store.trial(store.record_trial(study_id, second, VARIANT))
    assert (stored.reason, stored.binary_hash) == ("first", "b" * 64)


def test_later_measurements_are_appended_once(store: Store, study_id: int) -> None:
    trial_id = store.record_trial(study_id, timed(1), VARIANT)
    later = (measurement(9.0, "finalists"), measurement(9.5, "finalists"))
    ids = store.record_measurements(trial_id, later)
    assert store.record_measurements(trial_id, later) == ids
    assert [m.measurement for m in store.trial(trial_id).measurements] == [measurement(10.1), *later]
    with pytest.raises(StoreError, match="no trial 99"):
        store.record_measurements(99, later)


def test_two_sources_of_one_config_are_two_trials_and_each_is_found(store: Store, study_id: int) -> None:
    old = store.record_trial(study_id, timed(1), VARIANT)
    new = store.record_trial(study_id, timed(1, 9.0, variant=OTHER_VARIANT), OTHER_VARIANT)
    known = store.known_trials(*HERE)
    assert (len(known), known[config(1).key].id) == (1, new)
    found = [known.find(config(1), v.hash) for v in (VARIANT, OTHER_VARIANT)]
    assert [t and t.id for t in found] == [old, new]
    assert known.find(config(2), VARIANT.hash) is None


def test_a_result_is_found_by_source_and_launch_parameters_whatever_the_template_was_called(
    store: Store, study_id: int
) -> None:
    trial_id = store.record_trial(study_id, timed(1), VARIANT)
    found = store.known_trials(*HERE).find(replace(config(1), template="renamed"), VARIANT.hash)
    assert found is not None and found.id == trial_id


def test_failures_are_known_too(store: Store, study_id: int) -> None:
    store.record_trial(study_id, failed(1, Outcome.COMPILE_ERROR, "no such intrinsic"), VARIANT)
    assert store.known_trials(*HERE)[config(1).key].outcome is Outcome.COMPILE_ERROR


def test_a_binary_is_known_by_the_trial_that_was_measured_itself(store: Store, study_id: int) -> None:
    twin = replace(timed(2, binary="c" * 64), same_as=config(1).key, measurements=())
    store.record_trial(study_id, twin, VARIANT)
    measured = store.record_trial(study_id, timed(1, binary="c" * 64), VARIANT)
    store.record_trial(study_id, replace(failed(3, Outcome.WRONG, "x"), compile_report=compiled("d" * 64)), VARIANT)
    assert {k: t.id for k, t in store.timed_binaries(*HERE).items()} == {"c" * 64: measured}


@pytest.mark.parametrize(
    "record",
    [
        replace(timed(1), value_us=math.nan),
        replace(timed(1), value_us=math.inf),
        replace(timed(1), seconds={"compile": math.inf}),
        replace(timed(1), compile_report=replace(compiled(), seconds=math.nan)),
        replace(timed(1), measurements=(replace(measurement(), high_us=math.inf),)),
    ],
)
def test_a_number_that_is_not_finite_is_never_stored(store: Store, study_id: int, record: TrialRecord) -> None:
    with pytest.raises(ValueError, match="finite"):
        store.record_trial(study_id, record, VARIANT)
    assert not store.known_trials(*HERE)


def test_a_trial_and_the_source_beside_it_must_belong_together(store: Store, study_id: int) -> None:
    with pytest.raises(ValueError, match="got the source of"):
        store.record_trial(study_id, timed(1), OTHER_VARIANT)


def test_a_compilers_message_is_stored_whatever_bytes_are_in_it(store: Store, study_id: int) -> None:
    reason = "bad \udcff\0 byte " + "x" * 100_000
    stored = store.trial(store.record_trial(study_id, failed(1, Outcome.COMPILE_ERROR, reason), VARIANT))
    assert stored.reason.startswith("bad ?\N{REPLACEMENT CHARACTER} byte xxx")
    assert len(stored.reason) == 4000 and stored.reason.endswith(" ...")


def test_a_failed_write_leaves_nothing_of_the_trial(
    store: Store, study_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.store import trials

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trials, "link", stop)
    with pytest.raises(KeyboardInterrupt):
        store.record_trial(study_id, timed(1), VARIANT)
    monkeypatch.undo()
    assert not store.known_trials(*HERE)
    with pytest.raises(UsageError, match="is no variant"):
        store.variant(VARIANT.hash)


def test_a_variant_is_found_by_the_beginning_of_its_hash(store: Store, study_id: int) -> None:
    store.record_trial(study_id, timed(1), VARIANT)
    assert store.variant(VARIANT.hash) == VARIANT
    assert store.variant_source(VARIANT.hash[:10].upper()) == "def launch(x, out): ...\n"
    for wrong in ("", "%", "online", "0" * 64):
        with pytest.raises(UsageError):
            store.variant_source(wrong)


def test_the_lookup_of_known_trials_goes_by_an_index(store: Store, path: Path, study_id: int) -> None:
    store.record_trial(study_id, timed(1), VARIANT)
    with sqlite3.connect(path) as other:
        plan = other.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM tuner_trial WHERE problem_key = ? AND device_key = ? AND stack_key = ?",
            HERE,
        ).fetchall()
    other.close()
    assert "USING INDEX" in plan[0][3]


@given(st.lists(st.floats(min_value=1e-3, max_value=1e9), min_size=1, max_size=5))
def test_samples_are_stored_to_the_last_bit(samples: list[float]) -> None:
    import json
    from types import SimpleNamespace

    from tuner.store.rows import measurement_of

    given_in = Measurement("race", "timer-1", tuple(samples), samples[0], min(samples), max(samples))
    row = json.loads(json.dumps(measurement_values(given_in)))
    assert measurement_of(SimpleNamespace(**row, id=1, created_at=None)).measurement == given_in


def test_a_stored_source_that_was_changed_is_refused(store: Store, path: Path) -> None:
    study = store.start_study(spec())
    store.record_trial(study.id, timed(1), VARIANT)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE tuner_variant SET source = source || '# changed'")
    other.close()
    with pytest.raises(StoreError, match="was changed: it is not what its hash says"):
        store.variant(VARIANT.hash)


@pytest.mark.parametrize(
    "edit", ["config = '{}'", "config = 'not json'", "outcome = 'splendid'", "created_at = 'once'"]
)
def test_a_row_that_cannot_be_read_is_said_to_be_damaged(store: Store, path: Path, edit: str) -> None:
    study = store.start_study(spec())
    store.record_trial(study.id, timed(1), VARIANT)
    with sqlite3.connect(path) as other:
        other.execute(f"UPDATE tuner_trial SET {edit}")
    other.close()
    with pytest.raises(StoreError, match="has a row that cannot be read"):
        store.study(study.id)
