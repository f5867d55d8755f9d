from __future__ import annotations

import gzip

import pytest

from tuner.errors import UsageError
from tuner.replay.reading import read_recording
from tuner.replay.table import write_table
from tuner.trial import Outcome

HEAD = "BLOCK,status,time_ms,compile_ms,check_ms,bench_ms\n"


def test_a_table_gives_every_config_with_its_outcome_its_time_and_what_it_cost(recorded):
    recording = read_recording(recorded)
    assert (recording.name, recording.size(), recording.failed, recording.templates) == ("toy", 93, 4, ("kernel",))
    assert recording.domain("kernel")["num_warps"] == (2, 4, 8, 16)
    best = recording.row(recording.config("kernel", {"BLOCK": 1024, "num_warps": 8, "LOADS": "tma"}))
    assert (best.time_us, best.outcome, best.cost_s) == (2000.0, Outcome.TIMED, 2.0)
    assert recording.best_us == 2000.0
    failed = recording.row(recording.config("kernel", {"BLOCK": 8192, "num_warps": 2, "LOADS": "tma"}))
    assert (failed.time_us, failed.outcome, failed.cost_s) == (None, Outcome.COMPILE_ERROR, 0.5)


def test_what_is_not_in_the_recording_is_not_valid(recorded):
    recording = read_recording(recorded)
    assert recording.is_valid("kernel", {"BLOCK": 64, "num_warps": 8, "LOADS": "tma"})
    assert not recording.is_valid("kernel", {"BLOCK": 64, "num_warps": 16, "LOADS": "tma"})


def test_a_recording_that_is_written_reads_the_same_and_writes_the_same_bytes(recorded, tmp_path):
    recording = read_recording(recorded)
    write_table(recording, tmp_path / "again.csv.gz")
    again = read_recording(tmp_path / "again.csv.gz")
    assert [(r.config, r.outcome) for r in again.rows] == [(r.config, r.outcome) for r in recording.rows]
    assert [r.time_us for r in again.rows] == [r.time_us and pytest.approx(r.time_us) for r in recording.rows]
    assert [r.cost_s for r in again.rows] == [r.cost_s for r in recording.rows]
    write_table(again, tmp_path / "third.csv.gz")
    assert (tmp_path / "third.csv.gz").read_bytes() == (tmp_path / "again.csv.gz").read_bytes()


def test_templates_have_parameters_of_their_own(written, tmp_path):
    text = "template,BLOCK,FAST,status,time_ms\nrow,64,,ok,1.5\nrow,128,,wrong,\nonline,64,True,ok,2\n"
    recording = read_recording(written("two.csv", text))
    assert recording.templates == ("row", "online")
    assert recording.domain("row") == {"BLOCK": (64, 128)}
    assert recording.domain("online") == {"BLOCK": (64,), "FAST": (True,)}
    assert [row.outcome for row in recording.rows] == [Outcome.TIMED, Outcome.WRONG, Outcome.TIMED]
    write_table(recording, tmp_path / "again.csv")
    assert read_recording(tmp_path / "again.csv").rows == recording.rows


def test_numbers_of_a_categorical_parameter_are_names(written):
    text = '#{"categorical": ["MODE"]}\nMODE,status,time_ms\n3,ok,1\n9,ok,2\n'
    assert read_recording(written("c.csv", text)).domain("kernel") == {"MODE": ("3", "9")}


def cache(**entries: object) -> dict[str, object]:
    return {"tune_params_keys": ["a"], "objective": "time", "cache": entries}


def test_a_kernel_tuner_cache_is_read_and_its_invalid_configs_are_none_of_the_space(written):
    costs = {"compile_time": 10.0, "verification_time": 5, "benchmark_time": 20.0}
    document = cache(
        one={"a": 1, "time": 2.5, **costs},
        two={"a": 2, "time": "CompilationFailedConfig", "compile_time": 7.0},
        three={"a": 4, "time": "RuntimeFailedConfig"},
        four={"a": 8, "time": "InvalidConfig"},
        five={"a": 16, "time": {}, "__error__": "InvalidConfig"},
    )
    recording = read_recording(written("cache.json", document))
    assert [(r.config.values["a"], r.outcome, r.time_us) for r in recording.rows] == [
        (1, Outcome.TIMED, 2500.0),
        (2, Outcome.COMPILE_ERROR, None),
        (4, Outcome.CRASHED, None),
    ]
    assert [row.cost_s for row in recording.rows] == pytest.approx([0.035, 0.007, 0.0])


def test_a_cache_file_whose_run_was_interrupted_lacks_its_last_braces(written):
    text = '{"tune_params_keys": ["a"], "cache": {\n"1": {"a": 1, "time": 2.0},\n"2": {"a": 2, "time": 1.0},'
    assert read_recording(written("open.json", text)).best_us == 1000.0


