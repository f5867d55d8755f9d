"""The templates of softmax_topk where the check's small problems do not take them, and compiled for a GPU."""

from __future__ import annotations

import pytest

from tests.test_variants import FEW, LONG, SHORT, WIDE, run
from tuner.operators import get
from tuner.space import load_space
from tuner.targets import target

H200 = target("h200")
pytest.importorskip("triton", reason="Triton runs on Linux only")

_ONE_STAGE = {"STEP": 2, "WIDE": True, "LOAD_STAGES": 1, "STREAM_HINTS": False, "num_warps": 1}
_NARROW = {**_ONE_STAGE, "STEP": 1, "WIDE": False}
ROUNDED = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 0.0}
# Template, dtype, rows, cols, k, arguments.
CASES = [
    # Every element is taken; k is no power of two; one element; one element of one.
    ("whole_row", "fp16", 1, 128, 128, {"BLOCK_COLS": 1024, "num_warps": 1}),
    ("whole_row", "fp32", 1, 300, 40, {"BLOCK_COLS": 512, "num_warps": 1}),
    ("whole_row", "bf16", 2, 77, 1, {"BLOCK_COLS": 128, "num_warps": 1}),
    ("online", "fp32", 2, 1, 1, {"BLOCK_COLS": 512, **_ONE_STAGE}),
    # A tile at a time is searched, and each has some of the largest; fewer columns than places to keep them.
    ("online", "fp32", 1, 1700, 40, {"BLOCK_COLS": 512, **_ONE_STAGE}),
    ("online", "fp16", 1, 2100, 20, {"BLOCK_COLS": 512, **_NARROW}),
    ("online", "bf16", 1, 70, 70, {"BLOCK_COLS": 1024, **_ONE_STAGE}),
    # 16 bits in rows whose columns do not fit into 16 bits.
    ("online", "bf16", 1, 70_000, 5, {"BLOCK_COLS": 8192, **_ONE_STAGE}),
    ("split_row", "bf16", 1, 70_000, 5, {"BLOCK_COLS": 4096, "SPLITS": 4, **_ONE_STAGE}),
    # Splits of which the last are ragged and empty.
    ("split_row", "fp32", 1, 9001, 30, {"BLOCK_COLS": 1024, "SPLITS": 8, **_ONE_STAGE}),
    ("split_row", "fp16", 1, 9001, 7, {"BLOCK_COLS": 1024, "SPLITS": 8, **_NARROW}),
]  # fmt: skip
COMPILED = [
    ("softmax_topk", {**SHORT, "k": 128}, "bf16", {}, "template=whole_row"),
    ("softmax_topk", {**LONG, "k": 8}, "bf16", {}, "template=online,BLOCK_COLS=4096,LOAD_STAGES=3,STREAM_HINTS=true"),
    ("softmax_topk", {**WIDE, "k": 100}, "fp32", {}, "template=online"),
    ("softmax_topk", {**FEW, "k": 1}, "fp16", {}, "template=split_row"),
]


def test_the_templates_find_the_largest_in_their_order_at_every_k_and_length():
    for case, answer in zip(CASES, run("topk_directly.py", CASES, 300, TRITON_INTERPRET="1"), strict=True):
        assert {kind: wrong for kind, (wrong, _) in answer.items()} == {"ties": 0, "rising": 0}, case
        assert max(error for _, error in answer.values()) <= ROUNDED[case[1]] + 1e-5, case


def test_the_templates_compile_without_a_spill(tmp_path):
    given = [(*case, "h200") for case in COMPILED]
    answers = run("compile_variants.py", given, 400, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    assert [answer["kernels"] for answer in answers] == [1, 1, 1, 2]
    assert [tuple(answer["grid"][:1]) for answer in answers] == [(4096,), (8192,), (4096,), (256,)]
    assert all(answer["shared_bytes"] <= answer["limit"] for answer in answers)


@pytest.mark.parametrize(("dtype", "itemsize"), [("bf16", 2), ("fp32", 4)])
@pytest.mark.parametrize(
    ("rows", "cols", "k", "slots"), [(4096, 32768, 8, 8), (64, 100_003, 100, 128), (3, 20, 17, 32)]
)
def test_every_config_has_as_many_lanes_as_places_to_keep_what_is_found(rows, cols, k, slots, dtype, itemsize):
    problem = get("softmax_topk").problem({"rows": rows, "cols": cols, "k": k}, dtype)
    space = load_space("softmax_topk").bind(problem, target("h200"))
    launches = [(c.template, c.switches, space.launch_arguments(c)) for c in space.configs()]
    assert min(arguments["BLOCK_COLS"] * itemsize // 16 for _, _, arguments in launches) >= slots
    assert 10 <= len(launches) <= 500 and len({str(launch) for launch in launches}) == len(launches)


def test_what_a_tuned_shape_decides_about_the_kernel_stays_so_at_the_small_shapes_of_the_check():
    operator = get("softmax_topk")
    for cols, wide in ((32768, False), (131072, True)):
        bound = load_space("softmax_topk").bind(operator.problem({"rows": 64, "cols": cols, "k": 8}, "bf16"), H200)
        online = bound.launch_arguments(bound.parse("template=online,BLOCK_COLS=2048,num_warps=4"))
        assert (online["STEP"], online["WIDE"]) == (32 if wide else 16, wide)
        split = bound.launch_arguments(bound.parse("template=split_row,BLOCK_COLS=2048,SPLITS=8,num_warps=4"))
        assert (split["STEP"], split["WIDE"]) == (8 if wide else 2, wide)
