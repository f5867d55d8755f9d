"""Constant folding in a libcst tree: branches that cannot be taken go, and comments and layout of the rest stay.

Folded are ``if`` chains, conditional expressions, ``and``/``or``/``not``, comparisons, ``while`` with a false test, and
assertions that hold. Arithmetic stays as it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from tuner.constants import UNKNOWN, constant, literal
from tuner.statements import Statement, changed, each, kept

Lines = tuple[cst.EmptyLine, ...]


def fold(module: cst.Module) -> cst.Module:
    """``module`` with every constant condition decided. Names are not looked up: only literals are constant."""
    folded = each(module, _folded)
    return _Fold().leave_Module(folded, folded)


@kept
def _folded(statement: Statement) -> Statement:
    return changed(statement, _Fold())


def blank_lines(lines: Sequence[cst.EmptyLine]) -> int:
    """How many blank lines ``lines`` begins with."""
    count = 0
    while count < len(lines) and lines[count].comment is None:
        count += 1
    return count


def with_blank_lines(statement: cst.BaseStatement, at_least: int) -> cst.BaseStatement:
    """``statement`` preceded by ``at_least`` blank lines."""
    lines = leading_lines(statement)
    missing = at_least - blank_lines(lines)
    return statement if missing <= 0 else with_leading(statement, (_BLANK,) * missing + lines)


def leading_lines(statement: cst.BaseStatement) -> Lines:
    """The blank lines and comments before ``statement``."""
    return tuple(getattr(statement, "leading_lines", ()))


def with_leading(statement: cst.BaseStatement, lines: Sequence[cst.EmptyLine]) -> cst.BaseStatement:
    """``statement`` with other blank lines and comments before it."""
    return statement.with_changes(leading_lines=tuple(lines))


_BLANK = cst.EmptyLine(indent=False)
_NOTHING = cst.SimpleStatementLine([cst.Pass()])
"""What is put into a block of which nothing is left."""


@dataclass(frozen=True)
class _Arm:
    """One ``if``, ``elif`` or ``else`` of a chain. ``test`` is None for ``else``; ``node`` is where it came from."""

    test: cst.BaseExpression | None
    body: cst.BaseSuite
    lines: Lines
    node: cst.If | cst.Else


class _Fold(cst.CSTTransformer):
    # Expressions, innermost first.

    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> cst.BaseExpression:
        return _decided(updated_node) if isinstance(updated_node.operator, cst.Not) else updated_node

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        return _decided(updated_node)

    def leave_BooleanOperation(
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        left = constant(updated_node.left)
        if left is UNKNOWN:
            return updated_node
        takes_left = not left if isinstance(updated_node.operator, cst.And) else bool(left)
        return _inside(updated_node, updated_node.left if takes_left else updated_node.right)

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        node = updated_node.with_changes(test=_as_test(updated_node.test))
        test = constant(node.test)
        return node if test is UNKNOWN else _inside(node, node.body if test else node.orelse)

    # Statements, block by block.

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> cst.BaseSuite:
        statements, rest = self._block(updated_node.body)
        if statements and statements[0] is not updated_node.body[0]:
            lines = leading_lines(statements[0])
            statements[0] = with_leading(statements[0], lines[blank_lines(lines) :])
        block = updated_node.with_changes(body=statements, footer=(*rest, *updated_node.footer))
        if updated_node.body and not statements:
            block = block.with_changes(body=[_NOTHING])
        return block

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        statements, rest = self._block(updated_node.body)
        return updated_node.with_changes(body=statements, footer=(*rest, *updated_node.footer))

    def _block(self, body: Sequence[cst.BaseStatement]) -> tuple[list[cst.BaseStatement], Lines]:
        """The statements that are left of ``body``, and comment lines that now follow the last."""
        out: list[cst.BaseStatement] = []
        pending: Lines = ()
        blanks = 0
        for statement in body:
            kept, trailing = self._statement(statement)
            if not kept:
                blanks = max(blanks, blank_lines(leading_lines(statement)))
                continue
            if pending:
                kept[0] = with_leading(kept[0], pending + leading_lines(kept[0]))
            kept[0] = with_blank_lines(kept[0], blanks)
            blanks = 0
            pending = trailing
            out.extend(kept)
            if kept[-1] is not statement and _leaves(kept[-1]):
                break  # a branch that was taken for good ends in return, break...: nothing after it is reached
        return out, pending

    def _statement(self, statement: cst.BaseStatement) -> tuple[list[cst.BaseStatement], Lines]:
        if isinstance(statement, cst.If):
            return self._if(statement)
        if isinstance(statement, cst.While):
            return _while(statement)
        if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 and _holds(statement.body[0]):
            return [], ()
        return [statement], ()

    def _if(self, chain: cst.If) -> tuple[list[cst.BaseStatement], Lines]:
        arms = _arms(chain)
        left: list[_Arm] = []
        for arm in arms:
            test = True if arm.test is None else constant(arm.test)
            if test is UNKNOWN:
                left.append(arm)
            elif test:
                left.append(_Arm(None, arm.body, arm.lines, arm.node))
                break
        while len(left) > 1 and left[-1].test is None and _is_emptied(left[-1].body):
            left.pop()
        if all(_is_emptied(arm.body) and (arm.test is None or _is_pure(arm.test)) for arm in left):
            return [], ()
        above = () if left[0].node is chain else leading_lines(chain)
        if left[0].test is None:
            return _spliced(left[0], above)
        raw = _raw_tests(chain)
        if len(left) == len(raw) and all(arm.test is test for arm, test in zip(left, raw, strict=True)):
            return [chain], ()
        return [_rebuilt(left, above)], ()


def _decided(node: cst.BaseExpression) -> cst.BaseExpression:
    value = constant(node)
    return node if value is UNKNOWN else literal(value)


def _inside(outer: cst.BaseExpression, inner: cst.BaseExpression) -> cst.BaseExpression:
    """``inner`` in the place of ``outer``, in parentheses where ``outer`` had them and they mean something."""
    if not outer.lpar or inner.lpar:
        return inner
    simple = isinstance(inner, cst.Name | cst.Integer | cst.Float | cst.SimpleString)
    if not simple and isinstance(inner, cst.Call | cst.Attribute | cst.Subscript):
        simple = "\n" not in cst.Module([]).code_for_node(inner)
    return inner if simple else inner.with_changes(lpar=outer.lpar, rpar=outer.rpar)


def _as_test(node: cst.BaseExpression) -> cst.BaseExpression:
    """``node`` where only its truth matters: ``x and True`` is x, ``x and False`` is False if x has no effects."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        inner = _as_test(node.expression)
        if inner is node.expression:
            return node
        value = constant(inner)
        return node.with_changes(expression=inner) if value is UNKNOWN else literal(not value)
    if not isinstance(node, cst.BooleanOperation):
        return node
    left, right = _as_test(node.left), _as_test(node.right)
    is_and = isinstance(node.operator, cst.And)
    for value, other in ((constant(left), right), (constant(right), left)):
        if value is UNKNOWN:
            continue
        if bool(value) == is_and:
            return _inside(node, other)
        if other is right or _is_pure(other):
            return literal(not is_and)
    if left is node.left and right is node.right:
        return node
    return node.with_changes(left=left, right=right)