def t4(*results: object, **metadata: object) -> dict[str, object]:
    return {"results": list(results), "schema_version": "1.0.0", "metadata": metadata}


def t4_result(a: int, invalidity: str, **measured: object) -> dict[str, object]:
    return {
        "configuration": {"a": a},
        "times": {"compilation": 3, "validation": 1, "benchmark": 2, "runtimes": [1]},
        "invalidity": invalidity,
        "measurements": [{"name": n, "value": v, "unit": "ms"} for n, v in measured.items()],
        "objectives": ["time"],
    }


@pytest.mark.parametrize(("unit", "cost_s"), [("milliseconds", 0.006), ("seconds", 6.0)])
def test_t4_results_are_read(written, unit, cost_s):
    document = t4(
        t4_result(1, "correct", power=90.0, time=4.0),
        t4_result(2, "compile"),
        t4_result(3, "correctness"),
        t4_result(4, "timeout"),
        t4_result(5, "constraints"),
        timeunit=unit,
    )
    recording = read_recording(written("t4.json", document))
    assert [(r.config.values["a"], r.outcome, r.time_us) for r in recording.rows] == [
        (1, Outcome.TIMED, 4000.0),
        (2, Outcome.COMPILE_ERROR, None),
        (3, Outcome.WRONG, None),
        (4, Outcome.TIMED_OUT, None),
    ]
    assert recording.rows[0].cost_s == pytest.approx(cost_s)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", HEAD + "64,ok,1,2\n", r"x.csv:2: has 4 values, but the header names 6 columns"),
        ("x.csv", HEAD + "64,ok,fast,,,\n", r"x.csv:2: time_ms must be milliseconds, but is 'fast'"),
        ("x.csv", HEAD + "64,ok,,,,\n", r"x.csv:2: time_ms must be a positive number of milliseconds"),
        ("x.csv", HEAD + "64,ok,nan,,,\n", r"x.csv:2: time_ms must be milliseconds, but is 'nan'"),
        ("x.csv", HEAD + "64,ok,1,-2,,\n", r"x.csv:2: compile_ms must be milliseconds, but is '-2'"),
        ("x.csv", HEAD + "64,good,1,,,\n", r"x.csv:2: status 'good' is unknown; it is one of ok, compile"),
        ("x.csv", HEAD + "64,compile,,,,\n", r"no config of this recording has a time"),
        ("x.csv", HEAD + "64,ok,1,,,\n64,ok,2,,,\n", r"two rows are the config template=kernel,BLOCK=64"),
        ("x.csv", '#{"rows": 3}\n' + HEAD + "64,ok,1,,,\n", r"has 1 rows, but says that it has 3; it may be cut off"),
        ("x.csv", "# a comment\n" + HEAD, r"x.csv:1: after `#` there must be one JSON object"),
        ("x.csv", "BLOCK,time\n", r"the header lacks status, time_ms"),
        ("x.csv", "status,time_ms\n", r"the header names no parameter"),
        ("x.csv", "", r"the header lacks status, time_ms"),
        ("x.json", "{", r"x.json:1: is no JSON"),
        ("x.json", {"a": 1}, r"this is no recording of a search space; it must be a table \(CSV\), T4 results"),
        ("x.json", {"results": 3}, r"`results` must be a list, but is int"),
        ("x.json", t4({"configuration": [1]}), r"results\[0\].configuration must be an object, but is list"),
        ("x.json", t4(t4_result(1, "correct", power=1)), r"results\[0\]: nothing named 'time' was measured"),
        ("x.json", t4(t4_result(1, "odd")), r"invalidity 'odd' is unknown; it is one of correct, compile"),
        ("x.json", t4(timeunit="weeks"), r"timeunit 'weeks' is unknown"),
        ("x.json", cache(one={"time": 1.0}), r"`one`: gives no value for a"),
        ("x.json", cache(one={"a": [1], "time": 1.0}), r"`one`.a: a parameter's value must be a number, a word"),
        ("x.json", cache(one={"a": 1, "time": "Odd"}), r"`one`: failed for an unknown reason, 'Odd'"),
    ],
)
def test_a_broken_file_is_refused_with_one_line_that_says_where(written, name, content, message):
    with pytest.raises(UsageError, match=message) as error:
        read_recording(written(name, content))
    assert "\n" not in str(error.value)


def test_a_missing_a_damaged_and_a_binary_file_are_refused(tmp_path, recorded):
    with pytest.raises(UsageError, match="there is no such file"):
        read_recording(tmp_path / "none.csv")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(recorded.read_bytes()[:-40])
    with pytest.raises(UsageError, match=r"cut.csv.gz: the gzip'd file is cut off or damaged"):
        read_recording(cut)
    binary = tmp_path / "binary.csv.gz"
    binary.write_bytes(gzip.compress(b"\xff\xfe\x00"))
    with pytest.raises(UsageError, match=r"is not text \(byte 0\)"):
        read_recording(binary)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_recording(tmp_path)
