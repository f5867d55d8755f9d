"""Constants in a libcst tree: what an expression of literals evaluates to, and the literal for a value."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import libcst as cst

from tuner.config import Value


class _Unknown:
    """The type of ``UNKNOWN``."""


UNKNOWN: Final = _Unknown()
"""What ``constant`` returns for an expression that is not constant (None is a constant)."""

_LARGEST = 1 << 64
_COMPARE: dict[type[cst.BaseCompOp], Callable[[Any, Any], bool]] = {
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
    cst.In: lambda a, b: a in b,
    cst.NotIn: lambda a, b: a not in b,
}
_ARITHMETIC: dict[type[cst.BaseBinaryOp], Callable[[Any, Any], Any]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.FloorDivide: operator.floordiv,
    cst.Divide: operator.truediv,
    cst.Modulo: operator.mod,
}
_UNARY: dict[type[cst.BaseUnaryOp], Callable[[Any], Any]] = {
    cst.Not: operator.not_,
    cst.Minus: operator.neg,
    cst.Plus: operator.pos,
}


def literal(value: Value | None) -> cst.BaseExpression:
    """The expression that evaluates to ``value``, exactly. A negative number comes in parentheses.

    Raises ``ValueError`` for an infinity or NaN, which have no literal.
    """
    if value is None or isinstance(value, bool):
        return cst.Name(repr(value))
    if isinstance(value, str):
        return cst.SimpleString(quoted(value))
    if not math.isfinite(value):
        raise ValueError(f"{value} has no literal")
    node = cst.Integer(str(abs(value))) if isinstance(value, int) else cst.Float(repr(abs(value)))
    if math.copysign(1.0, value) > 0:
        return node
    return cst.UnaryOperation(cst.Minus(), node, lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def quoted(text: str) -> str:
    """``text`` as a Python string, in double quotes unless it holds quotes itself."""
    return repr(text) if '"' in text or "'" in text else f'"{repr(text)[1:-1]}"'


def constant(node: cst.BaseExpression, names: Mapping[str, Value] | None = None) -> Any:
    """The value of ``node`` (bool, int, float, str, None, or a tuple of them) where it is constant, else ``UNKNOWN``.

    ``names`` are names whose value is known. Nothing is called, and results are bounded in size.
    """
    try:
        return _evaluate(node, names or {})
    except (ArithmeticError, TypeError, ValueError):
        return UNKNOWN


def same(a: object, b: object) -> bool:
    """Whether two constants are the same literal: equal, and of one type (1 is neither True nor 1.0)."""
    return type(a) is type(b) and a == b


def _evaluate(node: cst.BaseExpression, names: Mapping[str, Value]) -> Any:
    match node:
        case cst.Name(value="True"):
            return True
        case cst.Name(value="False"):
            return False
        case cst.Name(value="None"):
            return None
        case cst.Name(value=name):
            return names.get(name, UNKNOWN)
        case cst.Integer() | cst.Float():
            return node.evaluated_value
        case cst.SimpleString():
            text = node.evaluated_value
            return text if isinstance(text, str) else UNKNOWN
        case cst.Tuple(elements=elements) | cst.List(elements=elements) | cst.Set(elements=elements):
            values = [UNKNOWN if isinstance(e, cst.StarredElement) else _evaluate(e.value, names) for e in elements]
            return UNKNOWN if UNKNOWN in values else tuple(values)
        case cst.UnaryOperation():
            return _unary(node, names)
        case cst.BinaryOperation():
            return _binary(node, names)
        case cst.BooleanOperation():
            left = _evaluate(node.left, names)
            if left is UNKNOWN:
                return UNKNOWN
            decided = not left if isinstance(node.operator, cst.And) else bool(left)
            return left if decided else _evaluate(node.right, names)
        case cst.Comparison():
            return _comparison(node, names)
        case cst.IfExp():
            test = _evaluate(node.test, names)
            if test is UNKNOWN:
                return UNKNOWN
            return _evaluate(node.body if test else node.orelse, names)
        case _:
            return UNKNOWN


def _unary(node: cst.UnaryOperation, names: Mapping[str, Value]) -> Any:
    value = _evaluate(node.expression, names)
    apply = _UNARY.get(type(node.operator))
    return UNKNOWN if value is UNKNOWN or apply is None else apply(value)


def _binary(node: cst.BinaryOperation, names: Mapping[str, Value]) -> Any:
    apply = _ARITHMETIC.get(type(node.operator))
    left, right = _evaluate(node.left, names), _evaluate(node.right, names)
    if apply is None or not all(isinstance(v, int | float) and abs(v) <= _LARGEST for v in (left, right)):
        return UNKNOWN
    return apply(left, right)


def _comparison(node: cst.Comparison, names: Mapping[str, Value]) -> Any:
    left = _evaluate(node.left, names)
    result = True
    for target in node.comparisons:
        right = _evaluate(target.comparator, names)
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        if isinstance(target.operator, cst.Is | cst.IsNot):
            if not (left is None or right is None or (isinstance(left, bool) and isinstance(right, bool))):
                return UNKNOWN
            result = result and (left is right) == isinstance(target.operator, cst.Is)
        else:
            result = result and bool(_COMPARE[type(target.operator)](left, right))
        left = right
    return result