def _is_pure(node: cst.BaseExpression) -> bool:
    """Whether evaluating ``node`` has no effect and cannot fail in a kernel: names, literals and operators on them."""
    match node:
        case cst.Name() | cst.Integer() | cst.Float() | cst.SimpleString():
            return True
        case cst.Attribute():
            return _is_pure(node.value)
        case cst.UnaryOperation():
            return _is_pure(node.expression)
        case cst.BooleanOperation() | cst.BinaryOperation():
            return _is_pure(node.left) and _is_pure(node.right)
        case cst.Comparison():
            return _is_pure(node.left) and all(_is_pure(c.comparator) for c in node.comparisons)
        case _:
            return False


def _raw_tests(chain: cst.If) -> list[cst.BaseExpression | None]:
    tests: list[cst.BaseExpression | None] = []
    node: cst.If | cst.Else | None = chain
    while node is not None:
        tests.append(node.test if isinstance(node, cst.If) else None)
        node = node.orelse if isinstance(node, cst.If) else None
    return tests


def _arms(chain: cst.If) -> list[_Arm]:
    arms: list[_Arm] = []
    node: cst.If | cst.Else | None = chain
    while node is not None:
        test = _as_test(node.test) if isinstance(node, cst.If) else None
        arms.append(_Arm(test, node.body, tuple(node.leading_lines), node))
        node = node.orelse if isinstance(node, cst.If) else None
    return arms


