"""What the operators and functions of expressions do: Python's arithmetic, bounded, and strict about types."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

MAX_INTEGER = 2**63
MAX_EXPONENT = 64


class Fault(Exception):
    """What went wrong while reading or evaluating an expression; ``Expression`` adds the text and the values."""


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float)


def described(value: object) -> str:
    if value is None:
        return "None"
    kind = "text" if isinstance(value, str) else "number" if is_number(value) else type(value).__name__
    return f"{value!r}" if isinstance(value, bool) else f"the {kind} {value!r}"


def bounded(value: Any) -> Any:
    """``value`` if it is an acceptable result of arithmetic."""
    if isinstance(value, int):
        if -MAX_INTEGER <= value <= MAX_INTEGER:
            return value
        raise Fault("a value grew beyond 2**63")
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise Fault("a value is not a finite real number")


def _power(base: int | float, exponent: int | float) -> Any:
    if abs(exponent) > MAX_EXPONENT:
        raise Fault(f"the exponent {exponent!r} is beyond {MAX_EXPONENT}")
    return base**exponent


def _integer(name: str, value: object, minimum: int | None = None) -> int:
    if not isinstance(value, int):
        raise Fault(f"{name}() takes whole numbers, but got {described(value)}")
    if minimum is not None and value < minimum:
        raise Fault(f"{name}() takes numbers of at least {minimum}, but got {value}")
    return value


def _numbers(name: str, values: tuple[object, ...]) -> list[int | float]:
    numbers = [value for value in values if is_number(value)]
    if len(numbers) < len(values):
        wrong = next(value for value in values if not is_number(value))
        raise Fault(f"{name}() takes numbers, but got {described(wrong)}")
    return numbers


def _cdiv(numerator: object, denominator: object) -> int:
    return -(-_integer("cdiv", numerator) // _integer("cdiv", denominator))


def _next_power_of_2(value: object) -> int:
    return 1 << (_integer("next_power_of_2", value, 1) - 1).bit_length()


def _prev_power_of_2(value: object) -> int:
    return 1 << (_integer("prev_power_of_2", value, 1).bit_length() - 1)


@dataclass(frozen=True)
class _Function:
    call: Callable[..., Any]
    least: int
    most: int


FUNCTIONS = {
    "min": _Function(lambda *values: min(_numbers("min", values)), 2, 16),
    "max": _Function(lambda *values: max(_numbers("max", values)), 2, 16),
    "abs": _Function(lambda value: abs(_numbers("abs", (value,))[0]), 1, 1),
    "int": _Function(lambda value: int(_numbers("int", (value,))[0]), 1, 1),
    "cdiv": _Function(_cdiv, 2, 2),
    "next_power_of_2": _Function(_next_power_of_2, 1, 1),
    "prev_power_of_2": _Function(_prev_power_of_2, 1, 1),
}
"""``cdiv(a, b)``: a / b rounded up. ``next_power_of_2(n)``: smallest >= n. ``prev_power_of_2(n)``: largest <= n."""

ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", _power),
}


def _ordering(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def run(left: Any, right: Any) -> bool:
        if is_number(left) and is_number(right):
            return compare(left, right)
        raise Fault(f"`{symbol}` compares numbers, but got {described(left)} and {described(right)}")

    return run


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, str) is not isinstance(right, str) and left is not None and right is not None:
        raise Fault(f"{described(left)} can never equal {described(right)}")
    return bool(left == right)


def _contains(left: Any, right: tuple[Any, ...]) -> bool:
    # The whole list is compared, so that a wrong type in it is an error whatever comes before it.
    return any([_equal(left, item) for item in right])


COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: _ordering("<", operator.lt),
    ast.LtE: _ordering("<=", operator.le),
    ast.Gt: _ordering(">", operator.gt),
    ast.GtE: _ordering(">=", operator.ge),
    ast.Eq: _equal,
    ast.NotEq: lambda left, right: not _equal(left, right),
    ast.In: _contains,
    ast.NotIn: lambda left, right: not _contains(left, right),
}
