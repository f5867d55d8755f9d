"""What the shipped search spaces offer: sizes that can be searched, sane plain configs, configs known to be fast."""

from __future__ import annotations

from functools import cache

import pytest

from tuner.operators import get
from tuner.space import BoundSpace, load_space
from tuner.targets import target

SOFTMAX_SHAPES = [(4096, 1024), (4096, 4096), (4096, 32768), (8192, 131072)]
# batch, heads, length, head_dim, causal
ATTENTION_SHAPES = [
    (4, 32, 4096, 128, False),
    (4, 32, 4096, 128, True),
    (4, 32, 4096, 64, True),
    (16, 32, 1024, 128, True),
    (1, 32, 16384, 128, True),
]


@cache
def softmax(rows: int, cols: int, dtype: str = "bf16", device: str = "h200") -> BoundSpace:
    problem = get("softmax").problem({"rows": rows, "cols": cols}, dtype)
    return load_space("softmax").bind(problem, target(device))


@cache
def attention(
    batch: int,
    heads: int,
    length: int,
    head_dim: int,
    causal: bool,
    dtype: str = "bf16",
    device: str = "h200",
    allow_tf32: bool = False,
) -> BoundSpace:
    shape = {"batch": batch, "heads": heads, "q_len": length, "head_dim": head_dim}
    return load_space("attention_fwd").bind(
        get("attention_fwd").problem(shape, dtype, {"causal": causal, "allow_tf32": allow_tf32}), target(device)
    )


@pytest.mark.parametrize("shape", SOFTMAX_SHAPES)
def test_the_softmax_space_is_large_enough_to_search_and_small_enough_to_finish(shape):
    assert 500 <= softmax(*shape).size() <= 3000


@pytest.mark.parametrize("shape", ATTENTION_SHAPES)
def test_the_attention_space_is_large_enough_to_search_and_small_enough_to_finish(shape):
    assert 400 <= attention(*shape).size() <= 3000


def test_the_space_for_full_attention_can_be_enumerated():
    assert 400 <= attention(4, 32, 4096, 128, False).size() <= 1000


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((4096, 1024), "template=whole_row,num_warps=1"),
        ((4096, 1024), "template=whole_row,num_warps=2"),
        ((4096, 4096), "template=whole_row,num_warps=4"),
        ((4096, 32768), "template=whole_row,RECOMPUTE_EXP=true,num_warps=32"),
        ((4096, 32768), "template=persistent,LOAD_STAGES=3,PROGRAMS_PER_SM=1,BALANCE=true,num_warps=32"),
        ((8192, 131072), "template=cooperative,SPLITS=16,PROGRAMS_PER_SM=5,MAX_REGISTERS=96,num_warps=4"),
        ((8192, 131072), "template=online,BLOCK_COLS=16384,PROGRAMS_PER_SM=1,STREAM_HINTS=true,num_warps=32"),
    ],
)
def test_softmax_configs_measured_to_be_fast_are_in_the_space(shape, text):
    softmax(*shape).parse(text)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (ATTENTION_SHAPES[0], "template=descriptor,BLOCK_M=128,BLOCK_N=64,num_warps=4,KV_STAGES=2"),
        (ATTENTION_SHAPES[1], "template=descriptor,BLOCK_M=128,BLOCK_N=64,num_warps=4,KV_STAGES=2"),
        (ATTENTION_SHAPES[2], "template=descriptor,BLOCK_M=64,BLOCK_N=128,num_warps=4,KV_STAGES=2"),
        (ATTENTION_SHAPES[3], "template=descriptor,BLOCK_M=64,BLOCK_N=64,num_warps=4,KV_STAGES=3"),
        (ATTENTION_SHAPES[4], "template=descriptor,BLOCK_M=128,BLOCK_N=64,num_warps=4,KV_STAGES=2"),
        (ATTENTION_SHAPES[0], "template=gluon,PING_PONG=true,EARLY_RELEASE=false,PERSISTENT=true,HEAD_GROUP=1"),
        (ATTENTION_SHAPES[1], "template=gluon,PING_PONG=false,EARLY_RELEASE=true,PERSISTENT=false,HEAD_GROUP=4"),
        (ATTENTION_SHAPES[2], "template=gluon,PING_PONG=true,EARLY_RELEASE=true,PERSISTENT=true,HEAD_GROUP=16"),
        (ATTENTION_SHAPES[3], "template=gluon,PING_PONG=true,EARLY_RELEASE=false,PERSISTENT=true,HEAD_GROUP=4"),
        (ATTENTION_SHAPES[4], "template=gluon,PING_PONG=false,EARLY_RELEASE=true,PERSISTENT=false,HEAD_GROUP=4"),
    ],
)
def test_attention_configs_measured_to_be_fast_are_in_the_space(shape, text):
    attention(*shape).parse(text)


