"""``tuner.query``: filters, order, groups, and what is left out unless it is asked for."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tuner
from tests.stored_history import GUESSED, NEW, OLD, PLAIN, Recorder, config, dated, problem, simulated
from tuner.errors import MissingError, UsageError
from tuner.querying import read_ranges
from tuner.store.store import Store
from tuner.table_files import csv_text, format_of, json_text, write_table
from tuner.trial import Measurement, Outcome


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four problems on two stacks, with a wrong config, a crash and an estimate."""
    path = tmp_path_factory.mktemp("query") / "tuner.db"
    with Store.open(str(path)) as store:
        recorder = Recorder(store)
        for cols in (512, 1024, 4096, 16384):
            us = cols / 100.0
            recorder.crowned(problem(cols), OLD, config(2), simulated(us, cols), plain=simulated(2 * us, f"p{cols}"))
        recorder.crowned(problem(1024), NEW, config(3), simulated(9.0, 5))
        recorder.failed(problem(1024), NEW, config(4), Outcome.WRONG, "7 times the bound")
        recorder.failed(problem(1024), NEW, config(5), Outcome.CRASHED, "an illegal access")
        guess = Measurement("estimate", "estimate-1", (4.0,), 4.0, 4.0, 4.0)
        recorder.crowned(problem(1024), GUESSED, config(2), guess)
    dated(path, "tuner_trial", [1, 2], datetime(2026, 4, 1, 12, tzinfo=UTC))
    return str(path)


def column(found: tuner.QueryResult, name: str) -> list[object]:
    return [record[name] for record in found.as_records()]


def test_the_default_is_what_is_right_and_measured_the_newest_first(db):
    found = tuner.query(db=db)
    assert set(column(found, "outcome")) == {"timed"} and set(column(found, "basis")) == {"measured"}
    assert column(found, "trial") == sorted(column(found, "trial"), reverse=True)
    assert len(found.rows) == 9
    first = found.as_records()[-1]
    assert (first["problem"], first["device"]) == (problem(512).label, "NVIDIA H200")
    assert (first["triton"], first["torch"], first["driver"]) == ("3.6.0", "2.11.0", "580.159")
    assert first["shape"] == {"rows": 4096, "cols": 512, "row_stride": 512}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"shape": "cols=1024..8192"}, {1024, 4096}),
        ({"shape": "cols=..1024"}, {512, 1024}),
        ({"shape": "cols=4096..,rows=4096"}, {4096, 16384}),
        ({"shape": "cols=1_024"}, {1024}),
        ({"triton": "3.7"}, {1024}),
        ({"stack": OLD.key[:6], "shape": "cols=512"}, {512}),
        ({"until": "2026-04-01"}, {512}),
        ({"since": "2026-04-01T13:00"}, {1024, 4096, 16384}),
        ({"device": "h200"}, {512, 1024, 4096, 16384}),
        ({"device": "B200"}, set()),
        ({"template": "persistent"}, set()),
        ({"dtype": "fp16"}, set()),
        ({"operator": "attention_fwd"}, set()),
        ({"shape": "head_dim=64"}, set()),
        ({"operator": "softmax", "dtype": "bf16", "shape": "cols=512"}, {512}),
    ],
)
def test_filters(db, how, expected):
    assert {shape["cols"] for shape in column(tuner.query(db=db, **how), "shape")} == expected  # type: ignore[index]


def test_an_own_operator_is_called_by_its_bare_name(tmp_path):
    path = str(tmp_path / "own.db")
    own = replace(problem(512), operator="rmsnorm@0123456789ab")
    with Store.open(path) as store:
        recorder = Recorder(store)
        recorder.crowned(own, OLD, config(2), simulated(5.0, 1), plain=simulated(9.0, 2))
        recorder.crowned(own, NEW, config(2), simulated(5.0, 3), plain=simulated(9.0, 4))
    assert len(tuner.query("winners", operator="rmsnorm", db=path).rows) == 1
    assert len(tuner.query("winners", operator=own.operator, db=path).rows) == 1
    assert len(tuner.regressions(operator="rmsnorm", db=path).rows) == 1
    with pytest.raises(UsageError, match=r"no operator 'rmsnrm' here; did you mean rmsnorm\?"):
        tuner.query(operator="rmsnrm", db=path)


