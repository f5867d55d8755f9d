"""What the check of a declared operator is made of: inputs, reference and bound, wrong answers, small shapes."""

from __future__ import annotations

import pytest
import torch

import tuner
from tuner.errors import ProblemError
from tuner.numerics import FORMATS
from tuner.own_operators.bound import selection
from tuner.own_operators.declaration import OwnOperator, Size, TensorSpec, Units, Work
from tuner.own_operators.files import find
from tuner.own_operators.inputs import make, names
from tuner.own_operators.shapes import shape_of, sizes_of
from tuner.own_operators.small_shapes import small_shapes
from tuner.own_operators.wrong_answers import LEFT_OUT, NEIGHBOUR, SCALED, ZEROS
from tuner.precision import PrecisionProfile

CHANGES = {
    "product": (
        ('outputs={"out": ("rows", "cols")}', 'outputs={"out": ("rows",)}'),
        ("return x * factor", "return (x * factor).sum(dim=1)"),
    )
}


def grouped(**changes: object) -> OwnOperator:
    """A declaration with an expression, a size that only a product gives, integers, and a fixed dtype."""

    def draw(inputs, sizes, generator):
        ids = torch.randint(sizes["groups"], inputs["ids"].shape, generator=generator, dtype=torch.int32)
        inputs["ids"].copy_(ids)

    given = {
        "name": "grouped",
        "summary": "",
        "sizes": {"rows": 8, "top": Size(2, fixed=True), "groups": Size(4, multiple_of=2), "cols": 16},
        "inputs": {
            "x": ("rows", "cols"),
            "w": TensorSpec(("groups", "2 * cols"), "fp32"),
            "ids": TensorSpec(("rows * top",), "int32"),
        },
        "outputs": {"out": TensorSpec(("rows * top", "cols"))},
        "reduced": "cols",
        "reference": lambda x, w, ids: x.repeat_interleave(2, 0) * w[ids.long(), : x.shape[1]],
        "work": lambda sizes: Work(1.0),
        "space": "none.yaml",
        "draw": draw,
    }
    return OwnOperator(**{**given, **changes})


def test_shapes_are_expressions_and_sizes_are_read_off_them():
    declared = grouped()
    sizes = {"rows": 3, "top": 2, "groups": 4, "cols": 5}
    assert [shape_of(spec, sizes) for spec in declared.tensors.values()] == [(3, 5), (4, 10), (6,), (6, 5)]
    assert sizes_of(declared, {"x": (3, 5), "w": (4, 10), "ids": (6,)}) == sizes
    with pytest.raises(ProblemError, match=r"w has shape \(4, 11\), but the others make it \(4, 10\)"):
        sizes_of(declared, {"x": (3, 5), "w": (4, 11), "ids": (6,)})
    with pytest.raises(ProblemError, match="x must have 2 axes"):
        sizes_of(declared, {"x": (3,), "w": (4, 10), "ids": (6,)})


def test_a_declaration_with_integers_needs_to_draw_them():
    with pytest.raises(ProblemError, match="integer inputs, so it needs draw"):
        grouped(draw=None)
    with pytest.raises(ProblemError, match="out has dtype 'int32'; use one of bf16, fp16, fp32"):
        grouped(outputs={"out": TensorSpec(("rows",), "int32")})


