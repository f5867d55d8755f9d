"""Leave-one-out, on groups whose times are made up and whose losses can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exports.stored_winners import softmax, store_winner
from tuner.exports.entry import Entry
from tuner.exports.losses import fit_nearest, leave_one_out
from tuner.exports.selecting import Wanted, select
from tuner.store.store import Store

WARPS = (1, 2, 4, 8)


def entries(path: Path, times: dict[tuple[int, int], dict[int, float]]) -> tuple[Entry, ...]:
    """Winners by (rows, cols), with the time by number of warps."""
    for (rows, cols), by_warps in times.items():
        texts = {
            f"template=whole_row,USE_EXP2=true,RECOMPUTE_EXP=false,num_warps={w}": us for w, us in by_warps.items()
        }
        store_winner(path, softmax(rows, cols), *texts, us=texts)
    with Store.open(str(path)) as store:
        return select(store, Wanted()).entries


def test_the_loss_is_that_of_the_neighbours_config_at_the_shape(tmp_path):
    found = entries(
        tmp_path / "tuner.db",
        {
            (8, 1024): {1: 10.0, 2: 11.0},
            (8, 2048): {2: 20.0, 1: 23.0},
            (8, 4096): {2: 40.0, 1: 44.0},
        },
    )
    rule = fit_nearest("softmax", ("rows", "cols"), found)
    # 1024 takes 2048's two warps (10 %), 2048 takes 1024's one (15 %), 4096 takes 2048's two (none).
    assert rule.loss.mean == pytest.approx((0.10 + 0.15 + 0.0) / 3)
    assert (rule.loss.median, rule.loss.worst) == (pytest.approx(0.10), pytest.approx(0.15))
    assert rule.loss.text == (
        "softmax, nearest tuned shape: expected loss 8.3% (median 10.0%, worst 15.0%), 3 of 3 shapes left out in turn"
    )


def test_the_weights_are_fitted_where_one_axis_decides(tmp_path):
    # The best number of warps follows from the columns alone, and rows lie nearer to one another than columns do.
    times = {}
    for rows in (64, 128, 256):
        for cols, best in ((1024, 1), (4096, 8)):
            times[rows, cols] = {w: 10.0 if w == best else 15.0 for w in ((1, 8) if cols > 1024 else (1, 2))}
    for rows, cols in ((64, 2048), (4096, 2048)):
        times[rows, cols] = {w: 10.0 if w == 1 else 12.0 for w in (1, 2)}
    found = entries(tmp_path / "tuner.db", times)
    fitted = fit_nearest("softmax", ("rows", "cols"), found)
    assert fitted.loss.unmeasured == 0 and fitted.weights["cols"] >= fitted.weights["rows"]
    assert "* |log2 cols|" in fitted.text


def test_what_has_no_stored_time_is_counted_and_not_guessed(tmp_path):
    found = entries(
        tmp_path / "tuner.db",
        {(8, 1024): {1: 10.0}, (8, 2048): {2: 20.0}, (8, 4096): {4: 40.0}},
    )
    loss = fit_nearest("softmax", ("rows", "cols"), found).loss
    assert (loss.shapes, loss.measured, loss.unmeasured, loss.mean) == (3, 0, 3, None)
    assert loss.text.endswith("expected loss unknown, 3 shapes left out in turn; 3 without a stored time")


def test_a_rule_that_may_not_be_used_gives_no_answer(tmp_path):
    # One warp holds at most 4096 columns of whole_row, so 1024's config has no place at 65536 and the other way round.
    found = entries(
        tmp_path / "tuner.db",
        {(8, 512): {1: 10.0}, (8, 1024): {1: 10.0}, (8, 65536): {32: 90.0, 16: 95.0}},
    )
    loss = fit_nearest("softmax", ("rows", "cols"), found).loss
    assert (loss.shapes, loss.measured, loss.unanswered) == (3, 2, 1)
    assert loss.text.endswith("1 without an answer")


def test_fewer_than_three_shapes_say_nothing(tmp_path):
    found = entries(tmp_path / "tuner.db", {(8, 1024): {1: 10.0}, (8, 2048): {2: 20.0}})
    rule = fit_nearest("softmax", ("rows", "cols"), found)
    assert rule.weights == {"rows": 1.0, "cols": 1.0}
    assert rule.loss.text == (
        "softmax, nearest tuned shape: expected loss unknown (fewer than 3 tuned shapes of a kind)"
    )


def test_any_rule_can_be_judged(tmp_path):
    found = entries(
        tmp_path / "tuner.db",
        {(8, c): {1: 10.0, 2: 12.0} for c in (512, 1024, 2048)},
    )
    assert leave_one_out("the last", found, lambda held_out, others: others[-1]).mean == pytest.approx(0.0)
    assert leave_one_out("none", found, lambda held_out, others: None).unanswered == 3