def test_nothing_stored_at_all_is_an_empty_answer(tmp_path):
    path = str(tmp_path / "empty.db")
    Store.open(path).close()
    found = tuner.query(
        operator="softmax", dtype="bf16", shape="cols=4096", sort=("cols",), group_by=("cols",), db=path
    )
    assert found.rows == ()


def test_outcomes_are_given_when_they_are_asked_for(db):
    found = tuner.query(db=db, outcomes=("wrong", "crashed"))
    assert sorted(zip(column(found, "outcome"), column(found, "reason"), strict=True)) == [
        ("crashed", "an illegal access"), ("wrong", "7 times the bound"),
    ]  # fmt: skip
    assert len(tuner.query(db=db, outcomes=("all",)).rows) == 11


def test_estimates_are_given_alone(db):
    found = tuner.query(db=db, estimated=True)
    assert column(found, "basis") == ["estimated"] and column(found, "time_us") == [4.0]


def test_measurements_and_winners(db):
    measured = tuner.query("measurements", db=db, shape="cols=512", sort=("time_us",))
    assert column(measured, "stage") == ["final", "final"] and column(measured, "samples") == [30, 30]
    assert column(measured, "config") == [config(2).label, PLAIN.label]
    winners = tuner.query("winners", db=db, sort=("cols",))
    assert [shape["cols"] for shape in column(winners, "shape")] == [512, 1024, 4096, 16384]  # type: ignore[index]
    assert column(winners, "triton") == ["3.6.0", "3.7.1", "3.6.0", "3.6.0"]  # the newest of each problem


def test_a_winner_that_was_found_wrong_is_none(tmp_path):
    path = tmp_path / "tuner.db"
    with Store.open(str(path)) as store:
        recorder = Recorder(store)
        recorder.crowned(problem(512), OLD, config(2), simulated(5.0, 1))
        recorder.crowned(problem(512), OLD, config(3), simulated(4.0, 2))
        recorder.failed(problem(512), OLD, config(3), Outcome.WRONG, "a race")
    assert column(tuner.query("winners", db=str(path)), "config") == [config(2).label]


def test_order_and_limit(db):
    fastest = tuner.query(db=db, sort=("time_us",), limit=2)
    assert fastest.more and len(fastest.rows) == 2
    times = column(fastest, "time_us")
    assert times == sorted(times) and times[0] == pytest.approx(5.12, rel=0.02)  # type: ignore[type-var]
    slowest = tuner.query(db=db, sort=("-cols", "time_us"), limit=100)
    assert not slowest.more
    assert [shape["cols"] for shape in column(slowest, "shape")][:2] == [16384, 16384]  # type: ignore[index]


def test_groups_count_rows_with_the_fastest_and_the_slowest(db):
    found = tuner.query(db=db, outcomes=("all",), group_by=("triton", "outcome"))
    assert found.columns == ("triton", "outcome", "count", "fastest_us", "slowest_us")
    counts = {(row[0], row[1]): row[2:] for row in found.rows}
    assert counts["3.7.1", "wrong"] == (1, None, None)
    assert counts["3.6.0", "timed"][0] == 8
    by_cols = tuner.query(db=db, group_by=("cols",), sort=("-fastest_us",))
    assert column(by_cols, "cols") == [16384, 4096, 1024, 512]


@pytest.mark.parametrize(
    ("what", "how", "said"),
    [
        ("trails", {}, "there are no 'trails'; did you mean trials?"),
        ("trials", {"operator": "softmx"}, "no operator 'softmx' here; did you mean softmax?"),
        ("trials", {"dtype": "int8"}, "no dtype 'int8' here; there is bf16, fp16, fp32"),
        ("trials", {"shape": "col=9"}, "no shape parameter 'col' here; did you mean cols?"),
        ("trials", {"shape": "cols"}, "cannot read 'cols'; write cols=4096 or cols=1024..8192"),
        ("trials", {"shape": "cols=9..3"}, "admits nothing"),
        ("trials", {"outcomes": ("wrnog",)}, "no outcome 'wrnog' here; did you mean wrong?"),
        ("trials", {"sort": ("tim_us",)}, "no column 'tim_us' here; did you mean time_us?"),
        ("trials", {"sort": ("config",), "group_by": ("outcome",)}, "no column 'config' here"),
        ("trials", {"group_by": ("colz",)}, "no column 'colz' here; did you mean cols?"),
        ("trials", {"limit": 0}, "the limit must be from 1 to"),
        ("trials", {"since": "yesterday"}, "since: cannot read 'yesterday'"),
        ("winners", {"outcomes": ("wrong",)}, "winners are right and timed"),
    ],
)
def test_what_cannot_be_asked_is_said(db, what, how, said):
    with pytest.raises(UsageError, match=said.replace(".", r"\.")):
        tuner.query(what, db=db, **how)