def _rebuilt(arms: Sequence[_Arm], above: Lines) -> cst.If:
    """The chain of ``arms``, of which the first has a test."""
    orelse: cst.If | cst.Else | None = None
    for index in range(len(arms) - 1, -1, -1):
        arm = arms[index]
        lines = arm.lines if index else above + _without_blank_lines(arm.lines, bool(above))
        if arm.test is None:
            orelse = arm.node if isinstance(arm.node, cst.Else) else cst.Else(arm.body, leading_lines=lines)
            continue
        assert isinstance(arm.node, cst.If)
        # `if(x):` needs no space, `elif x:` does; `if True and (x):` may leave `ifx` behind
        space = arm.node.whitespace_before_test if arm.node.whitespace_before_test.value else cst.SimpleWhitespace(" ")
        orelse = arm.node.with_changes(test=arm.test, orelse=orelse, leading_lines=lines, whitespace_before_test=space)
    assert isinstance(orelse, cst.If)
    return orelse


def _spliced(arm: _Arm, above: Lines) -> tuple[list[cst.BaseStatement], Lines]:
    """The statements of an arm that is always taken, with the comments of the choice before them."""
    body = arm.body
    lines = above + _without_blank_lines(arm.lines, bool(above))
    if isinstance(body, cst.IndentedBlock):
        statements = list(body.body)
        if body.header.comment is not None:
            lines += (cst.EmptyLine(comment=body.header.comment),)
        footer = tuple(body.footer)
    else:
        assert isinstance(body, cst.SimpleStatementSuite)
        statements = [cst.SimpleStatementLine(body.body, trailing_whitespace=body.trailing_whitespace)]
        footer = ()
    if len(statements) > 1 or not _is_pass(statements[0]):
        first = _without_blank_lines(leading_lines(statements[0]), True)
        statements[0] = with_leading(statements[0], lines + first)
        return statements, footer
    return [], ()


def _without_blank_lines(lines: Lines, strip: bool) -> Lines:
    return lines[blank_lines(lines) :] if strip else lines


def _while(loop: cst.While) -> tuple[list[cst.BaseStatement], Lines]:
    test = constant(_as_test(loop.test))
    if test is UNKNOWN or test:
        return [loop], ()
    if loop.orelse is None:
        return [], ()
    arm = _Arm(None, loop.orelse.body, tuple(loop.orelse.leading_lines), loop.orelse)
    return _spliced(arm, tuple(loop.leading_lines))


def _holds(statement: cst.BaseSmallStatement) -> bool:
    """Whether ``statement`` is an ``assert`` or ``tl.static_assert`` of something constant and true."""
    match statement:
        case cst.Assert(test=test):
            pass
        case cst.Expr(value=cst.Call(func=cst.Attribute(attr=cst.Name(value="static_assert")), args=[first, *_])):
            test = first.value
        case _:
            return False
    value = constant(test)
    return value is not UNKNOWN and bool(value)


def _is_emptied(body: cst.BaseSuite) -> bool:
    return isinstance(body, cst.IndentedBlock) and len(body.body) == 1 and body.body[0] is _NOTHING


def _is_pass(statement: cst.BaseStatement) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and len(statement.body) == 1
        and isinstance(statement.body[0], cst.Pass)
    )


def _leaves(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[-1], cst.Return | cst.Raise | cst.Break | cst.Continue
    )
