"""Search spaces, problems files and expressions of strangers: read, or refused in one line, and quickly."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trust.attempts import LIMIT_S, files_below
from tests.trust.yaml_attacks import (
    BOMB,
    CHOICES,
    ENGINE_SPACES,
    EXPRESSIONS,
    SPACE,
    attack_expression,
    attack_problems,
    attack_space,
)
from tuner.errors import ExpressionError, SpaceError
from tuner.expression import Expression
from tuner.located_yaml import parse_yaml
from tuner.operators import get
from tuner.space import load_space
from tuner.targets import target

SEED = random.SystemRandom().randrange(2**32)
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "<", "==", "and", "or", "in")
TREES = st.recursive(
    st.sampled_from(["1", "cols", "'a'", "true", "None", "2**63", "1e308", "0", "-1", "0.5"]),
    lambda inner: (
        st.builds(
            "({} {} {})".format,
            inner,
            st.sampled_from(OPERATORS),
            inner,
        )
        | st.builds("({} if {} else {})".format, inner, inner, inner)
        | st.builds("[{}, {}]".format, inner, inner)
        | st.builds("{}({}, {})".format, st.sampled_from(["min", "cdiv", "int", "eval"]), inner, inner)
        | st.builds("not {}".format, inner)
    ),
    max_leaves=30,
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("attack", "cases"), [(attack_space, 40), (attack_problems, 60), (attack_expression, 150)])
def test_hostile_files_do_no_harm(tmp_path, attack, cases):
    print(f"seed {SEED}")
    folder = tmp_path / "in"
    folder.mkdir()
    found = []
    for case in range(cases):
        attempt = attack(folder, random.Random(f"{SEED}/{attack.__name__}/{case}"))
        found += [(attempt.what, fault) for fault in attempt.faults]
    assert found == []
    assert files_below(tmp_path, but=(folder,)) == {}
    assert {path.name for path in folder.iterdir()} <= {"space.yaml", "problems.yaml"}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_no_expression_takes_long_or_gives_anything_large(text):
    began = time.process_time()
    try:
        value = Expression.parse(text).evaluate({"cols": 4096})
        assert value is None or isinstance(value, bool | float) or len(str(value)) < 1000
    except ExpressionError as error:
        assert "\n" not in str(error).strip("\n") or "\n" in text
    assert time.process_time() - began < LIMIT_S


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=200), TREES))
def test_any_text_is_an_expression_or_refused(text):
    with contextlib.suppress(ExpressionError):
        Expression.parse(text).evaluate({"cols": 4096})


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("ab: -[]{}&*!|>%#'\"?,\n\t\x00\u0085é1.~<="), max_size=80))
def test_any_text_is_yaml_or_refused(text):
    try:
        parse_yaml(text, Path("x.yaml"))
    except SpaceError as error:
        assert str(error).startswith("x.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "more than 20000 values"),
        ("[" + "1," * 250_000 + "1]", "more than 20000 values"),
        ("[" * 100_000, "nested deeper than 20 levels"),
        ("a: 1" + ":1" * 100_000, "is not a number that can be used"),
        ("a: " + "9" * 100_000, "is not a number that can be used"),
        ("#" * 600_000, "larger than 524288 bytes"),
    ],
)
def test_limits_hold_before_time_and_memory_are_spent(text, said):
    began = time.process_time()
    with pytest.raises(SpaceError, match=said):
        parse_yaml(text, Path("x.yaml"))
    assert time.process_time() - began < LIMIT_S


@pytest.mark.parametrize("constraint", ["A + B + C > 0", "A + B + C < 0"])
def test_a_space_that_would_be_counted_for_hours_is_refused(tmp_path, constraint):
    path = tmp_path / "space.yaml"
    text = SPACE.replace("A: [1, 2], B: [1, 2]", f"A: [{CHOICES}], B: [{CHOICES}], C: [{CHOICES}]")
    text = text.replace("A * B < 4", constraint).replace("A: 1, B: 1}", "A: 1, B: 1, C: 1}")
    path.write_text(text)
    with pytest.raises(SpaceError, match=r"constraints\[0\]: more than 300000 combinations would have to be looked at"):
        load_space(path).bind(get("softmax").problem({"rows": 64, "cols": 100}, "fp32"), target("sm_90")).size()


@pytest.mark.parametrize("length", [300, 100_000])
def test_a_source_with_a_name_that_no_file_has_is_refused(tmp_path, length):
    path = tmp_path / "space.yaml"
    path.write_text(SPACE.replace(str(ENGINE_SPACES / "small.py"), "a" * length))
    with pytest.raises(
        SpaceError, match=r"templates.small.source: (no such file|'a+\.\.\. is no path of a file)"
    ) as caught:
        load_space(path)
    assert len(str(caught.value)) < 3000
