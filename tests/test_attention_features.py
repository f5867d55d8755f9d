"""All features of attention_fwd at once, and values of their own head_dim, in both templates: right in the interpreter,
compiled for a GPU, and no trace of them where a problem has none."""

from __future__ import annotations

import json

import pytest

from tests.test_variants import assert_right, run
from tuner.config import Config
from tuner.operators import get
from tuner.rendering import render
from tuner.space import load_space
from tuner.targets import target

SHAPE = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 150, "kv_len": 300, "head_dim": 24}
CAUSAL = {"causal": True, "window_left": 150, "softcap": 20.0, "sinks": True, "alibi": True, "bias": "both"}
FULL = {"window_left": 150, "window_right": 50, "softcap": 20.0, "sinks": True, "alibi": True, "bias": "heads"}
DROPPED = {**CAUSAL, "dropout": 0.17}
OWN = {"head_dim": 40, "v_head_dim": 24}
POINTER = "template=pointer,BLOCK_M=64,BLOCK_N=64,num_warps=4"
DESCRIPTOR = "template=descriptor,BLOCK_M=64,BLOCK_N=64,KV_STAGES=2,num_warps=4"
WORDS = ("window", "first_seen", "softcap", "capped", "logit_scale", "sink", "slope", "place", "bias")


def test_all_at_once_are_right_by_tensor_descriptors_and_dropout_by_ordinary_loads():
    many = {**SHAPE, **OWN, "batch": 16}
    text = f"{DESCRIPTOR},PERSISTENT=true,OVERLAP_QK=true,USE_EXP2=false"
    few = {"batch": 1, "heads": 2, "kv_heads": 1, "q_len": 40, "kv_len": 70, "head_dim": 24, "v_head_dim": 40}
    small = "template=pointer,BLOCK_M=16,BLOCK_N=32,num_warps=1,num_stages=1"
    given = [
        ("attention_fwd", many, "fp16", FULL, text, "randn", "very_negative"),
        ("attention_fwd", few, "bf16", {"causal": True, "dropout": 0.17}, small, "randn", "falling_far"),
    ]
    assert_right(given, 400)


@pytest.mark.slow
def test_all_at_once_are_right_by_ordinary_loads():
    assert_right([("attention_fwd", {**SHAPE, **OWN}, "fp32", o, POINTER) for o in (FULL, DROPPED)], 900)


def test_all_at_once_compile_and_fit(tmp_path):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    shape = {"batch": 4, "heads": 32, "q_len": 4096, "head_dim": 128}
    own = {**shape, "head_dim": 192, "v_head_dim": 128}
    given = [
        ("attention_fwd", shape, "bf16", DROPPED, "template=pointer", "h200"),
        ("attention_fwd", own, "bf16", FULL, "template=descriptor,OVERLAP_QK=true", "h200"),
    ]
    for answer in run("compile_variants.py", given, 400, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0"):
        assert answer["shared_bytes"] <= answer["limit"]


@pytest.mark.parametrize("template", ["pointer", "descriptor"])
def test_without_features_a_rendering_has_no_trace_of_them(template):
    def source(options):
        space = load_space("attention_fwd").bind(
            get("attention_fwd").problem(SHAPE | {"head_dim": 32}, "bf16", options), target("h200")
        )
        config: Config = next(c for c in space.plain() if c.template == template)
        return render(space.template(config), dict(config.switches), "3.9.0").source.lower()

    assert not [word for word in (*WORDS, "dropout", "philox", "v_dim", "rest") if word in source({"causal": True})]
    assert not [word for word in WORDS if word not in source(FULL)]
    # Each feature brings its own alone.
    alone = source({"sinks": True})
    assert [word for word in WORDS if word in alone] == ["sink"]


def test_a_problem_without_features_keeps_its_key():
    problem = get("attention_fwd").problem(
        {"batch": 4, "heads": 32, "q_len": 4096, "head_dim": 128}, "bf16", {"causal": True}
    )
    assert json.dumps(problem.as_json()["options"]) == '{"causal": true, "allow_tf32": false, "scale": null}'
