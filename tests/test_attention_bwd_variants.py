"""The templates of attention_bwd: right in every dtype, compiled for real targets, and what their space offers.

What the interpreter checks in bf16 with planted bugs (``tests/mutation``) is not checked again here.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.test_variants import CAUSAL, assert_right, run
from tuner.operators import get
from tuner.space import BoundSpace, load_space
from tuner.targets import target

OPERATOR = "attention_bwd"
PADDED = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 70, "kv_len": 100, "head_dim": 40}
WHOLE = {**PADDED, "head_dim": 32}
FEW = {**WHOLE, "batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 16}
LARGE = {"batch": 4, "heads": 32, "kv_heads": 8, "q_len": 4096, "head_dim": 128}
SMALL_TILES = "KEYS_BLOCK_M=32,KEYS_BLOCK_N=32,QUERIES_BLOCK_M=64,QUERIES_BLOCK_N=16,num_warps=2"
DESCRIPTOR_TILES = "KEYS_BLOCK_M=32,KEYS_BLOCK_N=64,KEYS_WARPS=4,QUERIES_BLOCK_M=64,QUERIES_BLOCK_N=32,QUERIES_WARPS=4"
# With bf16, which is checked where bugs are planted, every dtype and every value of every switch.
CHECKED = [
    (OPERATOR, PADDED, "fp32", CAUSAL, f"template=split,USE_EXP2=false,{SMALL_TILES}"),
    (OPERATOR, FEW, "fp32", CAUSAL, f"template=split_descriptor,USE_EXP2=false,{DESCRIPTOR_TILES}"),
    (OPERATOR, WHOLE, "fp16", CAUSAL, "template=fused,USE_EXP2=false,BULK_ADD=true,BLOCK_M=64,BLOCK_N=64,num_warps=4"),
]
COMPILED = {
    "a100": [(OPERATOR, {**LARGE, "head_dim": 80}, "fp16", CAUSAL, "template=split")],
    "h200": [
        (OPERATOR, LARGE, "bf16", CAUSAL, "template=fused,BULK_ADD=true,BLOCK_M=64,BLOCK_N=128,Q_STAGES=3"),
        (OPERATOR, LARGE, "bf16", {}, "template=split_descriptor,KEYS_BLOCK_M=64,QUERIES_BLOCK_N=64,QUERIES_STAGES=3"),
    ],
}


@cache
def space(dtype: str = "bf16", causal: bool = False, device: str = "h200", **changes: int) -> BoundSpace:
    shape = {**LARGE, "kv_heads": 32, **changes}
    return load_space(OPERATOR).bind(get(OPERATOR).problem(shape, dtype, {"causal": causal}), target(device))


def test_all_templates_give_right_results_in_every_dtype():
    assert_right(CHECKED, 400)


@pytest.mark.parametrize("device", COMPILED)
def test_templates_compile_for_a_gpu_that_is_not_there_and_fit_it(device, tmp_path):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    given = [(*case, device) for case in COMPILED[device]]
    answers = run("compile_variants.py", given, 400, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    for case, answer in zip(given, answers, strict=True):
        assert answer["shared_bytes"] <= answer["limit"], case
        assert answer["kernels"] == 3, case


@pytest.mark.parametrize("device", ["a100", "rtx4090", "h200", "b200", "mi300x"])
@pytest.mark.parametrize("head_dim", [16, 40, 64, 128, 160, 256])
def test_every_problem_has_a_plain_config_on_every_device(device, head_dim):
    for dtype in ("bf16", "fp32"):
        found = space(dtype, True, device, head_dim=head_dim, q_len=3000)
        tiles = device in ("h200", "b200") and head_dim in (16, 64, 128)
        assert found.templates == (("split", "split_descriptor", "fused") if tiles else ("split",))
        assert found.plain()[0].values["DOT_PRECISION"] == "ieee"
        # A file that is rendered from it runs in the interpreter, which knows no additions through descriptors.
        assert not any(config.values.get("BULK_ADD") for config in found.plain())


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_the_space_is_large_enough_to_search_and_small_enough_to_finish(head_dim, causal):
    assert 100 <= space("bf16", causal, head_dim=head_dim).size() <= 1000


def test_what_is_declared_is_what_the_templates_do():
    declared = {config.template: space().precision(config) for config in space().configs()}
    assert {name: profile.atomics for name, profile in declared.items()} == {
        "split": False,
        "split_descriptor": False,
        "fused": True,
    }
    assert {profile.p for profile in declared.values()} == {"bf16"}
    assert {profile.dot for profile in declared.values()} == {"16bit"}
    assert {c.values["DOT_PRECISION"] for c in space("fp32").configs()} == {"ieee"}, "tf32 is asked for, not assumed"


def test_tiles_that_the_check_exceeds_are_the_largest_of_both_kernels():
    config = space().parse("template=split,KEYS_BLOCK_M=64,KEYS_BLOCK_N=128,QUERIES_BLOCK_M=128,QUERIES_BLOCK_N=32")
    assert space().tiles(config) == {"q_len": 128, "kv_len": 128}