def test_families_differ_as_they_say_and_are_the_same_each_time(write):
    operator = find(write())
    problem = operator.problem({"rows": 40, "cols": 33}, "fp32")
    drawn = {name: operator.make_inputs(problem, name, 7, "cpu")["x"] for name in operator.families(problem)}
    assert list(drawn) == [
        "randn", "uniform", "huge", "tiny", "offset", "one", "spiky", "outlier", "constant", "blank", "zeros"
    ]  # fmt: skip
    assert torch.equal(drawn["randn"], operator.make_inputs(problem, "randn", 7, "cpu")["x"])
    assert not torch.equal(drawn["randn"], operator.make_inputs(problem, "randn", 8, "cpu")["x"])
    assert drawn["uniform"].min() >= 0.0 and drawn["uniform"].max() <= 1.0 and drawn["uniform"].std() > 0.25
    assert drawn["huge"].std() > 50 and drawn["tiny"].std() < 2e-3 and 15.5 < drawn["offset"].mean() < 16.5
    assert torch.equal(drawn["one"], torch.ones(40, 33))
    assert (drawn["spiky"] != 0).sum(dim=1).tolist() == [1] * 40
    assert (drawn["spiky"] != 0).any(dim=0).sum() > 25  # over the rows nearly every column is decisive
    assert sorted(drawn["outlier"][drawn["outlier"].abs() > 100].tolist()) == [-256.0] * 20 + [256.0] * 20
    assert (drawn["constant"] == drawn["constant"][:, :1]).all() and len(drawn["constant"].unique()) == 40
    assert (drawn["blank"] == 0).all(dim=1).nonzero()[:, 0].tolist() == list(range(0, 40, 3))
    assert not drawn["zeros"].any()
    with pytest.raises(ProblemError, match="has no input family 'none'; it has randn, uniform"):
        operator.make_inputs(problem, "none", 0, "cpu")


def test_families_of_ones_own_come_after_the_generic_one_and_shipped_ones_can_be_dropped():
    declared = grouped(families={"zeros": lambda inputs: inputs["x"].zero_()}, without=("huge", "one"))
    assert names(declared) == ("randn", "zeros", "uniform", "tiny", "offset", "spiky", "outlier", "constant", "blank")
    problem = tuner.Problem("grouped", (("rows", 3), ("top", 2), ("groups", 4), ("cols", 5)), "fp16")
    made = make(declared, problem, "zeros", 0, "cpu")
    assert made["x"].dtype is torch.float16 and not made["x"].any()
    assert made["w"].dtype is torch.float32 and made["ids"].dtype is torch.int32 and made["ids"].max() > 0


def test_what_is_not_finite_is_tried_where_the_file_says_that_it_is_defined():
    assert "nonfinite" not in names(grouped()) and names(grouped(nonfinite=True))[-1] == "nonfinite"
    problem = tuner.Problem("grouped", (("rows", 6), ("top", 2), ("groups", 4), ("cols", 7)), "fp32")
    x = make(grouped(nonfinite=True), problem, "nonfinite", 0, "cpu")["x"]
    assert x.isnan().nonzero().tolist() == [[0, 6], [2, 0], [5, 6]]
    assert (x == torch.inf).nonzero().tolist() == [[3, 3]] and (x == -torch.inf).nonzero().tolist() == [[4, 3]]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_the_default_bound_holds_a_right_result_and_no_coarser_one(write, dtype):
    operator = find(write(*CHANGES["product"]))
    problem = operator.problem({"rows": 16, "cols": 3000}, dtype)
    torch_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
    for family in operator.families(problem):
        inputs = operator.make_inputs(problem, family, 0, "cpu")
        reference = operator.reference(problem, inputs, PrecisionProfile(dtype, dtype)).outputs["out"]
        right = (inputs["x"].float() * 2.0).sum(dim=1).to(torch_dtype).double()
        near = (right - reference.expected).abs() <= reference.bound
        assert (near | (right == reference.expected)).all(), family  # what overflows does so in both
    # Partial sums in fp16 are off by far more than sums in fp32 may be.
    inputs = operator.make_inputs(problem, "uniform", 0, "cpu")
    reference = operator.reference(problem, inputs, PrecisionProfile(dtype, dtype)).outputs["out"]
    total = torch.zeros(16, dtype=torch.bfloat16)
    for column in (inputs["x"].float() * 2.0).T:
        total = total + column.bfloat16()
    assert ((total.double() - reference.expected).abs() > reference.bound).all()
    declared_so = operator.reference(problem, inputs, PrecisionProfile(dtype, dtype, accumulator="bf16"))
    assert ((total.double() - reference.expected).abs() <= declared_so.outputs["out"].bound).all()


