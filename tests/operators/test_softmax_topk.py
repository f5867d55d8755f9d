"""softmax_topk: its order, its reference against torch's sort, what its check can see, and its self-check."""

from __future__ import annotations

import math
import runpy

import pytest
import torch

from tuner.check_plan import plan
from tuner.errors import ProblemError
from tuner.operators import get, row_blocks
from tuner.operators.topk_bound import largest
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache

TOPK = get("softmax_topk")
INF, NAN = math.inf, math.nan
BF16 = PrecisionProfile("bf16", "bf16", tiles=4)


def problem(dtype="bf16", **changes):
    return TOPK.problem({"rows": 7, "cols": 301, "k": 5, "row_stride": 320, **changes}, dtype)


def by_sorting(x, k):
    """Values and indices by torch's own softmax and sort, in float64."""
    x = x.double()
    indices = torch.sort(x + 0.0, dim=1, descending=True, stable=True).indices[:, :k]
    values = torch.softmax(x, 1)
    undefined = values.isnan().any(dim=1, keepdim=True)
    indices = torch.where(undefined, torch.arange(k), indices)
    return values.gather(1, indices), indices


@pytest.mark.parametrize(
    ("row", "k", "indices"),
    [
        ([1.0, 3.0, 2.0, 4.0], 3, [3, 1, 2]),
        ([2.0, 1.0, 2.0, 2.0], 2, [0, 2]),
        ([-0.0, 0.0, -0.0, 0.0], 3, [0, 1, 2]),
        ([-INF, -1.0, -INF, -INF], 3, [1, 0, 2]),
        ([-INF, -INF, -INF, -INF], 2, [0, 1]),
        ([1.0, NAN, 3.0, 4.0], 2, [0, 1]),
        ([1.0, 2.0, 3.0, INF], 3, [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_order_is_of_the_values_and_then_of_the_columns(row, k, indices, dtype):
    other = [0.0, 1.0, 2.0, 3.0]
    found = largest(torch.tensor([other, row], dtype=dtype), k)
    assert found.tolist() == [[3, 2, 1][:k], indices]


@pytest.mark.parametrize("family", TOPK.families(TOPK.example()))
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_the_reference_is_torchs_softmax_and_a_stable_sort(family, dtype):
    for at in (problem(dtype), problem(dtype, k=100), problem(dtype, cols=1, k=1, row_stride=1)):
        inputs = TOPK.make_inputs(at, family, 1, "cpu")
        reference = TOPK.reference(at, inputs, PrecisionProfile(dtype, dtype, tiles=3))
        values, indices = by_sorting(inputs["x"], at.sizes["k"])
        torch.testing.assert_close(reference.outputs["values"].expected, values, equal_nan=True)
        assert torch.equal(reference.outputs["indices"].expected, indices.double())
        assert bool((reference.outputs["indices"].bound == 0.0).all())
        assert reference.outputs["values"].variance is None
        assert reference.outputs["values"].has_nan == bool(values.isnan().any())


def test_a_large_problem_is_compared_on_spread_rows(monkeypatch):
    monkeypatch.setattr(row_blocks, "_WHOLE", 1000)
    monkeypatch.setattr(row_blocks, "_SELECTED", 20 * 300)
    monkeypatch.setattr(row_blocks, "BLOCK_ELEMENTS", 900)
    at = problem(rows=1000, cols=300)
    inputs = TOPK.make_inputs(at, "ties", 1, "cpu")
    outputs = TOPK.reference(at, inputs, BF16).outputs
    rows = outputs["indices"].index[0]
    values, indices = by_sorting(inputs["x"][rows], 5)
    assert len(rows) == 20 and torch.equal(outputs["values"].index[0], rows)
    assert torch.equal(outputs["indices"].expected, indices.double())
    torch.testing.assert_close(outputs["values"].expected, values)


def test_its_own_families_are_of_equal_elements_and_of_neighbours():
    at = problem("fp16", cols=4000, row_stride=4000, k=8)
    x = TOPK.make_inputs(at, "ties", 3, "cpu")["x"]
    assert int((x[1] == 1.0).sum()) > 200 and float(x[1].max()) == 1.0
    zeros = x[0][x[0] == 0.0]
    assert float(x[0].max()) == 0.0 and 100 < int(torch.signbit(zeros).sum()) < len(zeros) - 100
    _, indices = by_sorting(TOPK.make_inputs(at, "clustered", 3, "cpu")["x"], 8)
    together, apart = indices[2].sort().values, indices[1].sort().values
    assert int(together[-1] - together[0]) < 16
    assert set((apart[1:] - apart[:-1]).tolist()) & {1024}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cols": 4}, "k must be at most cols, but got 5 > 4"),
        ({"k": 129}, "k must be between 1 and 128, but got 129"),
        ({"k": 0}, "k must be between 1 and 128, but got 0"),
        ({"row_stride": 300}, "softmax_topk: row_stride must be at least cols"),
    ],
)
def test_a_shape_that_means_nothing_is_refused(changes, message):
    with pytest.raises(ProblemError, match=message):
        problem(**changes)


def test_figures_and_outputs():
    at = problem("fp16", rows=10, cols=70, row_stride=70, k=3)
    assert TOPK.flops(at) == 4 * 700 + 30
    assert TOPK.bytes_moved(at) == 700 * 2 + 30 * (2 + 8)
    assert TOPK.exponentials(at) == 700.0
    specs = TOPK.output_specs(at)
    assert [(name, s.shape, s.dtype, s.strides) for name, s in specs.items()] == [
        ("values", (10, 3), "fp16", None),
        ("indices", (10, 3), "int64", None),
    ]


def test_small_problems_keep_k_where_it_is_compiled_in_and_have_as_many_columns():
    at = problem(rows=4096, cols=5003, row_stride=5003, k=100)
    small = TOPK.check_problems(at, {"cols": 64}, {})
    assert {p.sizes["k"] for p in small} == {100} and all(p.sizes["cols"] >= 100 for p in small)
    narrow = problem(rows=4096, cols=128, row_stride=128, k=128)
    assert [p.sizes for p in TOPK.check_problems(narrow, {"cols": 128}, {"cols": 1})] == [
        {"rows": 16, "cols": 128, "k": 128, "row_stride": 128}
    ]
    short = problem(rows=64, cols=8, row_stride=8, k=8)
    taken = TOPK.check_problems(short, {"cols": 64}, {"cols": 1}, same_binary=False)
    assert any(p.sizes["cols"] == p.sizes["k"] == 8 for p in taken)


@pytest.mark.parametrize(("k", "interpreted"), [(1, 1), (5, 5), (8, 8), (100, 7), (128, 8)])
def test_in_the_interpreter_k_is_small_but_for_two_rows_of_the_problems_own(k, interpreted):
    at = problem(rows=4096, cols=5003, row_stride=5003, k=k)
    *small, last = TOPK.check_problems(at, {"cols": 64}, {}, same_binary=False)
    assert {p.sizes["k"] for p in small} == {interpreted}
    assert last.sizes["k"] == k and (k <= 8 or (last.sizes["rows"] == 2 and k <= last.sizes["cols"] < 5003))


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(("rows", "k", "tile"), [(1, 1, 64), (1, 5, 64), (1, 8, 2048), (40, 1, 64), (40, 8, 64)])
def test_the_plan_shows_every_classical_error(rows, k, tile, dtype):
    at = problem(dtype, rows=rows, k=k)
    checks = plan(TOPK, at, {"cols": tile}, {}, PrecisionProfile(dtype, dtype, tiles=4), full_size=False)
    errors = TOPK.classical_errors(checks.checks[0].problem, checks.tiles)
    assert len(errors) == 19 + (k > 1) * 2 + (rows > 1)
    assert hidden_errors(TOPK, checks, "cpu", 0, ReferenceCache()) == ()


def test_each_error_of_the_selection_differs_from_the_right_answer():
    at = problem(cols=300, k=5)
    inputs = TOPK.make_inputs(at, "ties", 0, "cpu")
    values, indices = by_sorting(inputs["x"], 5)
    right = TOPK.wrong_answer(at, inputs, "none of them", {"cols": 64})
    torch.testing.assert_close(right["values"][1], values)
    assert torch.equal(right["indices"][1], indices.double())
    found = TOPK.wrong_answer(at, inputs, "the largest lost", {"cols": 64})["indices"][1]
    assert torch.equal(found[:, :4], indices[:, 1:].double())
    found = TOPK.wrong_answer(at, inputs, "a tile not searched", {"cols": 64})["indices"][1]
    assert not bool(((found >= 128) & (found < 192)).any())


def test_the_invariant_holds_for_right_outputs_and_for_no_others():
    at = problem(rows=40, cols=300, row_stride=300)
    x = TOPK.make_inputs(at, "randn", 0, "cpu")
    invariant = TOPK.invariant(at, x, BF16)
    values, indices = by_sorting(x["x"], 5)
    values = values.to(torch.bfloat16)
    assert torch.equal(invariant.inputs["x"], x["x"])
    assert float(invariant.excess({"values": values, "indices": indices})) < 1.0
    off = values.clone()
    off[30, 4] *= 1.02
    assert float(invariant.excess({"values": off, "indices": indices})) > 1.0
    off[30, 4] = NAN
    assert float(invariant.excess({"values": off, "indices": indices})) == INF
    for column in (-1, 300, int(indices[30, 3]), int(x["x"][30].argmin())):
        wrong = indices.clone()
        wrong[30, 4] = column
        assert float(invariant.excess({"values": values, "indices": wrong})) == INF
    x["x"][30, :] = 1.0
    even = TOPK.invariant(at, x, BF16)
    values[30], indices[30] = 1.0 / 300, torch.tensor([0, 1, 2, 3, 4])
    assert float(even.excess({"values": values, "indices": indices})) < 1.0
    indices[30] = torch.tensor([0, 1, 2, 4, 3])
    assert float(even.excess({"values": values, "indices": indices})) == INF


SOURCE = """import torch

CONFIG = {}


def launch(x, values, indices):
    p = torch.softmax(x.double(), dim=1)
    order = torch.sort(x.double(), dim=1, descending=True, stable=True).indices[:, : values.shape[1]]
    values.copy_(p.gather(1, order) * FACTOR)
    indices.copy_(order + SHIFT)


"""


@pytest.mark.parametrize(
    ("factor", "shift", "status", "word"), [("1.0", "0", 0, "OK"), ("1.02", "0", 1, "WRONG"), ("1.0", "1", 1, "WRONG")]
)
def test_the_self_check_of_a_standalone_file(tmp_path, capsys, factor, shift, status, word):
    path = tmp_path / "standalone.py"
    source = SOURCE.replace("FACTOR", factor).replace("SHIFT", shift)
    path.write_text(source + TOPK.self_check(problem(rows=5000)))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert ended.value.code == status
    assert f": {word}" in printed and "top 5 of 64 x 301" in printed