def test_balancing_gives_every_program_the_same_number_of_rows():
    # 4096 rows on 132 programs are 32 rounds for 4 of them and 31 for the rest; on 128 they are 32 for all.
    space = softmax(4096, 32768)
    balanced = space.parse("template=persistent,LOAD_STAGES=3,PROGRAMS_PER_SM=1,BALANCE=true,num_warps=32")
    assert space.launch_arguments(balanced)["NUM_PROGRAMS"] == 128
    other = space.parse("template=persistent,LOAD_STAGES=3,PROGRAMS_PER_SM=1,BALANCE=false,num_warps=32")
    assert space.launch_arguments(other)["NUM_PROGRAMS"] == 132


def test_the_groups_of_the_cooperative_softmax_are_whole_and_fit_the_device():
    space = softmax(8192, 131072)
    for config in space.configs():
        if config.template == "cooperative":
            values = config.values
            assert values["NUM_PROGRAMS"] % values["SPLITS"] == 0
            assert values["NUM_PROGRAMS"] <= 132 * values["PROGRAMS_PER_SM"]
            assert values["BLOCK_COLS"] * values["SPLITS"] == 131072


def test_a_cluster_is_offered_for_16_bits_where_there_are_clusters_and_holds_what_fits():
    space = softmax(8192, 131072)
    held = [c.values for c in space.configs() if c.template == "cluster"]
    assert {values["CLUSTER"] for values in held} == {2, 4, 8}
    for values in held:
        shared = values["SHARED_HALVES"] * values["BLOCK_COLS"]  # halves of a part, two bytes an element
        in_registers = (2 - values["SHARED_HALVES"]) * values["BLOCK_COLS"] // 2
        assert shared <= 32768
        assert in_registers <= 64 * 32 * values["num_warps"]
    wide = get("softmax").problem({"rows": 8192, "cols": 131072}, "fp32")
    assert "cluster" not in load_space("softmax").bind(wide, target("h200")).templates
    half = get("softmax").problem({"rows": 8192, "cols": 131072}, "fp16")
    assert "cluster" not in load_space("softmax").bind(half, target("a100")).templates


def test_no_two_configs_are_the_same_launch():
    for space in (softmax(4096, 4096), softmax(4096, 32768), attention(4, 32, 4096, 128, False)):
        seen = {}
        for config in space.configs():
            launch = (config.template, config.switches, tuple(space.launch_arguments(config).items()))
            assert launch not in seen, (seen[launch], config.label)
            seen[launch] = config.label


