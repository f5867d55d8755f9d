"""Every shipped template, rendered from its search space: right in the interpreter, and compiled for real targets."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tuner.config import Config
from tuner.operators import get
from tuner.space import load_space
from tuner.targets import target

KERNELS = Path(__file__).parent / "kernels"
ROOT = Path(__file__).parents[1]

Case = tuple[Any, ...]
Shape = dict[str, int]

# Ragged everywhere: columns that no block divides, strided rows, head dims that are padded or not, groups of heads.
# The check itself then takes small shapes of the same kind.
ATTENTION_PADDED = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 500, "kv_len": 700, "head_dim": 72}
ATTENTION_MQA = {"batch": 1, "heads": 6, "q_len": 1000, "kv_heads": 1, "head_dim": 32}
ATTENTION_GQA = {"batch": 2, "heads": 6, "kv_heads": 2, "q_len": 999, "head_dim": 32}
ATTENTION_MANY_HEADS = {"batch": 2, "heads": 64, "kv_heads": 8, "q_len": 999, "head_dim": 16}
CAUSAL = {"causal": True}
PROBLEMS: list[tuple[str, str, Shape, dict[str, Any]]] = [
    ("softmax", "whole_row", {"rows": 300, "cols": 1000, "row_stride": 1040}, {}),
    ("softmax", "several_rows", {"rows": 301, "cols": 1000, "row_stride": 1040}, {}),
    ("softmax", "persistent", {"rows": 300, "cols": 1000, "row_stride": 1040}, {}),
    ("softmax", "online", {"rows": 300, "cols": 5003}, {}),
    ("softmax", "split_row", {"rows": 30, "cols": 9001}, {}),
    ("attention_fwd", "pointer", ATTENTION_PADDED, {}),
    ("attention_fwd", "pointer", ATTENTION_MQA, CAUSAL),
    ("attention_fwd", "descriptor", ATTENTION_GQA, {}),
    ("attention_fwd", "descriptor", ATTENTION_MANY_HEADS, CAUSAL),
]


def quick(config: Config) -> bool:
    """Whether the interpreter, which takes milliseconds for each tile and program, is soon done with it."""
    values = config.values
    return int(values.get("SPLITS", 1)) <= 4 and int(values.get("BLOCK_COLS", 1)) <= 4096


def covering(configs: Sequence[Config], seed: str, already: Sequence[Config] = ()) -> list[Config]:
    """A few configs, of some drawn at random, that with ``already`` have every value of every switch."""
    drawn = random.Random(seed).sample(configs, min(300, len(configs)))
    wanted = {switch for config in configs for switch in config.switches}
    wanted -= {switch for config in already for switch in config.switches}
    chosen = []
    while wanted:
        chosen.append(max(drawn, key=lambda config: len(wanted & set(config.switches))))
        wanted -= set(chosen[-1].switches)
    return chosen


def cases(
    dtype: str, choose: Callable[[Sequence[Config], str, Sequence[Config]], list[Config]], with_plain: bool = True
) -> list[Case]:
    """The plain config and those that ``choose`` takes beside it, of each template and problem."""
    found: list[Case] = []
    for operator, template, shape, options in PROBLEMS:
        space = load_space(operator).bind(get(operator).problem(shape, dtype, options), target("h200"))
        plain = [config for config in space.plain() if config.template == template]
        others = [config for config in space.configs() if config.template == template and quick(config)]
        picked = dict.fromkeys([*(plain if with_plain else ()), *choose(others, f"{template} {dtype}", plain)])
        found += [(operator, shape, dtype, options, config.label) for config in picked]
    return found


def run(script: str, given: Sequence[Case], seconds: float, **environment: str) -> list[dict[str, Any]]:
    """What ``script`` answers to each case, in one process."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(KERNELS / script)],
        input=json.dumps(given),
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    place = given[len(answers)] if len(answers) < len(given) else ""
    assert done.returncode == 0, f"{place}: {done.stderr[-2000:]}"
    return answers


