from __future__ import annotations

import json

import pytest

from tuner.querying import QueryResult


def test_it_hands_its_words_to_the_api(api, cli):
    ran = cli(
        "query", "winners", "--operator", "softmax", "--shape", "cols=1024..8192", "--shape", "rows=4096", "--dtype",
        "bf16", "--device", "H200", "--triton", "3.6", "--since", "2026-05-01", "--sort", "-time_us,cols", "--db",
        "x.db",
    )  # fmt: skip
    assert ran.code == 0
    name, words, kwargs = api.calls[0]
    assert (name, words) == ("query", ("winners",))
    assert kwargs == {
        "operator": "softmax", "shape": "cols=1024..8192,rows=4096", "dtype": "bf16", "device": "H200",
        "triton": "3.6", "torch": "", "driver": "", "stack": "", "since": "2026-05-01", "until": None, "outcomes": (),
        "template": None, "estimated": False, "sort": ("-time_us", "cols"), "group_by": (), "limit": 50, "db": "x.db",
    }  # fmt: skip


def test_the_table_has_times_and_dates_for_people(api, cli):
    ran = cli("query")
    assert "12.3 us" in ran.out and "2026-05-04 12:30" in ran.out and "NVIDIA H200" in ran.out
    assert ran.err == ""


def test_more_rows_than_are_shown_are_said(api, cli):
    found = api.answers["query"]
    api.answers["query"] = QueryResult(found.columns, found.rows, more=True)
    assert "1 row; there are more: --limit 10" in cli("query").err


def test_nothing_found_is_said_and_is_no_error(api, cli):
    api.answers["query"] = QueryResult(api.answers["query"].columns, ())
    ran = cli("query")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "nothing stored is like that (estimates: add --estimated)\n"


def test_estimates_are_called_so_in_rows_and_groups(api, cli):
    found = api.answers["query"]
    cells = {"basis": "estimated", "outcome": "timed"}
    rows = tuple(tuple(cells.get(c, v) for c, v in zip(found.columns, row, strict=True)) for row in found.rows)
    api.answers["query"] = QueryResult(found.columns, rows)
    out = cli("query", "--estimated").out
    assert "12.3 us (estimated)" in out and "timed" not in out.split()
    api.answers["query"] = QueryResult(("outcome", "count", "fastest_us", "slowest_us"), (("timed", 3, 1.0, 2.0),))
    words = cli("query", "--estimated", "--group-by", "outcome").out
    assert "1.00 us (estimated)" in words and "2.00 us (estimated)" in words and "timed" not in words.split()
    assert "timed" in cli("query", "--group-by", "outcome").out.split()


def test_groups_are_shown_with_their_times(api, cli):
    api.answers["query"] = QueryResult(("outcome", "count", "fastest_us", "slowest_us"), (("wrong", 3, None, None),))
    out = cli("query", "--group-by", "outcome", "--outcome", "all").out
    assert "wrong" in out and "fastest_us" in out


def test_json_is_one_document(api, cli):
    data = json.loads(cli("query", "--json").out)
    assert data["columns"] == list(api.answers["query"].columns)
    assert data["rows"][0]["time_us"] == 12.345 and data["more"] is False
    assert api.calls[0][2]["limit"] is None  # everything


def test_csv_goes_to_stdout_or_to_a_file(api, cli, tmp_path):
    out = cli("query", "--format", "csv").out
    assert out.splitlines()[0].startswith("trial,operator,problem,")
    ran = cli("query", "-o", str(tmp_path / "x.csv"))
    assert (ran.code, ran.out) == (0, "") and "wrote 1 row to" in ran.err
    assert (tmp_path / "x.csv").read_text() == out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "xml"), "--format must be one of table, csv, json, parquet"),
        (("--format", "parquet"), "Parquet goes to a file; name it with --output"),
        (("-o", "x.txt"), "the name must end in .csv, .json, .parquet"),
        (("-o", "/no/such/folder/x.csv"), "cannot write /no/such/folder/x.csv: No such file"),
        (("--json", "--format", "csv"), "exclude each other"),
        (("--limit", "0"), "Invalid value for '--limit'"),
    ],
)
def test_bad_input_is_one_line(api, cli, words, said):
    ran = cli("query", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ") and said in ran.err and ran.err.count("\n") == 1
