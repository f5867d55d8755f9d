"""Templates of log_softmax, logsumexp and softmax_bwd: right in the interpreter in every dtype; what spaces offer.

In bf16 they are checked where bugs are planted in them (``tests/mutation``).
"""

from __future__ import annotations

import pytest

from tests.test_variants import assert_right, run
from tuner.operators import get
from tuner.space import load_space
from tuner.targets import target

ROWS = {"rows": 300, "cols": 1000, "row_stride": 1040}
ROW, LONG_ROW = {"rows": 1, "cols": 2500}, {"rows": 1, "cols": 8200}
STAY = "PROGRAMS_PER_SM=1,LOAD_STAGES=2,num_warps=1"
SMALL = "BLOCK_COLS=1024,num_warps=4"
EXP, EXP2 = "USE_EXP2=false", "USE_EXP2=true"

CASES = [
    ("log_softmax", ROWS, "fp32", {}, f"template=whole_row,{EXP2},STREAM_HINTS=true,{STAY}"),
    ("log_softmax", ROWS, "fp16", {}, f"template=whole_row,{EXP},HOLD_SHORT=true,num_warps=1"),
    ("log_softmax", ROW, "fp16", {}, f"template=online,{EXP2},REVERSE_SECOND_PASS=true,STREAM_HINTS=true,{SMALL}"),
    ("log_softmax", LONG_ROW, "fp32", {}, f"template=split_row,{EXP2},STREAM_HINTS=true,SPLITS=2,{SMALL}"),
    ("logsumexp", ROWS, "fp32", {}, f"template=whole_row,{EXP2},{STAY}"),
    ("logsumexp", ROW, "fp32", {}, f"template=online,{EXP2},{SMALL}"),
    ("logsumexp", LONG_ROW, "fp16", {}, f"template=split_row,{EXP2},SPLITS=2,{SMALL}"),
    ("softmax_bwd", ROWS, "fp32", {}, f"template=whole_row,STREAM_HINTS=true,{STAY}"),
    ("softmax_bwd", ROWS, "fp16", {}, "template=whole_row,HOLD_SHORT=true,num_warps=1"),
    ("softmax_bwd", ROW, "fp32", {}, f"template=two_pass,REVERSE_SECOND_PASS=true,{SMALL}"),
    ("softmax_bwd", ROW, "fp16", {}, f"template=two_pass,REVERSE_SECOND_PASS=false,STREAM_HINTS=true,{SMALL}"),
]
SHAPES = [(1, 1), (4096, 1024), (4096, 50257), (8192, 131072), (8, 262144)]


def test_templates_give_right_results():
    assert_right(CASES, 300)


def test_programs_that_wait_for_one_another_are_right_once_what_they_wait_for_is_there():
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    # Two groups of programs, each of which walks over several rows.
    both = {"BLOCK_COLS": 256, "SPLITS": 4, "NUM_PROGRAMS": 8, "PREFETCH": False, "MAX_REGISTERS": 0, "num_warps": 4}
    ragged, even = {"rows": 7, "cols": 1000, "row_stride": 1030}, {"rows": 7, "cols": 1024}
    cases = [
        ("log_softmax", ragged, "fp32", {**both, "LOAD_STAGES": 2, "USE_EXP2": True, "STREAM_HINTS": False}),
        ("log_softmax", even, "bf16", {**both, "LOAD_STAGES": 1, "USE_EXP2": False, "STREAM_HINTS": True}),
        ("softmax_bwd", ragged, "fp32", {**both, "STREAM_HINTS": False}),
        ("softmax_bwd", even, "bf16", {**both, "STREAM_HINTS": True}),
    ]
    answers = run("waiting_rows.py", cases, 200, TRITON_INTERPRET="1")
    assert [answer["ratio"] <= 1.0 for answer in answers] == [True] * 4, answers


@pytest.mark.parametrize("name", ["log_softmax", "logsumexp", "softmax_bwd"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_every_shape_has_templates_a_plain_config_each_and_a_space_that_can_be_searched(name, dtype):
    for rows, cols in SHAPES:
        space = load_space(name).bind(get(name).problem({"rows": rows, "cols": cols}, dtype), target("h200"))
        assert [config.template for config in space.plain()] == list(space.templates)
        assert {config.values.get("USE_EXP2", False) for config in space.plain()} == {False}
        assert 2 <= space.size() <= 3000
        if name == "softmax_bwd":
            expected = {"two_pass"} | ({"whole_row"} if cols <= 32768 else set())
        else:
            expected = {"online"} | ({"whole_row"} if cols <= 65536 else set())
            expected |= {"split_row"} if cols >= 8192 and rows <= 16 * 132 else set()
        if name != "logsumexp" and rows >= 16 and 16384 <= cols <= 262144:
            expected |= {"cooperative"}
        assert set(space.templates) == expected, (rows, cols)


@pytest.mark.parametrize("name", ["log_softmax", "logsumexp", "softmax_bwd"])
def test_no_two_configs_are_the_same_launch_and_programs_that_stay_have_equally_many_rows(name):
    space = load_space(name).bind(get(name).problem({"rows": 4096, "cols": 4096}, "bf16"), target("h200"))
    seen = set()
    for config in space.configs():
        launch = (config.template, config.switches, tuple(space.launch_arguments(config).items()))
        assert launch not in seen, config.label
        seen.add(launch)
        if config.template == "whole_row":
            per_sm, programs = config.values["PROGRAMS_PER_SM"], space.launch_arguments(config)["NUM_PROGRAMS"]
            assert programs == {0: 4096, 1: 128, 2: 256, 4: 512, 8: 1024}[per_sm]