def test_a_range_without_ends_is_none():
    assert read_ranges("", ["cols"]) == ()
    with pytest.raises(UsageError, match="cannot read"):
        read_ranges("cols=", ["cols"])


# files


def test_csv_and_json_hold_every_column(db):
    found = tuner.query(db=db, shape="cols=512")
    (first, *_) = list(csv.DictReader(io.StringIO(csv_text(found.columns, found.rows))))
    assert tuple(first) == found.columns
    assert first["shape"] == "rows=4096 cols=512 row_stride=512"
    assert float(first["time_us"]) == found.as_records()[0]["time_us"]
    records = json.loads(json_text(found.columns, found.rows))
    assert records[0]["shape"] == {"rows": 4096, "cols": 512, "row_stride": 512}
    assert datetime.fromisoformat(records[0]["created_at"]).tzinfo is not None


def test_no_text_of_a_csv_is_a_formula_and_numbers_stay_numbers():
    row = ("=cmd|'/C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "\uff1d1", "a=b", -1.5, None)
    written = list(csv.reader(io.StringIO(csv_text(("=a", *"bcdefghi"), [row]))))
    assert written == [
        ["'=a", *"bcdefghi"],
        ["'=cmd|'/C calc'!A0", "'+1", "'-1", "'@SUM(1)", "'\t=1", "'\uff1d1", "a=b", "-1.5", ""],
    ]


@pytest.mark.parametrize("limit", [-1, 2**31, 10**30])
def test_a_limit_is_of_rows_that_a_database_may_have(db, limit):
    with pytest.raises(UsageError, match=rf"the limit must be from 1 to 2147483647, but got {limit}"):
        tuner.query(db=db, limit=limit)


def test_a_file_that_is_no_table_of_a_query_is_not_replaced(db, tmp_path):
    found, grouped = tuner.query(db=db), tuner.query(db=db, group_by=("template", "cols"))
    tables = {form: tmp_path / f"x.{form}" for form in ("csv", "json")}
    for form, path in tables.items():
        for table in (found, grouped, grouped, found):
            write_table(path, form, table.columns, table.rows)
        write_table(path, form, found.columns, [])
        write_table(path, form, found.columns, found.rows[:1])
    shutil.copy(tables["json"], tables["csv"])  # a table of the other kind is ours too
    write_table(tables["csv"], "csv", found.columns, found.rows)
    theirs = ("", "a,b\n1,2\n", "created_at,mine\n", '[{"a": 1}]', "[1]", "[", "created_at of all\n", "\xff")
    for text in theirs:
        path = tmp_path / "theirs.csv"
        path.write_text(text, encoding="latin-1")
        with pytest.raises(UsageError, match=r"theirs\.csv is there and no table of `tuner query`, so it is not repl"):
            write_table(path, "csv", found.columns, found.rows)
        assert path.read_text(encoding="latin-1") == text


def test_parquet_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingError, match=r"pyarrow, which is not installed: pip install 'triton-variant-tuner\[parq"):
        write_table(tmp_path / "x.parquet", "parquet", ("a",), [(1,)])
    assert not (tmp_path / "x.parquet").exists()


def test_parquet_comes_back_as_it_went_in(db, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    found = tuner.query(db=db)
    for _ in range(2):  # the second time over the first
        write_table(tmp_path / "x.parquet", "parquet", found.columns, found.rows)
    table = parquet.read_table(tmp_path / "x.parquet")
    assert tuple(table.column_names) == found.columns
    assert table.column("time_us").to_pylist() == column(found, "time_us")
    assert table.column("created_at").to_pylist() == column(found, "created_at")


def test_the_name_of_a_file_says_its_format():
    assert [format_of(Path(f"x.{suffix}")) for suffix in ("csv", "JSON", "parquet")] == ["csv", "json", "parquet"]
    with pytest.raises(UsageError, match=r"x\.txt: the name must end in \.csv"):
        format_of(Path("x.txt"))
