from __future__ import annotations

import contextlib
import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import ExpressionError
from tuner.expression import Expression

VALUES = {"rows": 4096, "cols": 100, "ratio": 0.5, "causal": True, "dtype": "bf16", "scale": None}


def evaluate(text: str) -> object:
    return Expression.parse(text).evaluate(VALUES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cols + 2 * 3", 106),
        ("cols // 7 % 4", 2),
        ("cols / 8", 12.5),
        ("-cols + +1", -99),
        ("2 ** 10", 1024),
        ("64 <= cols < 128", True),
        ("causal and cols > 200", False),
        ("not causal or rows == 4096", True),
        ("cols if causal else rows", 100),
        ("dtype in ['bf16', 'fp16']", True),
        ("dtype not in ('bf16', 'fp16')", False),
        ("rows in [cols, 4096]", True),
        ("'tf32' if dtype == 'fp32' else '16bit'", "16bit"),
        ("scale == None", True),
        ("causal == true", True),
        ("false", False),
        ("min(rows, cols, 7)", 7),
        ("max(rows, 2.5)", 4096),
        ("cdiv(cols, 32)", 4),
        ("cdiv(96, 32)", 3),
        ("next_power_of_2(cols)", 128),
        ("next_power_of_2(128)", 128),
        ("next_power_of_2(1)", 1),
        ("prev_power_of_2(cols)", 64),
        ("prev_power_of_2(64)", 64),
        ("abs(-3)", 3),
        ("int(cols * ratio)", 50),
    ],
)
def test_an_expression_gives_the_value_that_it_says(text: str, value: object) -> None:
    result = evaluate(text)
    assert result == value
    assert type(result) is type(value)


def test_names_are_those_that_need_a_value() -> None:
    expression = Expression.parse("min(BLOCK, next_power_of_2(cols)) if causal else BLOCK == true")
    assert expression.names == {"BLOCK", "cols", "causal"}
    assert expression.used == ("BLOCK", "cols", "causal")


def test_what_is_not_taken_is_not_evaluated() -> None:
    assert evaluate("1 if causal else 1 // 0") == 1
    assert evaluate("causal or 1 // 0 == 1") is True


MALICIOUS = [
    "__import__('os')",
    "__import__('os').system('true')",
    "rows.__class__",
    "().__class__.__bases__[0].__subclasses__()",
    "(lambda: 1)()",
    "[x for x in [1]]",
    "{x for x in [1]}",
    "sum(x for x in [1])",
    "f'{rows}'",
    "f'{9**9**9}'",
    "rows := 3",
    "(rows := 3)",
    "[1, 2]",
    "(1, 2) == (1, 2)",
    "{}",
    "rows[0]",
    "min(*[1, 2])",
    "min(1, key=2)",
    "min.__call__(1, 2)",
    "open('/etc/passwd')",
    "eval('1')",
    "exec('1')",
    "print(1)",
    "1 << 1000000",
    "rows @ cols",
    "rows & 1",
    "~rows",
    "1j",
    "b'x'",
    "...",
    "rows is None",
    "await rows",
    "yield",
    "1; 2",
    "import os",
    "1if 1 else 2",
    "x\x00y",
    "\ud800",
    "",
    "   ",
    "rows +",
    "min",
    "1e999",
    str(2**63 + 1),
    "(" * 300 + "1" + ")" * 300,
    "-" * 900 + "1",
    "not " * 200 + "1",
    "rows" + ".a" * 400,
    "+".join(["1"] * 200),
    "1 if 1 else " * 70 + "1",
    "1 + " * 400 + "1",
    "'" + "a" * 5000 + "'",
]


