"""``tuner remeasure`` and ``tuner reproduce``."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tuner.errors import MissingError, UsageError
from tuner.events import Notice
from tuner.regression.report import Verdict
from tuner.remeasurement import Advice


def telling(results):
    """An API that gives its results one by one, as the real one does."""

    def remeasure(*words, on_result=None, on_event=None, **kwargs):
        on_event(Notice("a process of the final re-measurement ended; its rounds are left out"))
        for result in results:
            if on_result is not None:
                on_result(result)
        return results

    return remeasure


def test_each_winner_is_printed_with_what_to_do_and_by_how_much(api, cli):
    api.answers["remeasure"] = telling(api.answers["remeasure"])
    ran = cli("remeasure", "--operator", "softmax", "--shape", "cols=512..", "--runners-up", "2")
    assert ran.code == 0
    kwargs = api.calls[0][2]
    assert (kwargs["operator"], kwargs["shape"], kwargs["runners_up"]) == ("softmax", "cols=512..", 2)
    assert "switch to template=online,BLOCK_COLS=512,num_warps=4: softmax" in ran.out
    assert "which the stored winner is slower than by 5.0 % (4.0..6.0 %)" in ran.out
    assert "stored: 12.3 us on Triton 3.6.0; now: Triton 3.7.0" in ran.out
    assert "(its source changed)" in ran.out and "wrong: 7 times the bound" in ran.out
    assert ran.out.splitlines()[-1] == "1 winners: 1 switch"
    assert "its rounds are left out" in ran.err


def test_something_to_tune_again_is_an_honest_no(api, cli):
    (result,) = api.answers["remeasure"]
    again = replace(result, advice=Advice.TUNE_AGAIN, to=None, gain=None, reason="none works")
    api.answers["remeasure"] = telling([again])
    ran = cli("remeasure")
    assert ran.code == 1 and "tune again: softmax" in ran.out


def test_json_is_one_document_and_says_whether_it_is_estimated(api, cli):
    (data,) = json.loads(cli("remeasure", "--json").out)
    assert (data["advice"], data["estimated"], data["gain"]) == ("switch", False, 0.05)
    assert data["entries"][0]["role"] == "winner" and data["entries"][0]["ratio"]["low"] == 1.04
    assert data["to"]["label"] == "template=online,BLOCK_COLS=512,num_warps=4"


def test_estimates_say_that_they_are(api, cli):
    (result,) = api.answers["remeasure"]
    api.answers["remeasure"] = telling([replace(result, estimated=True, advice=Advice.KEEP, gain=None)])
    assert "12.9 us (estimated)" in cli("remeasure", "--estimated").out


def test_without_a_gpu_it_is_one_line(api, cli):
    api.answers["remeasure"] = MissingError("no GPU was found here")
    ran = cli("remeasure")
    assert (ran.code, ran.out, ran.err) == (2, "", "error: no GPU was found here\n")


def test_a_measurement_that_holds(api, cli):
    ran = cli("reproduce", "17", "--trust-source", "--seed", "3")
    assert ran.code == 0
    settings = {"operator": None, "space": None, "trust_source": True, "seed": 3, "db": None}
    assert api.calls[0] == ("reproduce", (17,), settings)
    assert ran.out.splitlines()[-1] == "holds"
    assert "stored; this installation renders the same" in ran.out and "+0.1 % -0.3..+0.5 %" in ran.out


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict.REGRESSION, "does not hold: slower now"),
        (Verdict.IMPROVEMENT, "does not hold: faster now"),
        (Verdict.WRONG, "does not hold: wrong: a race"),
        (Verdict.AMBIGUOUS, "not decided: a race"),
    ],
)
def test_one_that_does_not_hold_exits_with_1(api, cli, verdict, said):
    found = api.answers["reproduce"]
    api.answers["reproduce"] = replace(found, row=replace(found.row, verdict=verdict, reason="a race"))
    ran = cli("reproduce", "17")
    assert ran.code == 1 and ran.out.splitlines()[-1].startswith(said)


def test_the_json_of_a_reproduction(api, cli):
    data = json.loads(cli("reproduce", "17", "--json").out)
    assert (data["holds"], data["verdict"], data["measurement"], data["estimated"]) == (True, "same", 17, False)
    assert data["checks"][0]["passed"] is True


@pytest.mark.parametrize(
    ("words", "said"), [(("reproduce", "x"), "Invalid value for 'MEASUREMENT'"), (("reproduce",), "Missing argument")]
)
def test_bad_input_is_one_line(api, cli, words, said):
    ran = cli(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ") and said in ran.err and ran.err.count("\n") == 1


def test_what_is_refused_is_one_line(api, cli):
    api.answers["reproduce"] = UsageError("the stored source abc is not what this installation renders")
    ran = cli("reproduce", "17")
    assert (ran.code, ran.err) == (2, "error: the stored source abc is not what this installation renders\n")