@pytest.mark.parametrize(
    ("rows", "cols", "templates"),
    [
        (1, 1, ("whole_row", "online")),
        (7, 37, ("whole_row", "several_rows", "online")),
        (5000, 65536, ("whole_row", "persistent", "online", "cooperative", "cluster")),
        (5000, 65537, ("online", "cooperative", "cluster")),
        (4, 1_000_000, ("online", "split_row")),
        (1_000_000, 1, ("whole_row", "several_rows", "online")),
    ],
)
def test_every_softmax_shape_has_templates(rows, cols, templates):
    assert softmax(rows, cols).templates == templates


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("head_dim", [16, 40, 64, 72, 128, 160, 256])
@pytest.mark.parametrize("device", ["a100", "rtx4090", "h200", "b200", "mi300x"])
def test_every_attention_problem_has_a_plain_config_on_every_device(device, head_dim, dtype):
    space = attention(2, 8, 3000, head_dim, True, dtype, device)
    powers_of_two = (16, 64, 128, 256)
    expected = ("pointer", "descriptor") if device in ("h200", "b200") and head_dim in powers_of_two else ("pointer",)
    warpgroups = device == "h200" and head_dim in (64, 128) and dtype != "fp32"
    assert space.templates == ((*expected, "gluon") if warpgroups else expected)
    plain = space.plain()[0].values
    # What runs unless something faster is found takes fp32 products as they are.
    assert plain["DOT_PRECISION"] == "ieee"
    assert plain["TILE_ORDER"] == "ascending"


@pytest.mark.parametrize("device", ["a100", "rtx4090", "h200", "b200", "mi300x"])
@pytest.mark.parametrize("shape", SOFTMAX_SHAPES)
def test_every_softmax_problem_has_a_plain_config_on_every_device(device, shape):
    space = softmax(*shape, device=device)
    assert len(space.plain()) == len(space.templates) >= 1
    # `cluster` has no such switch: its exchange is in base 2.
    assert {config.template: config.values.get("USE_EXP2") for config in space.plain()} == {
        name: None if name == "cluster" else False for name in space.templates
    }


def test_two_tiles_of_q_are_held_where_programs_stay_and_there_is_room():
    space = attention(4, 32, 4096, 128, True)
    held = {
        (stages, stay): space.parse(f"template=gluon,KV_STAGES={stages},PERSISTENT={stay}").values["Q_STAGES"]
        for stages in (2, 3)
        for stay in ("true", "false")
    }
    assert held == {(2, "true"): 2, (2, "false"): 1, (3, "true"): 1, (3, "false"): 1}


def test_what_a_triton_lacks_is_left_out_and_said():
    problem = get("attention_fwd").problem({"batch": 1, "heads": 2, "q_len": 300, "head_dim": 64}, "bf16")
    space = load_space("attention_fwd").bind(problem, target("h200"), triton_version="3.5.1")
    assert space.templates == ("pointer", "descriptor")
    assert space.refused == {"gluon": "needs Triton 3.6 for triton.experimental.gluon; this is 3.5.1"}
    assert "gluon" in load_space("attention_fwd").bind(problem, target("h200"), triton_version="3.6.0").templates


def test_the_products_of_fp32_attention_are_declared_as_they_are_taken():
    space = attention(2, 8, 3000, 64, False, "fp32")
    assert {config.values["DOT_PRECISION"] for config in space.configs()} == {"ieee"}, "tf32 is asked for, not assumed"
    space = attention(2, 8, 3000, 64, False, "fp32", allow_tf32=True)
    declared = {config.values["DOT_PRECISION"]: space.precision(config).dot for config in space.configs()}
    assert declared == {"ieee": "ieee", "tf32": "tf32"}
    space = attention(2, 8, 3000, 64, False, "fp16")
    assert {space.precision(config).dot for config in space.configs()} == {"16bit"}
    assert {space.precision(config).p for config in space.configs()} == {"fp16"}


def test_the_order_of_query_tiles_is_searched_where_their_work_differs():
    assert "longest_first" not in {c.values.get("TILE_ORDER") for c in attention(4, 32, 4096, 128, False).configs()}
    assert "longest_first" in {c.values.get("TILE_ORDER") for c in attention(4, 32, 4096, 128, True).configs()}


def test_only_what_the_interpreter_cannot_run_needs_a_gpu():
    spaces = [load_space("softmax"), load_space("attention_fwd")]
    assert [name for space in spaces for name, template in space.templates.items() if template.needs_gpu] == [
        "cooperative",
        "cluster",
        "gluon",
    ]
