from __future__ import annotations

from pathlib import Path

import pytest

from tests.spaces import lookup
from tuner.errors import SpaceError
from tuner.problem import Problem
from tuner.problems_file import load_problems


def load(folder: Path, text: str) -> list[tuple[str, int]]:
    """The labels of the problems in ``text``, with their lines."""
    path = folder / "problems.yaml"
    path.write_text(text)
    return [(request.problem.label, request.line) for request in load_problems(path, lookup)]


def test_lists_are_multiplied_out_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
defaults:
  dtype: bf16
problems:
  - operator: toy
    shape: {rows: [1, 2], cols: [3, 4]}
  - operator: toy
    shape: {rows: 8, cols: 8}
    dtype: [fp32, bf16]
    options: {causal: [false, true]}
"""
    assert load(tmp_path, text) == [
        ("toy rows=1 cols=3 bf16", 4),
        ("toy rows=1 cols=4 bf16", 4),
        ("toy rows=2 cols=3 bf16", 4),
        ("toy rows=2 cols=4 bf16", 4),
        ("toy rows=8 cols=8 fp32", 6),
        ("toy rows=8 cols=8 fp32 causal", 6),
        ("toy rows=8 cols=8 bf16", 6),
        ("toy rows=8 cols=8 bf16 causal", 6),
    ]


def test_an_entry_overrides_the_defaults_name_by_name(tmp_path: Path) -> None:
    text = """\
defaults: {operator: toy, dtype: bf16, shape: {rows: 4, cols: 5}, options: {causal: true}}
problems:
  - {}
  - {shape: {cols: 6}}
  - {options: {causal: false}, dtype: fp32}
"""
    assert load(tmp_path, text) == [
        ("toy rows=4 cols=5 bf16 causal", 3),
        ("toy rows=4 cols=6 bf16 causal", 4),
        ("toy rows=4 cols=5 fp32", 5),
    ]


def test_a_file_may_be_the_list_alone(tmp_path: Path) -> None:
    text = "# mine\n- {operator: toy, shape: {rows: 1, cols: 2}, dtype: bf16}\n"
    assert load(tmp_path, text) == [("toy rows=1 cols=2 bf16", 2)]


def test_a_problem_that_is_asked_for_twice_is_given_once(tmp_path: Path) -> None:
    entry = "- {operator: toy, shape: {rows: 1, cols: [2, 2]}, dtype: bf16}\n"
    assert load(tmp_path, entry * 2) == [("toy rows=1 cols=2 bf16", 1)]


def test_a_request_holds_the_operators_problem(tmp_path: Path) -> None:
    path = tmp_path / "problems.yaml"
    path.write_text("- {operator: softmax, shape: {rows: 4096, cols: 1024}, dtype: bf16}\n")
    (request,) = load_problems(path)
    assert isinstance(request.problem, Problem)
    assert (request.problem.operator, request.problem.sizes["cols"]) == ("softmax", 1024)


GOOD = "- {operator: toy, shape: {rows: 1, cols: 2}, dtype: bf16}\n"


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("", 1, "", "the file is empty"),
        ("3\n", 1, "", "must be a mapping"),
        ("problems: []\n", 1, "problems", "the list is empty"),
        ("[]\n", 1, "problems", "the list is empty"),
        ("problem: []\n", 1, "problem", "unknown key (did you mean `problems`?); known: problems, defaults"),
        (GOOD + "- {operator: toy, shap: {}}\n", 2, "problems[1].shap", "unknown key (did you mean `shape`?)"),
        (GOOD + "- toy\n", 2, "problems[1]", "must be a mapping"),
        (GOOD + "- {operator: toi, dtype: bf16}\n", 2, "problems[1].operator", "did you mean toy?"),
        (GOOD + "- {dtype: bf16}\n", 2, "problems[1]", "the key `operator` is missing; add it here or to `defaults`"),
        (GOOD + "- {operator: toy}\n", 2, "problems[1]", "the key `dtype` is missing; add it here or to `defaults`"),
        (
            GOOD + "- operator: toy\n  dtype: bf16\n  shape:\n    rows: 1\n    colls: 2\n",
            6,
            "problems[1].shape.colls",
            "unknown name (did you mean `cols`?); known: rows, cols",
        ),
        (
            GOOD + "- operator: toy\n  dtype: bf16\n  shape:\n    rows: 1\n    cols: [2, 2.5]\n",
            6,
            "problems[1].shape.cols",
            "2.5 is not a whole number",
        ),
        (
            GOOD + "- {operator: toy, shape: {rows: true}, dtype: bf16}\n",
            2,
            "problems[1].shape.rows",
            "True is not a whole number",
        ),
        (
            GOOD + "- {operator: toy, shape: {rows: []}, dtype: bf16}\n",
            2,
            "problems[1].shape.rows",
            "the list is empty; give at least one value",
        ),
        (GOOD + "- {operator: toy, dtype: [16]}\n", 2, "problems[1].dtype", "16 is not the name of a dtype"),
        (
            GOOD + "- {operator: toy, dtype: bf16, options: {casual: true}}\n",
            2,
            "problems[1].options.casual",
            "unknown name (did you mean `causal`?)",
        ),
        (
            GOOD + "- {operator: toy, dtype: bf16, options: {causal: {}}}\n",
            2,
            "problems[1].options.causal",
            "{} is not true/false, a number or text",
        ),
        (
            "defaults:\n  shape:\n    colz: 3\nproblems:\n  - {operator: toy, dtype: bf16}\n",
            3,
            "defaults.shape.colz",
            "unknown name (did you mean `cols`?)",
        ),
        (
            GOOD + "- {operator: toy, shape: {rows: 0, cols: 2}, dtype: bf16}\n",
            2,
            "problems[1]",
            "rows must be at least 1",
        ),
        (GOOD + "- {operator: toy, shape: {rows: 1, cols: 2}, dtype: i8}\n", 2, "problems[1]", "no dtype 'i8'"),
        (
            f"- {{operator: toy, shape: {{rows: {list(range(1, 200))}, cols: {list(range(1, 200))}}}, dtype: bf16}}\n",
            1,
            "problems[0]",
            "stands for more than 10000 problems",
        ),
        (GOOD + "- {operator: toy, operator: toy}\n", 2, "[1].operator", "given twice"),
        (GOOD + "- [\n", 3, "", "not valid YAML"),
    ],
)
def test_a_mistake_is_refused_with_file_line_and_key(tmp_path: Path, text: str, line: int, key: str, says: str) -> None:
    with pytest.raises(SpaceError) as caught:
        load(tmp_path, text)
    assert says in str(caught.value)
    assert (caught.value.line, caught.value.path) == (line, str(tmp_path / "problems.yaml"))
    assert caught.value.key == key


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="no such file; check the path"):
        load_problems(tmp_path / "none.yaml", lookup)
