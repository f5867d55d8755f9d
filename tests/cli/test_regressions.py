from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tuner.errors import UsageError
from tuner.regression.report import Verdict


def test_it_lists_what_changed_the_worst_first_with_the_reasons(api, cli):
    ran = cli("regressions", "--before", "triton=3.6", "--after", "triton=3.7", "--device", "H200")
    assert ran.code == 0
    assert api.calls[0] == (
        "regressions",
        ("triton=3.6", "triton=3.7"),
        {"operator": None, "device": "H200", "estimated": False, "db": None},
    )
    assert ran.out.splitlines()[0] == "before  Triton 3.6.0"
    assert "+6.0 %" in ran.out and "+5.5..+6.6 %" in ran.out
    assert ran.out.index("wrong:") < ran.out.index("regression:")
    assert "its plain config moved by +1.0 %, so it by +5.0 % beside that" in ran.out
    assert "3 winners: 1 wrong, 1 regression, 1 same (1 not listed; --all lists them)" in ran.out
    assert "repeated baselines agree within 0.9% (40 pairs of repeated measurements)" in ran.err
    assert "a note" in ran.err


def test_with_all_the_unchanged_are_listed_too(api, cli):
    assert "not listed" not in cli("regressions", "--all").out


@pytest.mark.parametrize(("limit", "code"), [("3%", 3), ("0.03", 3), ("50%", 3)])
def test_it_is_a_gate_that_what_is_wrong_does_not_pass_whatever_the_limit(api, cli, limit, code):
    ran = cli("regressions", "--fail-over", limit)
    assert ran.code == code
    assert f"(--fail-over {limit})" in ran.err


def test_a_regression_below_the_limit_passes(api, cli):
    whole = api.answers["regressions"]
    api.answers["regressions"] = replace(whole, rows=whole.rows[1:])
    assert cli("regressions", "--fail-over", "10%").code == 0
    assert cli("regressions", "--fail-over", "5%").code == 3


def test_a_gate_that_compared_nothing_does_not_pass(api, cli):
    whole = api.answers["regressions"]
    missing = replace(whole.rows[0], verdict=Verdict.MISSING)
    api.answers["regressions"] = replace(whole, rows=(missing,))
    ran = cli("regressions", "--fail-over", "3%")
    assert ran.code == 1
    assert "no winner was measured at both points; run `tuner remeasure`\n" in ran.err
    again = cli("regressions", "--estimated")
    assert "no winner was estimated at both points; run `tuner remeasure --estimated`\n" in again.err


def test_json_is_one_document(api, cli):
    ran = cli("regressions", "--json", "--fail-over", "3%")
    assert ran.code == 3
    data = json.loads(ran.out)
    assert (data["estimated"], data["compared"], data["worse"], data["fail_over"]) == (False, 3, 2, 0.03)
    assert data["counts"] == {"wrong": 1, "regression": 1, "same": 1}
    assert data["rows"][1]["effect"]["low"] == 0.055
    assert data["rows"][1]["beside_plain"] == pytest.approx(0.0495, abs=1e-4)
    assert data["floors"]["NVIDIA H200"]["half_width"] == 0.009


def test_markdown_is_a_table_whose_cells_cannot_break_it(api, cli):
    ran = cli("regressions", "--markdown")
    lines = ran.out.splitlines()
    assert lines[0].startswith("**3 winners: 1 wrong, 1 regression, 1 same")
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 4 and all(line.count("|") == table[0].count("|") for line in table)
    assert any(line.startswith("- wrong, softmax") and "7 \\| 8" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fail-over", "much"), "--fail-over: cannot read 'much'; write a share below 1"),
        (("--fail-over", "-1%"), "cannot read '-1%'"),
        (("--json", "--markdown"), "exclude each other"),
    ],
)
def test_bad_input_is_one_line(api, cli, words, said):
    ran = cli("regressions", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ") and said in ran.err and ran.err.count("\n") == 1


def test_what_the_api_refuses_is_one_line(api, cli):
    api.answers["regressions"] = UsageError("there is nothing to compare")
    ran = cli("regressions")
    assert (ran.code, ran.err) == (2, "error: there is nothing to compare\n")