def assert_right(given: Sequence[Case], seconds: float) -> None:
    """Every case passes the check. Prints the worst ratio of error and bound by template and dtype."""
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    answers = run("check_variants.py", given, seconds, TRITON_INTERPRET="1")
    wrong = [f"{case[4]} ({case[2]}): {a['reason']}" for case, a in zip(given, answers, strict=True) if not a["passed"]]
    assert not wrong, "\n".join(wrong)
    assert all(answer["families"] >= 8 for answer in answers)
    worst: dict[str, float] = {}
    for case, answer in zip(given, answers, strict=True):
        name = f"{case[4].split(',')[0]} {case[2]}"
        worst[name] = max(worst.get(name, 0.0), answer["ratio"])
    print("worst error by bound:", {name: round(ratio, 3) for name, ratio in sorted(worst.items())})


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_every_value_of_every_switch_gives_right_results(dtype):
    assert_right(cases(dtype, covering), 400)


def test_plain_configs_give_right_results_in_fp16():
    assert_right(cases("fp16", lambda configs, seed, plain: []), 400)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_configs_drawn_at_random_give_right_results(dtype):
    def draw(configs: Sequence[Config], seed: str, plain: Sequence[Config]) -> list[Config]:
        return random.Random(seed).sample([c for c in configs if c not in plain], 1)

    assert_right(cases(dtype, draw, with_plain=False), 1800)


def test_attention_takes_the_strides_of_its_tensors_and_writes_nothing_else():
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    assert [
        a["same"] for a in run("strided_attention.py", [("pointer",), ("descriptor",)], 100, TRITON_INTERPRET="1")
    ] == [
        True,
        True,
    ]