@pytest.mark.parametrize("text", MALICIOUS)
def test_text_outside_the_language_is_refused_at_once(text: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ExpressionError) as caught:
        Expression.parse(text)
    assert time.perf_counter() - start < 0.5
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("9**9**9", "exponent 387420489 is beyond 64"),
        ("9**64", "beyond 2**63"),
        ("2**62 * 4", "beyond 2**63"),
        ("2**63 + 1", "beyond 2**63"),
        ("1e308 * 10", "not a finite real number"),
        ("(0 - 8) ** 0.5", "not a finite real number"),
        ("1e300 ** 2", "too large"),
        ("2.0 ** 10000", "exponent"),
        ("'a' * 1000000", "`*` takes numbers, but got the text 'a' and the number 1000000"),
        ("'a' + dtype", "`+` takes numbers"),
        ("'%s' % rows", "`%` takes numbers"),
        ("rows // (cols - 100)", "division by zero (with rows=4096, cols=100)"),
        ("rows % 0", "division by zero"),
        ("0.0 ** -1", "division by zero"),
        ("dtype < 3", "`<` compares numbers, but got the text 'bf16' and the number 3"),
        ("dtype == 16", "can never equal"),
        ("dtype in ['fp16', 3]", "can never equal"),
        ("scale * 2", "`*` takes numbers, but got None"),
        ("-dtype", "a sign before the text 'bf16'"),
        ("min(rows, dtype)", "min() takes numbers, but got the text 'bf16'"),
        ("cdiv(1.5, 2)", "cdiv() takes whole numbers"),
        ("cdiv(rows, 0)", "division by zero"),
        ("next_power_of_2(0)", "next_power_of_2() takes numbers of at least 1, but got 0"),
        ("prev_power_of_2(-4)", "at least 1"),
        ("next_power_of_2(2**63) * 2", "beyond 2**63"),
        ("int(dtype)", "int() takes numbers"),
    ],
)
def test_a_value_that_cannot_be_is_an_error_that_says_why(text: str, says: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(text)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"`{text}`: ")


def test_an_unknown_name_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate("colls > 3")
    assert str(caught.value) == (
        "`colls > 3`: nothing is named `colls` (did you mean `cols`?); known: rows, cols, ratio, causal, dtype, scale"
    )


def test_an_unknown_function_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(ExpressionError, match=r"no function is named `next_pow_2` \(did you mean `next_power_of_2`"):
        Expression.parse("next_pow_2(cols)")


@pytest.mark.parametrize("text", ["cdiv(1)", "cdiv(1, 2, 3)", "min(1)", "abs()"])
def test_a_wrong_number_of_arguments_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="argument"):
        Expression.parse(text)


def test_an_expression_survives_pickling() -> None:
    expression = pickle.loads(pickle.dumps(Expression.parse("cols * 2")))
    assert expression == Expression.parse("cols * 2")
    assert expression.evaluate(VALUES) == 200


NAMES = {"a": 3, "b": -7, "c": 0.5, "p": True, "q": False}

numbers = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["a", "b", "c", "p"]),
        st.integers(0, 50).map(str),
        st.sampled_from(["0.25", "1.5", "1e3"]),
        st.tuples(numbers, st.sampled_from(["+", "-", "*", "/", "//", "%"]), numbers).map(" ".join).map(parenthesised),
        st.tuples(numbers, st.integers(-3, 4)).map(lambda pair: f"({pair[0]}) ** {pair[1]}").map(parenthesised),
        st.tuples(st.sampled_from("-+"), numbers).map(lambda pair: f"{pair[0]}({pair[1]})"),
        st.tuples(st.sampled_from(["min", "max"]), numbers, numbers).map(lambda f: f"{f[0]}({f[1]}, {f[2]})"),
        numbers.map(lambda text: f"abs({text})"),
        st.tuples(numbers, truths, numbers).map(lambda f: f"({f[0]} if {f[1]} else {f[2]})"),
    )
)
truths = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["p", "q", "True", "'x' == 'y'", "'x' in ['x', 'y']"]),
        st.tuples(numbers, comparisons, numbers).map(" ".join).map(parenthesised),
        st.tuples(numbers, comparisons, numbers, comparisons, numbers).map(" ".join).map(parenthesised),
        st.tuples(numbers, st.sampled_from(["in", "not in"]), numbers, numbers).map(
            lambda f: f"({f[0]} {f[1]} [{f[2]}, {f[3]}])"
        ),
        st.tuples(truths, st.sampled_from(["and", "or"]), truths).map(" ".join).map(parenthesised),
        truths.map(lambda text: f"(not {text})"),
    )
)
comparisons = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def parenthesised(text: str) -> str:
    return f"({text})"


@settings(max_examples=300, deadline=None)
@given(st.one_of(numbers, truths))
def test_values_agree_with_python(text: str) -> None:
    try:
        ours = Expression.parse(text).evaluate(NAMES)
    except ExpressionError as error:
        message = str(error)
        if any(limit in message for limit in ("beyond", "finite", "too large", "nested deeper", "characters long")):
            return
        assert "division by zero" in message
        with pytest.raises(ZeroDivisionError):
            eval(text, {}, NAMES)
        return
    theirs = eval(text, {}, NAMES)
    assert ours == theirs
    assert type(ours) is type(theirs)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="abx019+-*/%().,'[]<>=! \t\n#\\\"{}:@~^|&;_", max_size=60))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        Expression.parse(text).evaluate({})
