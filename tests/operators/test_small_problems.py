"""Small problems: ragged, of several tiles, and in the tuned problem's specialisation classes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.operators import get
from tuner.operators.small_problems import integer_class, interpreted_row, small_heads

TILES = st.sampled_from([16, 32, 64, 128])


def attention_problem(q_len, kv_len, heads, kv_heads, head_dim, causal):
    shape = {"batch": 4, "heads": heads, "kv_heads": kv_heads, "q_len": q_len, "kv_len": kv_len, "head_dim": head_dim}
    return get("attention_fwd").problem(shape, "bf16", {"causal": causal})


@pytest.mark.parametrize(
    ("value", "name"), [(1, "one"), (16, "aligned"), (4096, "aligned"), (8, "other"), (17, "other")]
)
def test_integer_classes_are_those_that_triton_specialises_on(value, name):
    assert integer_class(value) == name


@settings(max_examples=60, deadline=None)
@given(
    q_len=st.integers(1, 5000),
    kv_len=st.integers(2, 5000),
    group=st.sampled_from([1, 2, 4, 7, 8]),
    kv_heads=st.sampled_from([1, 2, 4, 8, 16]),
    head_dim=st.sampled_from([16, 40, 64, 72, 128, 256]),
    q_tile=TILES,
    kv_tile=TILES,
    causal=st.booleans(),
)
def test_every_integer_that_a_launch_can_pass_keeps_its_class(
    q_len, kv_len, group, kv_heads, head_dim, q_tile, kv_tile, causal
):
    tuned = attention_problem(q_len, kv_len, group * kv_heads, kv_heads, head_dim, causal)

    def integers(problem):
        s = problem.sizes
        yield from (s["heads"], s["kv_heads"], s["heads"] // s["kv_heads"], s["q_len"], s["kv_len"])
        yield from (s["q_len"] * s["head_dim"], s["kv_len"] * s["head_dim"])
        yield from (s["heads"] * s["q_len"], s["heads"] * s["q_len"] * s["head_dim"])
        yield from (s["kv_heads"] * s["kv_len"] * s["head_dim"],)

    wanted = [integer_class(n) for n in integers(tuned)]
    for small in get("attention_fwd").check_problems(tuned, {"q_len": q_tile, "kv_len": kv_tile}, {}):
        assert [integer_class(n) for n in integers(small)] == wanted
        assert small.dtype == tuned.dtype and small.options == tuned.options


def test_the_main_attention_problem_has_three_tiles_of_keys_and_a_ragged_tail():
    tuned = attention_problem(4096, 4096, 32, 8, 128, False)
    main = get("attention_fwd").check_problems(tuned, {"q_len": 128, "kv_len": 64}, {})[0].sizes
    assert main["kv_len"] > 3 * 64 and main["kv_len"] % 64
    assert main["q_len"] > 2 * 128 and main["q_len"] % 128
    assert main["heads"] // main["kv_heads"] == 4


def test_causal_problems_have_more_keys_more_queries_and_a_tile_of_dead_rows():
    tuned = attention_problem(4096, 4096, 32, 32, 64, True)
    sizes = [p.sizes for p in get("attention_fwd").check_problems(tuned, {"q_len": 64, "kv_len": 128}, {})]
    assert any(s["kv_len"] > s["q_len"] > 64 for s in sizes)
    assert any(s["q_len"] - s["kv_len"] >= 64 for s in sizes)
    assert any(s["q_len"] == s["kv_len"] for s in sizes)


def test_whole_tiles_many_tiles_of_keys_and_many_of_queries_are_among_them():
    tuned = attention_problem(4096, 4096, 32, 8, 128, False)
    sizes = [p.sizes for p in get("attention_fwd").check_problems(tuned, {"q_len": 64, "kv_len": 32}, {})]
    assert any(s["q_len"] % 64 == 0 and s["kv_len"] % 32 == 0 and s["kv_len"] >= 96 for s in sizes)
    assert any(s["kv_len"] > 7 * 32 for s in sizes)
    assert any(s["q_len"] > 7 * 64 for s in sizes)


def test_one_query_stays_one_query():
    tuned = attention_problem(1, 4096, 32, 8, 128, True)
    assert {p.sizes["q_len"] for p in get("attention_fwd").check_problems(tuned, {"kv_len": 64}, {})} == {1}


@pytest.mark.parametrize(
    ("heads", "kv_heads", "small"),
    [(32, 8, (16, 4)), (32, 32, (16, 16)), (28, 4, (14, 2)), (8, 1, (8, 1)), (1, 1, (1, 1))],
)
def test_few_heads_keep_the_grouping_and_the_classes(heads, kv_heads, small):
    assert small_heads(heads, kv_heads, same_binary=True) == small


@settings(max_examples=60, deadline=None)
@given(cols=st.integers(2, 200000), gap=st.sampled_from([0, 1, 8, 16, 100]), tile=st.sampled_from([64, 1024, 4096]))
def test_small_softmax_problems_keep_the_classes_of_columns_and_stride(cols, gap, tile):
    softmax = get("softmax")
    tuned = softmax.problem({"rows": 4096, "cols": cols, "row_stride": cols + gap}, "bf16")
    small = softmax.check_problems(tuned, {"cols": tile}, {})
    for problem in small:
        s = problem.sizes
        assert integer_class(s["cols"]) == integer_class(cols)
        assert integer_class(s["row_stride"]) == integer_class(cols + gap)
        assert (s["row_stride"] == s["cols"]) == (gap == 0)
    assert small[0].sizes["cols"] > 3 * tile and small[0].sizes["cols"] % tile
    assert max(p.sizes["cols"] for p in small) > 7 * tile


@pytest.mark.parametrize("cols", [600, 1000, 1024, 1008])
def test_a_whole_row_template_gets_columns_that_its_block_was_made_for(cols):
    softmax = get("softmax")
    tuned = softmax.problem({"rows": 64, "cols": cols}, "fp16")
    small = [p.sizes["cols"] for p in softmax.check_problems(tuned, {"cols": 1024}, {"cols": 1})]
    assert small and all(512 < n <= 1024 for n in small)
    assert any(n % 1024 for n in small)


def test_interpreter_problems_are_small_and_still_ragged():
    tuned = attention_problem(4096, 4096, 32, 8, 128, False)
    small = get("attention_fwd").check_problems(tuned, {"q_len": 128, "kv_len": 128}, {}, same_binary=False)
    assert small[0].sizes["heads"] == small[0].sizes["batch"] == 1
    assert any(p.sizes["heads"] == 16 and p.sizes["kv_heads"] == 4 and p.sizes["batch"] == 3 for p in small)
    # A second tile of queries and of keys that belongs to another batch and head than the first.
    assert any(
        p.sizes["batch"] > 1 < p.sizes["kv_heads"] and 128 < p.sizes["q_len"] < 256 > p.sizes["kv_len"] > 128
        for p in small
    )


@pytest.mark.parametrize(
    ("heads", "kv_heads", "batches", "seen"),
    [(32, 8, 3, (16, 4)), (64, 8, 3, (16, 2)), (28, 4, 3, (14, 2)), (64, 4, 2, (32, 2)), (71, 1, 1, (71, 1))],
)
def test_the_interpreter_meets_whole_groups_of_heads(heads, kv_heads, batches, seen):
    for name in ("attention_fwd", "attention_bwd", "attention_decode"):
        operator = get(name)
        shape = {"batch": 8, "heads": heads, "kv_heads": kv_heads, "q_len": 8, "kv_len": 512, "head_dim": 64}
        tuned = operator.problem(shape, "bf16")
        last = operator.check_problems(tuned, {"q_len": 16, "kv_len": 32}, {}, same_binary=False)[-1].sizes
        assert (last["heads"], last["kv_heads"]) == seen
        assert last["batch"] == batches or name == "attention_decode"


def test_the_interpreter_meets_as_many_tiles_of_queries_as_the_tuned_problem_has_up_to_16():
    def most_queries(q_len):
        tuned = attention_problem(q_len, 64, 8, 8, 64, False)
        tiles = {"q_len": 32, "kv_len": 32}
        return max(p.sizes["q_len"] for p in get("attention_fwd").check_problems(tuned, tiles, {}, same_binary=False))

    assert (most_queries(4096), most_queries(320), most_queries(64)) == (16 * 32 + 1, 10 * 32 + 1, 7 * 32 + 1)


def test_the_interpreter_meets_as_many_tiles_of_keys_as_the_tuned_problem_has_up_to_64():
    def most_keys(kv_len):
        tuned = attention_problem(256, kv_len, 8, 8, 64, False)
        tiles = {"q_len": 64, "kv_len": 32}
        return max(p.sizes["kv_len"] for p in get("attention_fwd").check_problems(tuned, tiles, {}, same_binary=False))

    assert 64 * 32 < most_keys(8192) < 65 * 32 and most_keys(320) // 32 == 10 and most_keys(64) // 32 == 7


def test_the_interpreter_runs_no_row_of_millions_but_what_the_tuned_one_leaves():
    assert [interpreted_row(cols) for cols in (1000, 2**18, 2**18 + 7, 10_000_000)] == [
        1000,
        2**18,
        2**18 + 7,
        2**18 + 10_000_000 % 2**14,
    ]
    problem = get("softmax").problem({"rows": 2, "cols": 10_000_000, "row_stride": 10_000_016}, "fp16")
    tiles = {"cols": 8192}
    shapes = [p.sizes for p in get("softmax").check_problems(problem, tiles, {}, same_binary=False)]
    shapes += [p.sizes for p in get("softmax").stand_ins(problem, tiles, {})]
    assert max(shape["cols"] for shape in shapes) == 2**18 + 10_000_000 % 2**14
    assert all(shape["row_stride"] >= shape["cols"] for shape in shapes)
    on_a_gpu = get("softmax").check_problems(problem, tiles, {}, same_binary=True)
    assert max(p.sizes["cols"] for p in on_a_gpu) == 10_000_000
