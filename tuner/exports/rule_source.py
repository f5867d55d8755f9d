"""Writes the rules of search spaces as Python, for tables that must decide about shapes where this project is not.

An expression has been read by ``tuner.expression``, which admits arithmetic, comparisons and a few functions and
nothing else; what is written is its own tree with names looked up in ``v``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tuner.exports.rules import Rules
from tuner.expression import LITERALS, Expression


@dataclass(frozen=True)
class RuleSource:
    """The parts of a rule as Python expressions over ``v``."""

    name: str
    template: str
    where: str
    fixed: tuple[tuple[str, str], ...]
    derived: tuple[tuple[str, str], ...]
    constraints: tuple[str, ...]
    limits: tuple[tuple[str, str, str], ...]

    @classmethod
    def of(cls, rules: Rules, operator: str) -> RuleSource:
        """The source of ``rules``, under a name that follows from what they say."""
        return cls(
            name=f"rule_{rules.key}",
            template=f"{operator}/{rules.template}",
            where="" if rules.where is None else python(rules.where),
            fixed=tuple((name, python(e)) for name, e in rules.fixed),
            derived=tuple((name, python(e)) for name, e in rules.derived),
            constraints=tuple(python(e) for e in rules.constraints),
            limits=tuple((axis, python(tile), python(most)) for axis, tile, most in rules.limits),
        )


def python(expression: Expression) -> str:
    """``expression`` as Python: names become ``v["name"]``, ``true`` and ``false`` Python's own."""
    tree = ast.parse(expression.text.strip(), mode="eval")
    return ast.unparse(ast.fix_missing_locations(_Named().visit(tree)))


class _Named(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in LITERALS:
            return ast.Constant(LITERALS[node.id])
        return ast.Subscript(ast.Name("v", ast.Load()), ast.Constant(node.id), ast.Load())
