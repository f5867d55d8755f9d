"""Options that an operator got after problems of it had been stored, and what search spaces know of a problem."""

from __future__ import annotations

import pytest

from tests.spaces import H200, SPACE, TEMPLATE, Toy, lookup, write_space
from tuner.errors import ProblemError, SpaceError
from tuner.operators import Option, get
from tuner.operators.softmax import Softmax
from tuner.problem import Problem
from tuner.space import load_space

SHAPE = {"rows": 8, "cols": 64}


class Limited(Softmax):
    """A softmax with one late option of each kind."""

    options = (
        Option("limit", "count", None, "how many", late=True),
        Option("flag", "bool", False, "whether", late=True),
        Option("factor", "float", None, "how much", zero_is_off=True, late=True),
    )


def test_a_late_option_at_its_default_leaves_the_problem_what_it_was():
    softmax, limited = get("softmax"), Limited()
    plain = softmax.problem(SHAPE, "bf16")
    for options in ({}, {"limit": None, "flag": False, "factor": None}, {"limit": -1, "factor": 0}):
        problem = limited.problem(SHAPE, "bf16", options)
        assert problem == plain and problem.key == plain.key and problem.as_json() == plain.as_json()


def test_a_late_option_with_another_value_is_part_of_the_problem():
    problem = Limited().problem(SHAPE, "bf16", {"limit": 0, "flag": True, "factor": 2})
    assert problem.settings == {"limit": 0, "flag": True, "factor": 2.0}
    assert problem.key != get("softmax").problem(SHAPE, "bf16").key
    assert Problem.from_json(problem.as_json()) == problem


def test_what_a_space_knows_has_the_defaults_of_what_is_left_out():
    limited = Limited()
    sizes = {"rows": 8, "cols": 64, "row_stride": 64}
    off = {"limit": None, "flag": False, "factor": None}
    assert limited.facts(limited.problem(SHAPE, "bf16")) == {**sizes, **off}
    assert limited.facts(limited.problem(SHAPE, "bf16", {"limit": 3})) == {**sizes, **off, "limit": 3}


@pytest.mark.parametrize("value", [-2, 2.5, 2**31, float("nan")])
def test_a_count_is_a_whole_number(value):
    with pytest.raises(ProblemError, match="limit must be a whole number from 0 to 2147483647, but got"):
        Limited().problem(SHAPE, "bf16", {"limit": value})


class Knowing(Toy):
    """A toy that tells its spaces whether it is wide."""

    derived_names = ("wide",)

    def facts(self, problem: Problem) -> dict[str, object]:
        return {**problem.sizes, **problem.settings, "wide": problem.sizes["cols"] > 100}


def test_an_operator_may_tell_its_spaces_more_than_sizes_and_options(tmp_path):
    text = SPACE.replace("where: cols <= 65536", "where: wide")
    path = write_space(tmp_path, text, TEMPLATE)
    space = load_space(path, lambda name: Knowing(), tmp_path)
    found = {cols: space.bind(Toy().problem({"rows": 8, "cols": cols}, "bf16"), H200).templates for cols in (64, 128)}
    assert found == {64: (), 128: ("tiled",)}
    with pytest.raises(SpaceError, match="names `wide`, which is not known here"):
        load_space(path, lookup, tmp_path)
