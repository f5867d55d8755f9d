from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from tuner.cli.output import plain
from tuner.doctor import Check, DoctorReport, Status
from tuner.errors import MissingError, NoWinnerError, StoreError, StudyFailedError
from tuner.events import Notice, Progress
from tuner.operators import get
from tuner.problem import Problem
from tuner.results import TimeResult, TuneResult
from tuner.standalone import FIRST_LINE
from tuner.trial import Outcome

SOFTMAX = ("softmax", "--shape", "rows=64,cols=1000", "--dtype", "bf16")
SIZES = "batch=1,heads=4,kv_heads=2,q_len=128,kv_len=256,head_dim=64"
ATTENTION = ("attention_fwd", "--shape", SIZES, "--dtype", "fp16")


# problems


def test_a_problem_is_read_from_shape_dtype_and_options(api, cli):
    assert cli("best", *ATTENTION, "--causal", "--scale", "0.5").code == 0
    problem = api.calls[0][1][0]
    assert isinstance(problem, Problem)
    assert problem.sizes == {"batch": 1, "heads": 4, "kv_heads": 2, "q_len": 128, "kv_len": 256, "head_dim": 64}
    assert problem.dtype == "fp16"
    assert problem.settings["causal"] is True and problem.settings["scale"] == 0.5


