"""Shapes that stand in for the tuned one in the interpreter."""

from __future__ import annotations

import pytest

from tuner.check_plan import plan
from tuner.operators import get
from tuner.operators.stand_ins import crowd, like
from tuner.precision import PrecisionProfile


def sizes(operator, shape, tiles, options=None, max_tiles=None):
    problem = get(operator).problem(shape, "bf16", options)
    return [at.sizes for at in get(operator).stand_ins(problem, tiles, max_tiles or {})]


@pytest.mark.parametrize(
    ("length", "tile", "most", "found"),
    [(1000, 64, 64, 1000), (4096, 64, 64, 4096), (8193, 64, 64, 4097), (5, 64, 1, 5), (1000, 32, 1, 40)],
)
def test_a_length_keeps_what_it_leaves_after_whole_tiles(length, tile, most, found):
    assert like(length, tile, most) == found and found % tile == length % tile


@pytest.mark.parametrize(("count", "found"), [(1, 1), (191, 191), (192, 160), (4096, 160), (4099, 163), (1000, 168)])
def test_a_crowd_is_no_smaller_than_a_gpu_and_keeps_what_it_leaves_after_whole_groups(count, found):
    assert crowd(count) == found


@pytest.mark.parametrize(
    ("q_len", "kv_len", "alike"),
    [
        (4096, 4096, (128, 128)),
        (1000, 1000, (168, 168)),
        (1000, 1041, (104, 145)),
        (64, 4096, (64, 128)),
        (70, 90, (70, 90)),
    ],
)
def test_lengths_and_their_difference_leave_what_the_tuned_ones_do(q_len, kv_len, alike):
    shape = {"batch": 2, "heads": 4, "q_len": q_len, "kv_len": kv_len, "head_dim": 64}
    first = sizes("attention_fwd", shape, {"q_len": 64, "kv_len": 32}, {"causal": True})[0]
    assert (first["q_len"], first["kv_len"]) == alike
    assert (kv_len - q_len - alike[1] + alike[0]) % 64 == 0 and (q_len == kv_len) == (alike[0] == alike[1])


def test_attention_has_many_tiles_of_keys_many_of_queries_and_many_programs():
    shape = {"batch": 3, "heads": 28, "kv_heads": 7, "q_len": 5000, "kv_len": 9000, "head_dim": 64}
    for name in ("attention_fwd", "attention_bwd"):
        _, keys, queries, crowded = sizes(name, shape, {"q_len": 64, "kv_len": 64})
        assert (keys["q_len"], keys["kv_len"]) == (21, 64 * 64 + 9000 % 64)
        assert (queries["q_len"], queries["kv_len"]) == (16 * 64 + 5000 % 64, 21)
        # Three of seven kv heads, groups of two for four, and as many tiles of queries as make 160 programs or more.
        assert (crowded["batch"], crowded["heads"], crowded["kv_heads"]) == (3, 6, 3)
        assert crowded["q_len"] == 8 * 64 + 21 and crowded["kv_len"] == 21


def test_a_small_problem_has_no_more_than_it_has():
    shape = {"batch": 1, "heads": 2, "q_len": 8, "kv_len": 20, "head_dim": 64}
    found = sizes("attention_fwd", shape, {"q_len": 64, "kv_len": 64})
    assert all(s["q_len"] <= 8 and s["kv_len"] <= 20 and s["heads"] <= 2 and s["batch"] == 1 for s in found)


def test_decoding_has_the_tuned_cache_and_many_sequences():
    shape = {"batch": 64, "heads": 32, "kv_heads": 8, "q_len": 2, "kv_len": 2048, "head_dim": 64, "page_size": 16}
    deep, crowded = sizes("attention_decode", shape, {"kv_len": 64})
    assert (deep["kv_len"], deep["batch"], deep["heads"], deep["kv_heads"]) == (2048, 1, 4, 1)
    assert (crowded["batch"], crowded["heads"], crowded["kv_heads"], crowded["kv_len"]) == (40, 8, 4, 21)
    assert deep["q_len"] == crowded["q_len"] == 2 and deep["page_size"] == crowded["page_size"] == 16


def test_rows_are_many_of_the_shortest_and_few_of_the_tuned_length():
    tuned = {"rows": 4096, "cols": 1000, "row_stride": 1040}
    few, many = sizes("softmax", tuned, {"cols": 1024}, max_tiles={"cols": 1})
    assert few == {"rows": 3, "cols": 1000, "row_stride": 1040}
    assert many["rows"] == 160 and 512 < many["cols"] < 1000 and many["row_stride"] > many["cols"]
    # With several tiles the tuned row is among the small problems.
    assert [s["rows"] for s in sizes("log_softmax", tuned, {"cols": 64})] == [160]
    few, many = sizes("softmax_topk", {**tuned, "k": 100}, {"cols": 1024}, max_tiles={"cols": 1})
    assert few["cols"] == 1000 and few["k"] == many["k"] == 7


def test_the_interpreter_runs_them_and_a_gpu_runs_the_tuned_shape():
    problem = get("softmax").problem({"rows": 4096, "cols": 1000, "row_stride": 1040}, "bf16")
    given = (get("softmax"), problem, {"cols": 1024}, {"cols": 1}, PrecisionProfile("bf16", "bf16"))
    *_, few, many = plan(*given, full_size=False).checks
    assert (few.problem.sizes["cols"], few.name) == (1000, "randn")
    assert (many.problem.sizes["rows"], many.name) == (160, "randn (strided, last program first)")
    assert not any(c.backwards for c in plan(*given, full_size=True).checks)


@pytest.mark.parametrize("full_size", [True, False])
@pytest.mark.parametrize(
    ("name", "lengths"), [("attention_fwd", ("q_len", "kv_len")), ("attention_varlen", ("max_len", "max_kv_len"))]
)
def test_layouts_are_tried_where_there_are_several_batches_and_heads(name, lengths, full_size):
    shape = {"batch": 8, "heads": 8, "kv_heads": 4, "head_dim": 64, **dict.fromkeys(lengths, 512)}
    problem, profile = get(name).problem(shape, "bf16"), PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit")
    checks = plan(get(name), problem, dict.fromkeys(lengths, 64), {}, profile, full_size=full_size).checks
    strided = [c.problem.sizes for c in checks if c.strided]
    assert any(s["batch"] > 1 and s["kv_heads"] > 1 for s in strided)