def test_a_declared_bound_is_taken_and_the_outputs_rounding_comes_to_it(write):
    text = write(
        ("def work", "def bound(units, x, factor):\n    return units.summed(9) * x.abs()\n\n\ndef work"),
        ("work=work", "work=work,\n    bound=bound"),
    )
    operator = find(text)
    problem = operator.problem({"rows": 4, "cols": 9}, "fp16")
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    found = operator.reference(problem, inputs, PrecisionProfile("fp16", "fp16", dot="16bit")).outputs["out"]
    half, u = FORMATS["fp16"], FORMATS["fp32"].u
    error = 2 * 9 * u * inputs["x"].double().abs()
    torch.testing.assert_close(found.bound, error + half.u * (found.expected.abs() + error) + half.eta)


def test_units_count_a_sums_and_a_products_roundings():
    assert Units(2.0**-24, 0.0, 0.0, 2.0**-8).summed(10_000) == 2 * 400 * 2.0**-24
    assert Units(2.0**-24, 2.0**-9, 0.0, 2.0**-8).summed(4) == 8 * 2.0**-24 + 2.0**-9


def test_large_outputs_are_compared_on_rows_spread_over_them(write):
    assert selection(1000, 2**22) is None
    chosen = selection(100_000, 100_000 * 4096)
    assert (chosen[0], chosen[-1], len(chosen)) == (0, 99_999, 512)
    assert selection(1, 2**23) == [0]
    operator = find(write())
    problem = operator.problem({"rows": 5000, "cols": 1024}, "fp32")
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    reference = operator.reference(problem, inputs, PrecisionProfile("fp32", "fp32")).outputs["out"]
    assert reference.expected.shape == (512, 1024)
    assert torch.equal(reference.expected, 2.0 * inputs["x"].double()[reference.index[0]])


def test_the_wrong_answers_are_wrong(write):
    operator = find(write(*CHANGES["product"]))
    problem, tiles = operator.problem({"rows": 6, "cols": 50}, "bf16"), {"cols": 16}
    inputs = operator.make_inputs(problem, "randn", 0, "cpu")
    assert operator.classical_errors(problem, tiles) == (ZEROS, SCALED, NEIGHBOUR, LEFT_OUT)
    assert operator.classical_errors(operator.problem({"rows": 1, "cols": 16}, "bf16"), tiles) == (ZEROS, SCALED)
    reference = operator.reference(problem, inputs, PrecisionProfile("bf16", "bf16")).outputs["out"]
    for error in operator.classical_errors(problem, tiles):
        place, wrong = operator.wrong_answer(problem, inputs, error, tiles)["out"]
        assert place == () and ((wrong - reference.expected).abs() > reference.bound).any(), error
    left_out = operator.wrong_answer(problem, inputs, LEFT_OUT, tiles)["out"][1]
    torch.testing.assert_close(left_out, 2.0 * inputs["x"].double()[:, :48].sum(dim=1))  # three whole tiles are there


def test_small_shapes_are_ragged_and_keep_what_a_launch_is_specialised_on():
    sizes = {"rows": Size(8), "top": Size(2, fixed=True), "groups": Size(4, multiple_of=4), "cols": Size(16)}
    tuned = {"rows": 4096, "top": 8, "groups": 64, "cols": 4096}
    shapes = small_shapes(sizes, tuned, "cols", {"rows": 32, "cols": 64}, {}, same_binary=True)
    assert [s["cols"] for s in shapes] == [208, 32, 192, 464]
    assert {s["top"] for s in shapes} == {8} and {s["groups"] for s in shapes} == {16}
    assert shapes[0]["rows"] == 80 and shapes[-1]["rows"] == 16
    free = small_shapes(sizes, tuned, "cols", {"rows": 32, "cols": 64}, {}, same_binary=False)
    assert [s["cols"] for s in free] == [213, 33, 192, 449]
    assert {s["groups"] for s in free} == {4} and free[0]["rows"] == 74
    whole = small_shapes(sizes, {**tuned, "cols": 1000}, "cols", {"cols": 1024}, {"cols": 1}, same_binary=True)
    assert [s["cols"] for s in whole] == [1021, 1023]  # 1024 is of another class than 1000
