"""The templates of attention_varlen: right where no bug is planted in them, compiled for GPUs, offered everywhere."""

from __future__ import annotations

import pytest

from tests.test_variants import assert_right, run
from tuner.operators import get
from tuner.operators.varlen_lengths import queries_and_keys
from tuner.space import BoundSpace, load_space
from tuner.targets import target

SHAPE = {"batch": 12, "heads": 2, "kv_heads": 1, "max_len": 100, "head_dim": 16}
SMALL = "BLOCK_M=16,BLOCK_N=32,num_warps=1"
SERVED = {"batch": 64, "heads": 32, "kv_heads": 8, "max_len": 8192, "head_dim": 128}
CAUSAL = {"causal": True}


def bound(dtype: str = "bf16", device: str = "h200", causal: bool = True, **changes: int) -> BoundSpace:
    problem = get("attention_varlen").problem({**SERVED, **changes}, dtype, {"causal": causal})
    return load_space("attention_varlen").bind(problem, target(device))


def right(dtype: str, options: dict[str, bool], text: str) -> None:
    assert_right([("attention_varlen", SHAPE, dtype, options, f"{text},USE_EXP2=false,{SMALL}")], 400)


def test_the_last_tiles_first_in_base_e_and_fp32_give_right_results():
    right("fp32", CAUSAL, "template=pointer,LAST_FIRST=true")


def test_the_search_without_a_ranking_in_base_e_and_fp16_gives_right_results():
    right("fp16", {}, "template=searched,LONGEST_FIRST=false")


def test_the_ranking_and_the_search_compile_for_a_gpu_that_is_not_there_and_fit_it(tmp_path):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    case = ("attention_varlen", SERVED, "bf16", CAUSAL, "template=descriptor,LONGEST_FIRST=true,SEARCHED=128", "h200")
    (answer,) = run("compile_variants.py", [case], 400, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    assert answer["shared_bytes"] <= answer["limit"]
    # The estimate goes by the kernel with the products, not by the ranking, which is launched first.
    tokens = sum(queries for queries, _ in queries_and_keys(bound().problem))
    assert answer["kernels"] == 2 and answer["grid"] == [32 * (tokens // 128 + 64)]


@pytest.mark.parametrize("device", ["a100", "rtx4090", "h200", "b200", "mi300x"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_every_problem_has_a_plain_config_on_every_device(device, dtype):
    for changes in (
        {},
        {"head_dim": 80},
        {"head_dim": 256},
        {"max_len": 1, "max_kv_len": 1},
        {"batch": 65536, "max_len": 1024},
    ):
        space = bound(dtype, device, **changes)
        descriptors = ["descriptor"] if device in ("h200", "b200") and changes.get("head_dim") != 80 else []
        assert [config.template for config in space.plain()] == ["pointer", "searched", *descriptors]


def test_the_space_is_large_enough_to_search_and_small_enough_to_finish():
    assert 300 <= bound().size() <= 600
    assert 250 <= bound(causal=False).size() <= 600


def test_the_last_tiles_first_are_offered_where_they_see_more_and_many_sequences_are_searched_together():
    assert {c.values.get("LAST_FIRST") for c in bound(causal=False).configs()} == {False, None}
    assert {c.values.get("LAST_FIRST") for c in bound().configs()} == {False, True, None}
    for batch, searched in ((32, 32), (33, 128)):
        space = bound(batch=batch)
        config = space.parse("template=searched")
        assert space.launch_arguments(config)["SEARCHED"] == searched


def test_a_grid_that_no_gpu_takes_is_not_offered():
    space = bound(batch=65536, max_len=32000)
    assert "searched" in space.templates
    for config in space.configs():
        if config.template == "pointer":
            assert 65536 * 32 * -(-32000 // config.values["BLOCK_M"]) < 2**31
