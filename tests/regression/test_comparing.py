"""From a database to a report: which winners, which measurements, what is wrong, refused or missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tuner
from tests.stored_history import GUESSED, H200, NEW, OLD, PLAIN, VARIANT, Recorder, config, dated, problem, simulated
from tuner.errors import StoreError, UsageError
from tuner.regression.report import RegressionReport, Row, Verdict
from tuner.store.store import Store
from tuner.trial import Measurement, Outcome


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuner.db"


@pytest.fixture
def recorder(path: Path) -> Iterator[Recorder]:
    with Store.open(str(path)) as store:
        yield Recorder(store)


def report(path: Path, before: str = "", after: str = "", **how: object) -> RegressionReport:
    return tuner.regressions(before, after, db=str(path), **how)


def by_cols(found: RegressionReport) -> dict[int, Row]:
    return {row.problem.sizes["cols"]: row for row in found.rows}


def again(us: float, seed: object, **how: object) -> Measurement:
    return simulated(us, seed, stage="remeasure", **how)  # type: ignore[arg-type]


def test_an_upgrade_after_which_everything_has_happened(recorder, path):
    for cols in range(1, 8):
        recorder.crowned(problem(cols), OLD, config(2), simulated(50.0, cols), plain=simulated(70.0, f"plain {cols}"))
    for cols, us in ((1, 50.0), (2, 55.0), (3, 45.0)):
        recorder.timed(problem(cols), NEW, config(2), again(us, f"new {cols}"))
        recorder.timed(problem(cols), NEW, PLAIN, again(70.0, f"new plain {cols}"))
    recorder.failed(problem(4), NEW, config(2), Outcome.WRONG, "randn at softmax rows=9: 7.0 times the bound")
    recorder.failed(problem(5), NEW, config(2), Outcome.COMPILE_ERROR, "no such intrinsic")
    recorder.failed(problem(6), NEW, config(2), Outcome.CRASHED, "an illegal access")
    found = report(path)
    assert [row.verdict for row in found.rows] == [
        Verdict.WRONG, Verdict.NO_LONGER_COMPILES, Verdict.NO_LONGER_RUNS, Verdict.REGRESSION, Verdict.MISSING,
        Verdict.IMPROVEMENT, Verdict.SAME,
    ]  # fmt: skip
    rows = by_cols(found)
    assert rows[4].reason.startswith("randn at softmax") and rows[5].reason == "no such intrinsic"
    assert rows[2].change == pytest.approx(0.10, abs=0.01)
    assert rows[2].plain_change == pytest.approx(0.0, abs=0.01)
    assert rows[2].beside_plain == pytest.approx(0.10, abs=0.01)
    assert rows[2].before is not None and rows[2].before.blocks == 30 and rows[2].before.median_us > 49
    assert rows[7].reason == "not measured there; run `tuner remeasure`"
    assert found.before == OLD.label and found.after == NEW.label
    assert found.compared == 6
    assert [row.verdict for row in found.worse(0.03)] == [
        Verdict.WRONG, Verdict.NO_LONGER_COMPILES, Verdict.NO_LONGER_RUNS, Verdict.REGRESSION,
    ]  # fmt: skip
    assert Verdict.REGRESSION not in [row.verdict for row in found.worse(0.5)]


def test_a_first_look_counts_where_there_is_nothing_better_and_asks_for_more(recorder, path):
    recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    recorder.timed(problem(1), NEW, config(2), simulated(50.4, 2, rounds=3, processes=1, stage="screen"))
    (row,) = report(path).rows
    assert row.verdict is Verdict.AMBIGUOUS and row.reason.startswith("a first look of a few samples only")
    assert row.change == pytest.approx(0.008, abs=0.01)


def test_confirmed_measurements_are_pooled_and_looks_before_them_are_not(recorder, path):
    screen = simulated(99.0, 0, rounds=3, processes=1, stage="screen")
    recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    recorder.timed(problem(1), NEW, config(2), screen, again(50.0, 2), again(50.0, 3))
    (row,) = report(path).rows
    assert row.after is not None and (row.after.blocks, len(row.after.measurements)) == (60, 2)
    assert row.verdict is Verdict.SAME


def test_two_dates_on_one_stack(recorder, path):
    trial = recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1), again(56.0, 2))
    heads = recorder.store.history.measurements([trial])
    dated(path, "tuner_measurement", [heads[0].id], datetime(2026, 4, 1, tzinfo=UTC))
    dated(path, "tuner_measurement", [heads[1].id], datetime(2026, 5, 9, tzinfo=UTC))
    dated(path, "tuner_winner", [1], datetime(2026, 4, 1, tzinfo=UTC))
    dated(path, "tuner_trial", [trial], datetime(2026, 4, 1, tzinfo=UTC))
    (row,) = report(path, "until=2026-05-01").rows
    assert row.verdict is Verdict.REGRESSION
    assert row.before is not None and row.after is not None
    assert (row.before.measurements, row.after.measurements) == ((heads[0].id,), (heads[1].id,))
    (row,) = report(path, "date=2026-05-01", "date=2026-05-08").rows
    assert row.verdict is Verdict.MISSING  # nothing was measured between the two


def test_a_winner_that_was_found_wrong_later_is_a_correctness_regression(recorder, path):
    trial = recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    dated(path, "tuner_winner", [1], datetime(2026, 4, 1, tzinfo=UTC))
    dated(path, "tuner_measurement", [1], datetime(2026, 4, 1, tzinfo=UTC))
    dated(path, "tuner_trial", [trial], datetime(2026, 4, 1, tzinfo=UTC))
    recorder.failed(problem(1), OLD, config(2), Outcome.WRONG, "in the final re-measurement: a race")
    (row,) = report(path, "until=2026-05-01").rows
    assert (row.verdict, row.reason) == (Verdict.WRONG, "in the final re-measurement: a race")


def test_two_databases(recorder, path, tmp_path):
    recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    with Store.open(str(tmp_path / "branch.db")) as other:
        Recorder(other).crowned(problem(1), OLD, config(3), simulated(49.0, 3))
        Recorder(other).timed(problem(1), OLD, config(2), again(56.0, 2))
    found = report(path, f"db={path}", f"db={tmp_path / 'branch.db'}")
    (row,) = found.rows
    assert row.verdict is Verdict.REGRESSION
    assert row.notes[0].startswith("tuned again there, the winner is template=online,BLOCK_COLS=3")


def test_two_revisions_of_the_templates(recorder, path, monkeypatch):
    edited = replace(VARIANT, template_hash="b" * 64, source="def launch(x, out): pass\n")
    hashes = {"v1": frozenset({"a" * 64}), "HEAD": frozenset({"b" * 64})}
    monkeypatch.setattr("tuner.regression.reading.template_hashes", lambda revision, flag: hashes[revision])
    recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    recorder.timed(problem(1), OLD, config(2), again(60.0, 2), variant=edited)
    (row,) = report(path, "templates=v1", "templates=HEAD").rows
    assert row.verdict is Verdict.REGRESSION
    assert "its source changed between the points" in row.notes
    assert row.before is not None and row.before.variant_hash == VARIANT.hash


def test_the_winner_is_the_source_that_won_and_not_one_that_was_edited_later(recorder, path):
    edited = replace(VARIANT, template_hash="b" * 64, source="def launch(x, out): pass\n")
    recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    recorder.timed(problem(1), OLD, config(2), again(80.0, 2), variant=edited)
    recorder.timed(problem(1), NEW, config(2), again(50.0, 3))
    (row,) = report(path).rows
    assert row.verdict is Verdict.SAME
    assert row.before is not None and row.before.variant_hash == VARIANT.hash


def test_a_twin_is_compared_by_the_measurement_of_its_binary(recorder, path):
    recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    recorder.timed(problem(1), NEW, config(3), again(50.0, 2))
    recorder.timed(problem(1), NEW, config(2), same_as=config(3).key, value_us=50.0)
    (row,) = report(path).rows
    assert row.verdict is Verdict.SAME


def test_another_protocol_is_not_compared(recorder, path):
    recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    recorder.timed(problem(1), NEW, config(2), again(60.0, 2, protocol="cold-graph-2"))
    (row,) = report(path).rows
    assert row.verdict is Verdict.MISSING and "another protocol" in row.reason


def test_a_card_that_changed_as_a_whole_is_said_to_have(recorder, path):
    for cols in range(1, 4):
        recorder.crowned(problem(cols), OLD, config(2), simulated(50.0, cols), plain=simulated(70.0, f"p{cols}"))
        recorder.timed(problem(cols), NEW, config(2), again(55.0, f"n{cols}"))
        recorder.timed(problem(cols), NEW, PLAIN, again(77.0, f"np{cols}"))
    found = report(path)
    assert any("the plain configs moved too, by +10." in note or "by +9." in note for note in found.notes)
    assert found.rows[0].beside_plain == pytest.approx(0.0, abs=0.01)


def test_the_noise_floor_of_the_device_is_taken_from_repeats(recorder, path):
    for cols in range(1, 41):
        sessions = [simulated(50.0, f"{cols}a", session_noise=0.02), again(50.0, f"{cols}b", session_noise=0.02)]
        recorder.crowned(problem(cols), OLD, config(2), *sessions)
        recorder.timed(problem(cols), NEW, config(2), again(50.0, f"{cols}c", session_noise=0.02))
    found = report(path)
    (floor,) = found.floors.values()
    assert (floor.basis, floor.pairs) == ("repeats", 40)
    assert 0.03 < floor.half_width < 0.09
    assert {row.verdict for row in found.rows} <= {Verdict.SAME, Verdict.AMBIGUOUS}  # no false alarm


def test_estimates_are_compared_with_estimates_only_and_no_time_of_theirs_is_judged(recorder, path):
    recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    guess = Measurement("estimate", "estimate-1", (40.0,), 40.0, 40.0, 40.0)
    newer = replace(GUESSED, triton="3.7.1")
    recorder.crowned(problem(1), GUESSED, config(2), guess)
    recorder.timed(problem(1), newer, config(2), replace(guess, samples_us=(44.0,), median_us=44.0))
    with pytest.raises(UsageError, match="one software stack only"):
        report(path)
    found = report(path, estimated=True)
    (row,) = found.rows
    assert found.estimated
    assert (row.verdict, row.reason) == (Verdict.AMBIGUOUS, "the estimates differ; only a GPU can tell")
    assert row.change == pytest.approx(0.1)
    assert found.worse() == ()


def test_a_missing_estimate_is_called_one_and_made_without_a_gpu(recorder, path):
    guess = Measurement("estimate", "estimate-1", (40.0,), 40.0, 40.0, 40.0)
    newer = replace(GUESSED, triton="3.7.1")
    recorder.crowned(problem(1), GUESSED, config(2), guess)
    with pytest.raises(UsageError, match="or run `tuner remeasure --estimated` on the other stack"):
        report(path, estimated=True)
    recorder.timed(problem(1), newer, config(3), guess)
    (row,) = report(path, estimated=True).rows
    assert (row.verdict, row.reason) == (Verdict.MISSING, "not estimated there; run `tuner remeasure --estimated`")


def test_it_can_be_narrowed(recorder, path):
    recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    recorder.timed(problem(1), NEW, config(2), again(50.0, 2))
    assert len(report(path, operator="softmax", device="h200").rows) == 1
    for how in ({"operator": "attention_fwd"}, {"device": "B200"}):
        with pytest.raises(UsageError, match="is stored at the point before"):
            report(path, **how)


def test_the_fastest_of_the_newest_stack_is_the_winner_as_for_best(recorder, path):
    recorder.crowned(problem(1), OLD, config(2), simulated(50.0, 1))
    with_other_space = recorder.study(problem(1), OLD, "space-2")
    slower = recorder.timed(problem(1), OLD, config(5), simulated(60.0, 2))
    from tuner.store.records import WinnerRecord

    recorder.store.record_winner(with_other_space, WinnerRecord(slower, "winner", "", 60.0, 59.0, 61.0, False))
    recorder.timed(problem(1), NEW, config(2), again(50.0, 3))
    (row,) = report(path).rows
    assert row.config_key == config(2).key


def test_two_devices_of_one_name_are_told_apart_by_their_keys(recorder, path):
    part = replace(H200, sms=66)
    for device, seed in ((H200, "whole"), (part, "part")):
        here = Recorder(recorder.store, device)
        for cols in range(1, 4):
            here.crowned(
                problem(cols), OLD, config(2), simulated(50.0, (seed, cols)), plain=simulated(70.0, (seed, cols))
            )
            here.timed(problem(cols), NEW, config(2), again(50.0, (seed, cols, "new")))
    found = report(path)
    names = {f"NVIDIA H200 ({device.key[:8]})" for device in (H200, part)}
    assert set(found.floors) == names == {row.device for row in found.rows}


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE tuner_measurement SET samples_us = '[]'", "a measurement has no sample"),
        ("UPDATE tuner_measurement SET samples_us = json_set(samples_us, '$[3]', 0)", "a sample must be positive"),
        ("UPDATE tuner_measurement SET samples_us = json_set(samples_us, '$[3]', -1.5)", "a sample must be positive"),
        ("UPDATE tuner_measurement SET samples_us = json_set(samples_us, '$[3]', 'fast')", "cannot be read"),
        ("UPDATE tuner_measurement SET samples_us = json_set(samples_us, '$[3]', json('true'))", "Samples.us"),
        ("UPDATE tuner_measurement SET median_us = 0", "must be positive and finite microseconds, but is 0.0"),
        ("UPDATE tuner_measurement SET median_us = -2", "must be positive and finite"),
        ("UPDATE tuner_measurement SET median_us = 9e999", "must be positive and finite"),
        ("UPDATE tuner_winner SET median_us = 0", "the time of winner 4 must be positive"),
        ("UPDATE tuner_problem SET key = 'x'", r"winner 4 is of the problem '.*', which is not stored"),
    ],
)
def test_rows_that_no_measurement_left_are_refused_in_one_line(recorder, path, statement, said):
    for stack in (OLD, NEW):
        for number in range(2):
            us = simulated(50.0, (stack.triton, number))
            recorder.crowned(problem(1), stack, config(2), us, plain=simulated(70.0, stack.triton))
    recorder.store.close()
    with sqlite3.connect(path) as other:
        other.execute(statement)
    other.close()
    with pytest.raises((StoreError, UsageError), match=said):
        report(path)


@pytest.mark.parametrize(("measurements", "fooled"), [(1, True), (2, False)])
def test_sessions_that_differ_are_noise_once_there_are_two_of_each_side(recorder, path, measurements, fooled):
    noise = {"noise": 0.01, "process_noise": 0.003, "session_noise": 0.02}
    for cols in range(1, 21):
        for stack in (OLD, NEW):
            taken = [simulated(50.0, (cols, stack.triton, n), **noise) for n in range(measurements)]
            recorder.crowned(problem(cols), stack, config(2), *taken)
    rows = report(path).rows
    slower = [row for row in rows if row.verdict is Verdict.REGRESSION]
    assert bool(slower) is fooled
    assert all("seen in one measurement" in row.notes[-1] for row in slower)
    assert (rows[0].threshold > 0.05) is not fooled
