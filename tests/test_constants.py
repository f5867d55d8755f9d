from __future__ import annotations

import libcst as cst
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.constants import UNKNOWN, constant, literal, same


def value(text: str, **names):
    return constant(cst.parse_expression(text), names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("True", True),
        ("None", None),
        ("-3", -3),
        ("'a' \"b\"", UNKNOWN),
        ("2 * 3 + 1 == 7", True),
        ("1 < 2 < 2", False),
        ("'fast' in ('fast', 'slow')", True),
        ("3 not in [1, 2]", True),
        ("None is None", True),
        ("1 is 1", UNKNOWN),
        ("not 0", True),
        ("0 or 'x'", "x"),
        ("0 and unknown", 0),
        ("1 and unknown", UNKNOWN),
        ("1 if 2 > 1 else unknown", 1),
        ("1 // 0", UNKNOWN),
        ("1 < 'a'", UNKNOWN),
        ("2 ** 8", UNKNOWN),
        ("'a' * 1000000", UNKNOWN),
        ("f(1)", UNKNOWN),
        ("b'x'", UNKNOWN),
    ],
)
def test_only_expressions_of_literals_are_constant(text, expected):
    result = value(text)
    assert result is expected or same(result, expected)


def test_names_are_constant_where_their_value_is_given():
    assert value("STAGES * 2 > 4", STAGES=3) is True
    assert value("STAGES * 2 > 4", OTHER=3) is UNKNOWN


def test_one_is_neither_true_nor_one_point_zero():
    assert not same(1, True)
    assert not same(1, 1.0)
    assert same("a", "a")


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()))
def test_a_literal_evaluates_to_its_value(expected):
    code = cst.Module([]).code_for_node(literal(expected))
    assert same(eval(code), expected)
    assert repr(eval(code)) == repr(expected)  # the sign of zero, too


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_what_has_no_literal_is_refused(bad):
    with pytest.raises(ValueError, match="has no literal"):
        literal(bad)