def test_any_option_can_be_given_by_name(api, cli):
    cli("best", *ATTENTION, "--option", "causal=true", "--option", "scale=0.25")
    cli("best", *ATTENTION, "--no-causal")
    assert api.calls[0][1][0].settings["causal"] is True and api.calls[0][1][0].settings["scale"] == 0.25
    assert api.calls[1][1][0].settings["causal"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("best", "softmaxx", *SOFTMAX[1:]), "there is no operator 'softmaxx'; did you mean softmax?"),
        (("best", "softmax", "--shape", "rows=64,cols=1000"), "--dtype is missing; softmax takes bf16, fp16, fp32"),
        (("best", "softmax", "--shape", "rows=64,cols=1000", "--dtype", "int8"), "dtype must be one of"),
        (("best", "softmax", "--dtype", "bf16"), "softmax needs rows, cols"),
        (("best", "softmax", "--shape", "rows=64,col=9", "--dtype", "bf16"), "did you mean cols?"),
        (("best", "softmax", "--shape", "rows=64,cols=x", "--dtype", "bf16"), "whole number, but got 'x'"),
        (("best", "softmax", "--shape", "rows=64,cols=0", "--dtype", "bf16"), "cols must be between 1"),
        (("best", "softmax", "--shape", "rows", "--dtype", "bf16"), "--shape: cannot read 'rows'; write NAME=VALUE"),
        (("best", "softmax", "--shape", "rows=1,rows=2", "--dtype", "bf16"), "--shape: rows is given twice"),
        (("best", *SOFTMAX, "--causal"), "softmax has no option 'causal'"),
        (("best", *ATTENTION, "--causal", "--option", "causal=false"), "causal is given twice"),
        (("tune",), "what is to be tuned? Give an operator with --shape and --dtype, or --problems FILE"),
        (("tune", *SOFTMAX, "--trials", "0"), "--trials must be between 1 and 1000000000, but got 0"),
        (("tune", *SOFTMAX, "--trials", "-3"), "--trials must be between 1 and 1000000000, but got -3"),
        (("tune", *SOFTMAX, "--time", "0"), "--time must be more than zero and finite, but got '0'"),
        (("tune", *SOFTMAX, "--time", "-5"), "--time: cannot read '-5'"),
        (("tune", *SOFTMAX, "--time", "nan"), "--time: cannot read 'nan'"),
        (("tune", *SOFTMAX, "--time", "inf"), "--time: cannot read 'inf'"),
        (("tune", *SOFTMAX, "--time", "1e999"), "--time must be more than zero and finite"),
        (("tune", *SOFTMAX, "--time", "5 parsecs"), "--time: cannot read '5 parsecs'; write seconds, or such as 90s"),
        (("tune", *SOFTMAX, "--sampler", "tpx"), "unknown sampler 'tpx' (did you mean tpe?)"),
        (("tune", *SOFTMAX, "--workers", "0"), "Invalid value for '--workers'"),
        (("tune", *SOFTMAX, "--problems", "p.yaml"), "--problems says what to tune"),
        (("tune", "--problems", "no-such-file.yaml"), "no-such-file.yaml: no such file"),
        (("render", *SOFTMAX, "--best", "--config", "num_warps=4"), "--best and --config exclude each other"),
        (("render", *SOFTMAX, "-o", "/no/such/folder/k.py"), "cannot write /no/such/folder/k.py: No such file"),
        (("bset", "softmax"), "No such command"),
        (("tune", *SOFTMAX, "--trails", "3"), "No such option"),
        (("best",), "Missing argument"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_exit_code_2(api, cli, words, said):
    ran = cli(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("error: ") and said in ran.err
    assert ran.err.count("\n") == 1


# tune


def test_tune_hands_its_arguments_to_the_api(api, cli, tmp_path):
    ran = cli(
        "tune",
        *SOFTMAX,
        "--trials",
        "20",
        "--time",
        "1m30s",
        "--sampler",
        "random",
        "--no-early-stop",
        "--seed",
        "7",
        "--space",
        str(tmp_path / "s.yaml"),
        "--target",
        "a100",
        "--no-gpu",
        "--workers",
        "3",
        "--db",
        "sqlite:///x.db",
    )
    assert ran.code == 0
    kwargs = api.calls[0][2]
    assert kwargs.pop("on_event") is not None
    assert kwargs == {
        "space": tmp_path / "s.yaml",
        "trials": 20,
        "time_s": 90.0,
        "sampler": "random",
        "seed": 7,
        "early_stop": False,
        "target": "a100",
        "gpu": False,
        "workers": 3,
        "db": "sqlite:///x.db",
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("1h", 3600), ("1h30m", 5400), ("0.5", 0.5), ("1.5m", 90)],
)
def test_time_is_read_in_the_units_that_people_write(api, cli, text, seconds):
    cli("tune", *SOFTMAX, "--time", text)
    assert api.calls[0][2]["time_s"] == seconds


def test_tune_prints_the_winner_its_interval_and_what_it_gains(api, cli):
    ran = cli("tune", *SOFTMAX)
    for said in (
        "template=online,BLOCK_COLS=1024,num_warps=8",
        "12.3 us [12.1 us, 12.6 us]",
        "3.1 % faster than the next",
        "1.32x over the plain config",
        "20: 17 timed, 2 out_of_resources, 1 wrong; 2 from other studies",
        "1m05s, GPU busy 60%",
    ):
        assert said in ran.out
    assert "estimated" not in ran.out


def test_tune_says_what_chance_of_something_better_is_left_where_a_model_can_tell(api, cli, values):
    assert "left to find" not in cli("tune", *SOFTMAX).out
    api.answers["tune"] = TuneResult(values.problem, values.summary(), values.winner(), chance_of_better=0.0321)
    assert "a config that is 1 % faster or more: a chance of 3.2%, says the model" in cli("tune", *SOFTMAX).out


def test_progress_goes_to_stderr_as_plain_lines_where_it_is_no_terminal(api, cli, values):
    def tune(problem, *, on_event, **kwargs):
        on_event(Notice("[bold]the worker was started again[/bold]"))
        on_event(Progress(3.0, 4, {Outcome.TIMED: 3, Outcome.WRONG: 1}, "template=online", 20.0, max_trials=8))
        return TuneResult(values.problem, values.summary(), values.winner())

    api.answers["tune"] = tune
    ran = cli("tune", *SOFTMAX)
    assert "note: [bold]the worker was started again[/bold]\n" in ran.err
    assert "3s search; 4/8 trials (3 timed, 1 wrong); best 20.0 us template=online; 3s left\n" in ran.err
    assert "\x1b" not in ran.err


def test_ctrl_c_prints_the_best_so_far_and_exits_with_130(api, cli):
    def tune(problem, *, on_event, **kwargs):
        on_event(Progress(3.0, 4, {Outcome.TIMED: 4}, "template=online,num_warps=8", 20.0))
        raise KeyboardInterrupt

    api.answers["tune"] = tune
    ran = cli("tune", *SOFTMAX)
    assert ran.code == 130
    assert "best so far 20.0 us template=online,num_warps=8; run the same command to go on" in ran.err
    as_json = cli("tune", *SOFTMAX, "--json")
    assert as_json.code == 130
    assert json.loads(as_json.out)["best"] == {"label": "template=online,num_warps=8", "us": 20.0}


def test_an_interrupted_result_is_printed_and_exits_with_130(api, cli, values):
    api.answers["tune"] = TuneResult(values.problem, values.summary(), None, interrupted=True)
    ran = cli("tune", *SOFTMAX)
    assert ran.code == 130
    assert "best so far  12.3 us template=online,BLOCK_COLS=1024,num_warps=8" in ran.out
    assert json.loads(cli("tune", *SOFTMAX, "--json").out)["interrupted"] is True


def test_a_study_that_no_config_survives_exits_with_1(api, cli):
    api.answers["tune"] = StudyFailedError("no config survived: 20 wrong")
    ran = cli("tune", *SOFTMAX)
    assert (ran.code, ran.err) == (1, "error: no config survived: 20 wrong\n")


def test_many_problems_are_tuned_in_turn_and_one_failure_does_not_stop_the_others(api, cli, values, tmp_path):
    def tune(problem, **kwargs):
        if problem.sizes["cols"] == 200:
            raise StudyFailedError("no config survived")
        return TuneResult(problem, values.summary(), values.winner())

    api.answers["tune"] = tune
    file = tmp_path / "problems.yaml"
    file.write_text(
        "".join(f"- {{operator: softmax, shape: {{rows: 8, cols: {c}}}, dtype: bf16}}\n" for c in (100, 200, 300))
    )
    ran = cli("tune", "--problems", str(file), "--trials", "5", "--json")
    assert ran.code == 1
    answers = json.loads(ran.out)
    assert [a["problem"]["shape"]["cols"] for a in answers] == [100, 200, 300]
    assert answers[1]["error"] == "no config survived" and "winner" in answers[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpus", "0,x"), "--gpus: cannot read '0,x'; write numbers of GPUs such as 0,1"),
        (("--total-time", "5m"), "--total-time is for all of --problems together, in place of --time"),
    ],
)
def test_gpus_and_the_time_of_all_are_read_strictly(cli, words, said):
    ran = cli("tune", *SOFTMAX, *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: {said}\n"


def test_gpus_the_time_of_all_and_what_was_counted_reach_the_session(api, cli, tmp_path, monkeypatch):
    given: list[dict[str, object]] = []

    class Session(contextlib.nullcontext["Session"]):
        def __init__(self, **machine: object) -> None:
            super().__init__(self)
            given.append(machine)

        def tune_many(self, problems, **more):
            given.append(more)
            return [None for _ in problems]

    monkeypatch.setattr("tuner.session.Session", Session)
    file = tmp_path / "problems.yaml"
    file.write_text("- {operator: softmax, shape: {rows: 8, cols: [100, 200]}, dtype: bf16, count: 12}\n")
    ran = cli("tune", "--problems", str(file), "--total-time", "5m", "--gpus", "0,1", "--json")
    assert (ran.code, json.loads(ran.out)) == (130, [])
    assert given[0]["gpus"] == [0, 1]
    assert (given[1]["total_s"], given[1]["time_s"], given[1]["calls"]) == (300.0, None, [12, 12])
    cli("tune", "--problems", str(file), "--total-time", "5m", "--time", "1m")
    assert len(given) == 2


# the other commands


def test_best_says_of_which_device_it_is_and_what_the_simplest_of_a_tie_is(api, cli):
    assert re.search(r"^device +NVIDIA H200$", cli("best", *SOFTMAX, "--estimated").out, re.M)
    said = " ".join(cli("best", "--help").out.split())
    assert "a plain config, else the one of the smallest footprint" in said and "--device must say which" in said


def test_best_with_nothing_stored_exits_with_1_and_says_what_to_run(api, cli):
    api.answers["best"] = None
    ran = cli("best", *ATTENTION, "--causal", "--device", "NVIDIA H200")
    assert (ran.code, ran.out) == (1, "")
    assert "nothing is stored for attention_fwd" in ran.err and "on NVIDIA H200" in ran.err
    assert (
        "run: tuner tune attention_fwd --shape batch=1,heads=4,kv_heads=2,q_len=128,kv_len=256,head_dim=64 "
        "--dtype fp16 --option causal=true" in ran.err
    )
    as_json = cli("best", *SOFTMAX, "--json")
    assert (as_json.code, json.loads(as_json.out)) == (1, None)


def test_best_says_where_only_an_estimated_winner_is_stored(api, cli, values):
    api.answers["best"] = lambda problem, estimated, **more: values.winner(estimated=True) if estimated else None
    ran = cli("best", *SOFTMAX)
    assert (ran.code, ran.out) == (1, "")
    assert "only an estimated winner is stored for softmax" in ran.err and "--estimated" in ran.err


def test_best_passes_the_device_and_leaves_estimates_out_unless_asked(api, cli):
    cli("best", *SOFTMAX)
    cli("best", *SOFTMAX, "--device", "NVIDIA H200", "--estimated", "--db", "sqlite:///a.db")
    assert api.calls[0][2] == {"db": None, "device": None, "estimated": False}
    assert api.calls[1][2] == {"db": "sqlite:///a.db", "device": "NVIDIA H200", "estimated": True}


def test_estimates_say_so_wherever_they_are_printed(api, cli, values):
    api.answers["best"] = values.winner(estimated=True)
    api.answers["studies"] = [values.summary("estimated")]
    api.answers["show"] = values.detail("estimated")
    api.answers["tune"] = TuneResult(values.problem, values.summary("estimated"), values.winner(estimated=True))
    api.answers["time"] = TimeResult(
        values.problem, values.fast, values.device, values.stack("estimated"), values.right, values.measurement
    )
    commands = (("best", *SOFTMAX, "--estimated"), ("studies",), ("show", "1"), ("tune", *SOFTMAX), ("time", *SOFTMAX))
    for words in commands:
        said = cli(*words).out
        times = [line for line in said.splitlines() if "12.3 us" in line]
        assert times and all("estimated" in line for line in times), words
        data = json.loads(cli(*words, "--json").out)
        assert (data[0] if isinstance(data, list) else data)["estimated"] is True, words
    assert "3.1 % faster than the next (estimated)" in cli("best", *SOFTMAX, "--estimated").out


def test_show_prints_outcomes_reasons_ranking_and_verdict(api, cli):
    ran = cli("show", "softmax-1", "--top", "1")
    assert api.calls[0][1:] == (("softmax-1",), {"db": None})
    for said in (
        "20 of 360 valid configs: 17 timed, 2 out_of_resources, 1 wrong; 2 from other studies",
        "shared memory 250000 > 232448",
        "fastest 1 of 2 timed",
        "[12.1 us, 12.6 us]",
        "0.41 of bound",
        "3.1 % faster than the next",
        "1.32x over the plain config",
    ):
        assert said in ran.out
    ranking = ran.out.split("fastest 1 of 2 timed")[1].split("winner")[0]
    assert "num_warps=8" in ranking and "num_warps=4" not in ranking


def test_studies_are_listed_and_an_empty_database_says_what_to_run(api, cli):
    assert "softmax rows=64 cols=1000" in cli("studies").out
    api.answers["studies"] = []
    empty = cli("studies")
    assert (empty.code, empty.out) == (0, "") and "run: tuner tune" in empty.err
    assert json.loads(cli("studies", "--json").out) == []


def test_render_prints_exactly_the_source_or_writes_it(api, cli, tmp_path):
    assert cli("render", *SOFTMAX, "--config", "num_warps=8", "--triton-version", "2.1").out == "import triton\n"
    assert api.calls[0][2] == {
        "space": None,
        "config": "num_warps=8",
        "best": False,
        "triton_version": "2.1",
        "db": None,
        "device": None,
        "estimated": False,
    }
    ran = cli("render", *SOFTMAX, "--best", "--estimated", "-o", str(tmp_path / "k.py"))
    assert (ran.out, ran.err) == ("", f"wrote {tmp_path / 'k.py'}\n") and api.calls[1][2]["estimated"] is True
    assert (tmp_path / "k.py").read_text() == "import triton\n"
    mine = tmp_path / "mine.yaml"
    mine.write_text("problems: []\n")
    refused = cli("render", *SOFTMAX, "-o", str(mine))
    assert refused.code == 2 and "is there and no rendered file, so it is not replaced" in refused.err
    assert mine.read_text() == "problems: []\n"
    mine.write_text(f"{FIRST_LINE}\n# an older one\n")
    assert cli("render", *SOFTMAX, "-o", str(mine)).code == 0 and mine.read_text() == "import triton\n"


def test_render_best_exits_with_1_where_no_winner_is_stored(api, cli):
    api.answers["render"] = NoWinnerError("nothing is stored for softmax; run `tuner tune` first")
    ran = cli("render", *SOFTMAX, "--best")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: nothing is stored for softmax; run `tuner tune` first\n"


def test_check_prints_its_figures_and_exits_with_1_where_the_kernel_is_wrong(api, cli, values):
    right = cli("check", *SOFTMAX, "--seed", "3")
    assert right.code == 0 and "right: the largest error is 0.410 of its bound" in right.out
    assert right.err == "no --config is given, so the plain config of the first template that applies is checked\n"
    assert cli("check", *SOFTMAX, "--config", "num_warps=4").err == ""
    assert api.calls[0][2] == {"space": None, "config": None, "target": None, "seed": 3}
    api.answers["check"] = values.wrong
    wrong = cli("check", *SOFTMAX)
    assert wrong.code == 1
    assert "wrong: spikes at softmax rows=9 cols=99 bf16: error over bound" in wrong.out and "out[3, 98]" in wrong.out
    as_json = cli("check", *SOFTMAX, "--json")
    assert as_json.code == 1 and json.loads(as_json.out)["passed"] is False


def test_check_says_what_it_checked_and_why_it_is_likely_wrong(api, cli, values, tmp_path):
    api.answers["check"] = replace(values.wrong, subject="my.py with BLOCK=64", cause="last tile only")
    words = ("--file", str(tmp_path / "my.py"), "--config", "BLOCK=64", "--tiles", "cols=64", "--precision", "p=fp32")
    ran = cli("check", *SOFTMAX, *words)
    assert ran.code == 1 and ran.out.startswith("checked: my.py with BLOCK=64\n")
    assert ran.out.rstrip().endswith("likely cause: last tile only")
    given = api.calls[0][2]
    assert (given["file"], given["config"]) == (tmp_path / "my.py", "BLOCK=64")
    assert (given["tiles"], given["precision"]) == ("cols=64", "p=fp32")
    as_json = json.loads(cli("check", *SOFTMAX, *words, "--json").out)
    assert as_json["subject"] == "my.py with BLOCK=64" and as_json["cause"] == "last tile only"


def test_time_prints_the_measurement_beside_the_anchor(api, cli, values):
    ran = cli("time", *SOFTMAX, "--config", "num_warps=8")
    assert ran.code == 0
    assert "12.3 us [12.1 us, 12.6 us]" in ran.out and "time/anchor 1.000" in ran.out
    api.answers["time"] = TimeResult(
        values.problem, values.fast, values.device, values.stack("measured"), values.wrong, None
    )
    wrong = cli("time", *SOFTMAX)
    assert wrong.code == 1 and "wrong: spikes" in wrong.out


def test_operators_says_how_many_configs_are_valid(api, cli):
    ran = cli("operators", "--target", "a100")
    assert api.calls[0][2] == {"target": "a100", "operator": None}
    assert "online, whole_row" in ran.out
    assert "360 valid configs for softmax rows=4096 cols=4096" in ran.out and "on sm_90" in ran.out
    assert json.loads(cli("operators", "--json").out)[0]["valid_configs"] == 360


def test_operators_says_how_options_are_given_and_which_sizes_are_limited(api, cli):
    (listed,) = api.answers["list_operators"]
    decode, entropy, full = get("attention_decode"), get("cross_entropy"), get("attention_fwd")
    api.answers["list_operators"] = [
        replace(listed, name=o.name, shape_parameters=o.shape_parameters, options=o.options)
        for o in (decode, entropy, full)
    ]
    said = " ".join(cli("operators").out.split())
    assert (
        "shape batch, heads, kv_heads (default heads), q_len (1 to 16, default 1), kv_len, "
        "head_dim (16 to 256, a multiple of 16), page_size (0 to 4096, default 0) "
        "options --option scale=NUMBER: factor of q k^T; head_dim ** -0.5 where not given dtypes"
    ) in said
    smoothing = "label_smoothing=NUMBER: share of the label that is spread over all columns, below 1 (default off)"
    assert f"shape rows, cols, row_stride (default cols) options --option {smoothing} --option z_loss=" in said
    assert "--option causal=true: a query sees no later key (aligned at the bottom right) (default false)" in said


def test_doctor_says_what_is_missing_and_exits_with_1(cli, monkeypatch):
    seen = []

    def examine(db_url, target, cache_dir):
        seen.append((db_url, target))
        assert cache_dir is not None
        triton = Check("triton", Status.MISSING, "not installed", "pip install triton")
        return DoctorReport((Check("python", Status.OK, "3.11.7"), triton))

    monkeypatch.setattr("tuner.doctor.doctor", examine)
    ran = cli("doctor", "--db", "sqlite:///a.db", "--target", "a100")
    assert seen == [("sqlite:///a.db", "a100")]
    assert ran.code == 1 and "pip install triton" in ran.out and "not ready" in ran.out
    as_json = cli("doctor", "--json")
    assert json.loads(as_json.out)["checks"][1]["status"] == "missing"


# output and errors


def api_function(command: str) -> str:
    return "list_operators" if command == "operators" else command


def all_commands() -> list[tuple[str, ...]]:
    with_problem = [(name, *SOFTMAX) for name in ("tune", "best", "render", "check", "time")]
    return [*with_problem, ("studies",), ("show", "1"), ("operators",)]


@pytest.mark.parametrize("words", all_commands(), ids=lambda w: w[0])
def test_with_json_stdout_is_one_document_even_where_libraries_print(api, cli, words):
    function = api_function(words[0])
    answer = api.answers[function]

    def noisy(*args, **kwargs):
        print("a library says hello")
        return answer

    api.answers[function] = noisy
    ran = cli(*words, "--json")
    assert ran.code == 0
    json.loads(ran.out)
    assert "a library says hello" in ran.err


def test_with_json_not_even_a_child_process_reaches_stdout():
    program = (
        "import os, sys, types, tuner\n"
        "def studies(db): print('from a library'); os.system('echo from a child'); return []\n"
        "tuner.api = sys.modules['tuner.api'] = types.SimpleNamespace(studies=studies)\n"
        "from tuner.cli import main\n"
        "main(['studies', '--json'])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == []
    assert "from a library" in ran.stderr and "from a child" in ran.stderr


def test_json_has_no_infinities(values):
    assert plain({"a": float("inf"), "b": [float("nan"), 1.5]}) == {"a": None, "b": [None, 1.5]}


@pytest.mark.parametrize("words", all_commands(), ids=lambda w: w[0])
@pytest.mark.parametrize(
    ("error", "code"), [(StoreError("the database x.db is locked"), 2), (MissingError("no GPU"), 2)]
)
def test_every_error_is_one_line_without_a_traceback(api, cli, words, error, code):
    api.answers[api_function(words[0])] = error
    ran = cli(*words, "--json")
    assert (ran.code, ran.out, ran.err) == (code, "", f"error: {error}\n")


def test_a_bug_of_ours_is_one_line_too_and_exits_with_70(api, cli, monkeypatch):
    monkeypatch.delenv("TUNER_TRACEBACK", raising=False)
    api.answers["studies"] = ZeroDivisionError("division\nby zero")
    ran = cli("studies")
    assert ran.code == 70
    assert ran.err == (
        "internal error: ZeroDivisionError: division by zero (set TUNER_TRACEBACK=1 for the traceback)\n"
    )


def test_tuner_traceback_shows_the_traceback(api, cli, monkeypatch):
    monkeypatch.setenv("TUNER_TRACEBACK", "1")
    api.answers["studies"] = StoreError("locked")
    ran = cli("studies")
    assert ran.code == 2 and "Traceback (most recent call last)" in ran.err


def test_ctrl_c_elsewhere_exits_with_130(api, cli):
    api.answers["studies"] = KeyboardInterrupt()
    ran = cli("studies")
    assert (ran.code, ran.out, ran.err) == (130, "", "interrupted\n")
