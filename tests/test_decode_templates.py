"""The templates of attention_decode: right where no bug is planted in them, compiled for GPUs, offered everywhere."""

from __future__ import annotations

import pytest

from tests.test_variants import assert_right, run
from tuner.operators import get
from tuner.space import BoundSpace, load_space
from tuner.targets import target

SHAPE = {"batch": 2, "heads": 2, "kv_heads": 1, "q_len": 2, "kv_len": 150, "head_dim": 48}
# Pages of 16 tokens are smaller than a tile, those of 64 hold whole ones.
PAGES, LARGE_PAGES = {**SHAPE, "page_size": 16}, {**SHAPE, "head_dim": 64, "page_size": 64}
# More rows than a tile has: 6 heads and 16 queries of one key/value head.
MANY_ROWS = {**SHAPE, "heads": 6, "q_len": 16}
OTHER_WAY = "KEYS_FIRST=true,USE_EXP2=true,BLOCK_N=64,num_warps=4"
SERVED = {"batch": 64, "heads": 32, "kv_heads": 8, "kv_len": 4096, "head_dim": 128}


def bound(dtype: str = "bf16", device: str = "h200", **changes: int) -> BoundSpace:
    problem = get("attention_decode").problem({**SERVED, **changes}, dtype)
    return load_space("attention_decode").bind(problem, target(device))


def test_pages_many_rows_and_the_other_value_of_every_switch_give_right_results():
    assert_right(
        [
            ("attention_decode", MANY_ROWS, "bf16", {}, f"template=single,{OTHER_WAY}"),
            ("attention_decode", PAGES, "fp32", {}, "template=single,BLOCK_N=32,num_warps=2"),
            ("attention_decode", PAGES, "fp16", {}, f"template=split,SPLITS=2,{OTHER_WAY}"),
            ("attention_decode", LARGE_PAGES, "bf16", {}, f"template=descriptor,SPLITS=2,{OTHER_WAY}"),
        ],
        400,
    )


def test_they_compile_for_a_gpu_that_is_not_there_and_fit_it(tmp_path):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    texts = ("template=single", "template=split,KEYS_FIRST=true", "template=descriptor,KEYS_FIRST=true")
    given = [("attention_decode", {**SERVED, "page_size": 64}, "bf16", {}, text, "h200") for text in texts]
    answers = run("compile_variants.py", given, 400, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    for case, answer in zip(given, answers, strict=True):
        assert answer["shared_bytes"] <= answer["limit"], case
        assert answer["kernels"] == (1 if "single" in case[4] else 2), case


@pytest.mark.parametrize("device", ["a100", "rtx4090", "h200", "b200", "mi300x"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_every_problem_has_a_plain_config_on_every_device(device, dtype):
    for changes in ({}, {"head_dim": 80}, {"head_dim": 256, "q_len": 16}, {"kv_len": 1, "heads": 8}, {"page_size": 16}):
        space = bound(dtype, device, **changes)
        descriptors = device in ("h200", "b200") and changes.get("head_dim") != 80 and "page_size" not in changes
        expected = (
            "single",
            *(("split",) if "kv_len" not in changes else ()),
            *(("descriptor",) if descriptors else ()),
        )
        assert space.templates == expected
        assert [config.template for config in space.plain()] == list(expected)


@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("kv_len", [4096, 32768, 131072])
def test_the_space_is_large_enough_to_search_and_small_enough_to_finish(batch, kv_len):
    assert 300 <= bound(batch=batch, kv_len=kv_len).size() <= 800


def test_every_split_has_keys_at_full_length_and_the_merge_counts_as_a_tile():
    space = bound(batch=2, kv_len=1000)
    splits = [config for config in space.configs() if config.template != "single"]
    assert splits
    for config in splits:
        values = config.values
        assert values["SPLITS"] * values["BLOCK_N"] <= 1000
        assert space.precision(config).tiles == -(-1000 // values["BLOCK_N"]) + 1