ATTENTION = {"batch": 4, "heads": 32, "q_len": 4096, "head_dim": 128}
NARROW = {"batch": 4, "heads": 32, "kv_heads": 8, "q_len": 4096, "head_dim": 64}
ODD = {"batch": 1, "heads": 6, "kv_heads": 2, "q_len": 999, "kv_len": 1301, "head_dim": 80}
SHORT = {"rows": 4096, "cols": 1024}
WIDE = {"rows": 4096, "cols": 32768}
LONG = {"rows": 8192, "cols": 131072}
FEW = {"rows": 64, "cols": 100_003}
COMPILED: dict[str, list[Case]] = {
    "h200": [
        ("softmax", WIDE, "bf16", {}, "template=whole_row,RECOMPUTE_EXP=true,num_warps=32"),
        ("softmax", SHORT, "bf16", {}, "template=several_rows"),
        ("softmax", WIDE, "bf16", {}, "template=persistent,LOAD_STAGES=3,STREAM_HINTS=true,BALANCE=true,num_warps=32"),
        ("softmax", LONG, "bf16", {}, "template=online,BLOCK_COLS=16384,PROGRAMS_PER_SM=1,num_warps=32"),
        ("softmax", FEW, "fp32", {}, "template=split_row,SPLITS=8,STREAM_HINTS=true"),
        ("softmax", LONG, "bf16", {}, "template=cooperative,LOAD_STAGES=2,PREFETCH=true,STREAM_HINTS=true"),
        ("softmax", FEW, "fp32", {}, "template=cooperative,SPLITS=16"),
        ("softmax", LONG, "bf16", {}, "template=cluster,CLUSTER=4,num_warps=16"),
        ("softmax", LONG, "fp16", {}, "template=cluster,CLUSTER=8,SHARED_HALVES=2,num_warps=8"),
        ("softmax", LONG, "bf16", {}, "template=cluster,SHARED_HALVES=0,num_warps=16"),
        ("softmax", FEW, "fp16", {}, "template=cluster"),
        ("attention_fwd", ATTENTION, "bf16", {}, "template=pointer"),
        ("attention_fwd", ODD, "bf16", CAUSAL, "template=pointer,TILE_ORDER=longest_first"),
        ("attention_fwd", ATTENTION, "fp32", {"allow_tf32": True}, "template=pointer,DOT_PRECISION=tf32"),
        ("attention_fwd", ATTENTION, "bf16", {}, "template=descriptor,BLOCK_M=128,BLOCK_N=64,num_warps=4"),
        ("attention_fwd", ATTENTION, "fp16", CAUSAL, "template=descriptor,OVERLAP_QK=true,TILE_ORDER=descending"),
        ("attention_fwd", ATTENTION, "bf16", CAUSAL, "template=descriptor,PERSISTENT=true,TILE_ORDER=longest_first"),
        ("attention_fwd", ATTENTION, "bf16", CAUSAL, "template=gluon,PING_PONG=true,EARLY_RELEASE=false,KV_STAGES=3"),
        ("attention_fwd", NARROW, "fp16", {}, "template=gluon,CONSUMERS=3,PERSISTENT=true,KV_STAGES=4"),
        ("log_softmax", WIDE, "bf16", {}, "template=whole_row,PROGRAMS_PER_SM=1,LOAD_STAGES=3,num_warps=32"),
        ("log_softmax", LONG, "bf16", {}, "template=online,BLOCK_COLS=16384,PROGRAMS_PER_SM=1,num_warps=32"),
        ("log_softmax", LONG, "bf16", {}, "template=cooperative,USE_EXP2=true,LOAD_STAGES=2"),
        ("logsumexp", LONG, "bf16", {}, "template=online,USE_EXP2=true,LOAD_STAGES=3"),
        ("logsumexp", FEW, "fp32", {}, "template=split_row,SPLITS=8"),
        ("softmax_bwd", WIDE, "bf16", {}, "template=whole_row,PROGRAMS_PER_SM=1,LOAD_STAGES=2,num_warps=32"),
        ("softmax_bwd", LONG, "bf16", {}, "template=two_pass,BLOCK_COLS=8192,STREAM_HINTS=true,num_warps=16"),
        ("softmax_bwd", LONG, "bf16", {}, "template=cooperative"),
        ("cross_entropy", SHORT, "bf16", {}, "template=whole_row,USE_EXP2=true,num_warps=1"),
        ("cross_entropy", FEW, "fp16", {"label_smoothing": 0.1}, "template=online,BLOCK_COLS=8192,LOAD_STAGES=2"),
        ("cross_entropy", FEW, "fp32", {}, "template=split_row,SPLITS=8,LOAD_STAGES=2"),
        ("cross_entropy_bwd", LONG, "bf16", {"z_loss": 1e-4}, "template=row_tiles,STREAM_HINTS=true"),
        ("cross_entropy_bwd", LONG, "bf16", {}, "template=row_loop,BLOCK_COLS=8192,LOAD_STAGES=3"),
    ],
    "a100": [
        ("cross_entropy", FEW, "bf16", {}, "template=online,LOAD_STAGES=3"),
        ("softmax", WIDE, "bf16", {}, "template=persistent,LOAD_STAGES=2,STREAM_HINTS=true"),
        ("softmax", LONG, "bf16", {}, "template=cooperative,LOAD_STAGES=2,STREAM_HINTS=true"),
        ("attention_fwd", ODD, "fp16", CAUSAL, "template=pointer"),
        ("attention_fwd", ATTENTION, "fp32", {"allow_tf32": True}, "template=pointer,DOT_PRECISION=tf32"),
    ],
    "mi300x": [
        ("cross_entropy_bwd", LONG, "bf16", {}, "template=row_loop,STREAM_HINTS=true"),
        ("log_softmax", FEW, "bf16", {}, "template=split_row"),
        ("softmax", WIDE, "bf16", {}, "template=whole_row"),
        ("softmax", SHORT, "fp16", {}, "template=several_rows"),
        ("softmax", WIDE, "bf16", {}, "template=persistent,STREAM_HINTS=true"),
        ("softmax", LONG, "fp16", {}, "template=online,STREAM_HINTS=true"),
        ("softmax", FEW, "fp32", {}, "template=split_row"),
        ("attention_fwd", ODD, "bf16", CAUSAL, "template=pointer"),
        ("attention_fwd", ATTENTION, "fp32", {}, "template=pointer"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("device", COMPILED)
def test_templates_compile_for_a_gpu_that_is_not_there_and_fit_it(device, tmp_path):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    given = [(*case, device) for case in COMPILED[device]]
    answers = run("compile_variants.py", given, 400, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    for case, answer in zip(given, answers, strict=True):
        assert answer["shared_bytes"] <= answer["limit"], case
        assert answer["kernels"] == (2 if "split_row" in case[4] else 1), case
        assert min(answer["grid"]) >= 1, case
