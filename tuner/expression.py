"""The small, safe expression language of search spaces.

Text is parsed with ``ast`` and turned into closures of our own; nothing is ever compiled to code or run by Python. What
may be written: numbers, text, ``true``/``false``/``None``, names, ``+ - * / // % **``, comparisons (chained),
``and``/``or``/``not``, ``in`` and ``not in`` a list, ``a if c else b``, and the functions of ``tuner.arithmetic``.
Meaning is Python's, but for these: an integer beyond 2**63 or a float that is not finite is an error, and so is
arithmetic on text and a comparison of text with a number.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.arithmetic import ARITHMETIC, COMPARISONS, FUNCTIONS, Fault, bounded, described, is_number
from tuner.errors import ExpressionError
from tuner.naming import did_you_mean, listed
from tuner.problem import Scalar

MAX_TEXT = 1000
MAX_DEPTH = 64

Values = Mapping[str, Scalar]
Run = Callable[[Values], Any]

LITERALS = {"true": True, "false": False}
"""Names that stand for a value, as YAML spells them (Python's own spelling works too)."""


class _Reader:
    """Turns a syntax tree into closures, and collects the names in the order of their first use."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def read(self, node: ast.expr, depth: int = 0) -> Run:
        if depth > MAX_DEPTH:
            raise Fault(f"it is nested deeper than {MAX_DEPTH} levels")
        below = depth + 1
        match node:
            case ast.Constant(value=value):
                return self._constant(value)
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                run = self.read(operand, below)
                return lambda values: not run(values)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                return self._signed(isinstance(sign, ast.USub), self.read(operand, below))
            case ast.BinOp(op=op, left=left, right=right) if type(op) in ARITHMETIC:
                return self._arithmetic(op, self.read(left, below), self.read(right, below))
            case ast.BoolOp(op=op, values=parts):
                return self._logic(isinstance(op, ast.And), [self.read(part, below) for part in parts])
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return self._comparison(left, ops, rights, below)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                then, condition, otherwise = (self.read(part, below) for part in (body, test, orelse))
                return lambda values: then(values) if condition(values) else otherwise(values)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._call(name, [self.read(argument, below) for argument in arguments])
            case ast.Tuple() | ast.List():
                raise Fault("a list may only stand to the right of `in`")
        raise Fault(f"`{ast.unparse(node)[:60]}` is not part of the language ({type(node).__name__})")

    def _constant(self, value: object) -> Run:
        if is_number(value):
            bounded(value)
        elif value is not None and not isinstance(value, str):
            raise Fault(f"{value!r} is neither a number nor text")
        return lambda values: value

    def _name(self, name: str) -> Run:
        if name in LITERALS:
            return self._constant(LITERALS[name])
        if name in FUNCTIONS:
            raise Fault(f"`{name}` is a function: write {name}(...)")
        self.names.setdefault(name)
        return lambda values: values[name]

    def _signed(self, negative: bool, run: Run) -> Run:
        def signed(values: Values) -> Any:
            value = run(values)
            if not is_number(value):
                raise Fault(f"a sign before {described(value)}")
            return -value if negative else +value

        return signed

    def _arithmetic(self, op: ast.operator, left: Run, right: Run) -> Run:
        symbol, compute = ARITHMETIC[type(op)]

        def arithmetic(values: Values) -> Any:
            a, b = left(values), right(values)
            if not (is_number(a) and is_number(b)):
                raise Fault(f"`{symbol}` takes numbers, but got {described(a)} and {described(b)}")
            return bounded(compute(a, b))

        return arithmetic

    def _logic(self, conjunction: bool, runs: list[Run]) -> Run:
        def logic(values: Values) -> Any:
            value = None
            for run in runs:
                value = run(values)
                if bool(value) is not conjunction:
                    break
            return value

        return logic

    def _comparison(self, first: ast.expr, ops: list[ast.cmpop], rights: list[ast.expr], depth: int) -> Run:
        start = self.read(first, depth)
        steps: list[tuple[Callable[[Any, Any], bool], Run]] = []
        for op, right in zip(ops, rights, strict=True):
            if type(op) not in COMPARISONS:
                raise Fault("`is` is not part of the language; use == instead")
            if isinstance(op, ast.In | ast.NotIn):
                if op is not ops[-1]:
                    raise Fault("nothing may follow `in [...]` without `and` or `or`")
                steps.append((COMPARISONS[type(op)], self._list(right, depth)))
            else:
                steps.append((COMPARISONS[type(op)], self.read(right, depth)))

        def comparison(values: Values) -> bool:
            left = start(values)
            for compare, run in steps:
                right = run(values)
                if not compare(left, right):
                    return False
                left = right
            return True

        return comparison

    def _list(self, node: ast.expr, depth: int) -> Run:
        if not isinstance(node, ast.Tuple | ast.List):
            raise Fault("`in` needs a list to its right, as in `dtype in ['bf16', 'fp16']`")
        runs = [self.read(item, depth + 1) for item in node.elts]
        return lambda values: tuple(run(values) for run in runs)

    def _call(self, name: str, arguments: list[Run]) -> Run:
        function = FUNCTIONS.get(name)
        if function is None:
            raise Fault(f"no function is named `{name}`{did_you_mean(name, FUNCTIONS)}; known: {listed(FUNCTIONS)}")
        if not function.least <= len(arguments) <= function.most:
            count = str(function.least) if function.least == function.most else f"at least {function.least}"
            raise Fault(f"{name}() takes {count} argument(s), but got {len(arguments)}")
        call = function.call
        return lambda values: bounded(call(*[run(values) for run in arguments]))


@dataclass(frozen=True)
class Expression:
    """A parsed expression; make one with ``Expression.parse``. ``used`` are its names, in order of their first use."""

    text: str
    used: tuple[str, ...] = field(compare=False)
    _run: Run = field(repr=False, compare=False)

    @property
    def names(self) -> frozenset[str]:
        """The names that must have a value when it is evaluated."""
        return frozenset(self.used)

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Read ``text``. Raises ``ExpressionError`` where it is not of the language, or too long or deep."""
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        if len(text) > MAX_TEXT:
            raise ExpressionError(f"`{shown}`: it is {len(text)} characters long; at most {MAX_TEXT} are read")
        reader = _Reader()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                tree = ast.parse(text.strip(), mode="eval")
            run = reader.read(tree.body)
        except Fault as fault:
            raise ExpressionError(f"`{shown}`: {fault}") from None
        except SyntaxError as error:
            raise ExpressionError(f"`{shown}`: cannot be read: {error.msg}") from None
        except (ValueError, MemoryError, RecursionError, Warning) as error:
            raise ExpressionError(f"`{shown}`: cannot be read: {error}") from None
        return cls(text, tuple(reader.names), run)

    def evaluate(self, values: Values) -> Scalar:
        """The value with ``values`` for the names. Raises ``ExpressionError`` where it has none."""
        try:
            result: Scalar = self._run(values)
        except KeyError as error:
            name = str(error.args[0])
            raise ExpressionError(
                f"`{self.text}`: nothing is named `{name}`{did_you_mean(name, values)}; known: {listed(values)}"
            ) from None
        except Fault as fault:
            raise ExpressionError(f"`{self.text}`: {fault}{self._with(values)}") from None
        except ZeroDivisionError:
            raise ExpressionError(f"`{self.text}`: division by zero{self._with(values)}") from None
        except OverflowError:
            raise ExpressionError(f"`{self.text}`: a value is too large{self._with(values)}") from None
        return result

    def shown_values(self, values: Values) -> str:
        """For messages: the names that it uses with their values, ``cols=131072, dtype='bf16'``."""
        return ", ".join(f"{name}={values[name]!r}" for name in self.used if name in values)

    def _with(self, values: Values) -> str:
        shown = self.shown_values(values)
        return f" (with {shown})" if shown else ""

    def __reduce__(self) -> tuple[Callable[[str], Expression], tuple[str]]:
        # Closures do not pickle; the text says everything.
        return (Expression.parse, (self.text,))
