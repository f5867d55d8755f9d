"""Layouts in which every tensor has strides of its own."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.operators import get
from tuner.operators.layouts import far_strides, own_row_strides, own_strides
from tuner.operators.small_problems import integer_class

SIZES = st.integers(1, 9)


def overlaps(shape, strides) -> bool:
    """Whether two elements lie at one place."""
    places = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(shape, strides, strict=True):
        places = places[..., None] + torch.arange(size) * stride
    return len(places.unique()) < math.prod(shape)


@settings(max_examples=60, deadline=None)
@given(shapes=st.lists(st.tuples(SIZES, SIZES, SIZES, st.sampled_from([16, 24, 40, 64])), min_size=2, max_size=8))
def test_no_two_tensors_share_a_stride_and_each_stays_in_its_class(shapes):
    named = {f"t{number}": (*shape[:3], shapes[0][3]) for number, shape in enumerate(shapes)}
    found = own_strides(named)
    for one, other in itertools.combinations(found.values(), 2):
        assert all(a != b for a, b in zip(one[:-1], other[:-1], strict=True))
    for name, shape in named.items():
        assert found[name][-1] == 1 and not overlaps(shape, found[name])
        contiguous = torch.empty(shape, device="meta").stride()
        assert [integer_class(s) for s in found[name]] == [integer_class(s) for s in contiguous]
        assert all(s % math.gcd(shape[-1], 16) == 0 for s in found[name][:-1])


def test_tensors_lie_in_different_orders():
    named = dict.fromkeys("qkvo", (3, 5, 7, 32))
    orders = [sorted(range(3), key=lambda axis: -strides[axis]) for strides in own_strides(named).values()]
    assert orders == [[0, 2, 1], [0, 1, 2], [2, 0, 1], [1, 0, 2]]


@pytest.mark.parametrize(("stride", "step"), [(1040, 16), (1002, 1), (1008, 16), (1036, 4)])
def test_rows_of_each_matrix_are_as_far_apart_as_those_of_no_other(stride, step):
    found = own_row_strides(("y", "dy", "dx"), stride)
    strides = [row for row, one in found.values() if one == 1]
    assert sorted(set(strides)) == strides and len(strides) == 3 and strides[0] == stride
    assert all(integer_class(s) == integer_class(stride) and s % step == 0 for s in strides)


def test_contiguous_rows_stay_contiguous():
    softmax = get("softmax")
    assert softmax.strides(softmax.problem({"rows": 4, "cols": 64}, "bf16")) == {}
    gap = softmax.problem({"rows": 4, "cols": 64, "row_stride": 80}, "bf16")
    assert softmax.strides(gap) == {"x": (80, 1), "out": (96, 1)}
    # One matrix, which no other can be taken for.
    topk = get("softmax_topk")
    assert topk.strides(topk.problem({"rows": 4, "cols": 64, "k": 2, "row_stride": 80}, "bf16")) == {}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("attention_fwd", {}),
        ("attention_bwd", {}),
        ("attention_decode", {}),
        ("attention_decode", {"page_size": 16}),
    ],
)
def test_every_tensor_with_a_head_dim_has_a_layout_of_its_own(name, more):
    operator = get(name)
    shape = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 5, "kv_len": 40, "head_dim": 32, **more}
    problem = operator.problem(shape, "bf16")
    tensors = {**operator.timing_inputs(problem, 0, "meta"), **operator.output_specs(problem)}
    wide = {n: tuple(t.shape) for n, t in tensors.items() if len(t.shape) == 4}
    found = operator.strides(problem)
    assert set(found) == set(wide) and not any(overlaps(wide[n], found[n]) for n in wide)


def test_what_overflows_32_bits_in_the_tuned_tensors_does_so_in_small_ones():
    tuned = {
        "x": ((70_000, 40_000), (40_000, 1)),  # the last row begins beyond 2^31
        "k": ((4, 8, 2**22, 64), (2**31, 2**28, 64, 1)),  # batches do, heads (7 * 2^28) and keys do not
        "targets": ((70_000,), (1,)),
    }
    small = {"x": (160, 50), "k": (3, 2, 40, 64), "targets": (160,)}
    found = far_strides(tuned, small)
    assert set(found) == {"x", "k"}
    assert 2**31 <= 159 * found["x"][0] < 2**31 + 160 * 16 and found["x"][1] == 1
    assert 2 * found["k"][0] >= 2**31 and found["k"][1:] == (40 * 64, 64, 1)
    assert far_strides({"x": ((60_000, 32_768), (32_768, 1))}, {"x": (160, 50)}) == {}
