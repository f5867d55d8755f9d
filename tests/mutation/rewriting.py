"""Rewrites Python source through its syntax tree: a pattern, and what takes its place.

In a pattern a name ``any_...`` stands for any expression (the same one where it comes twice), and ``**any_...`` as the
last argument of a call for all further arguments, whatever they are; the replacement may use both. Layout, comments and
brackets that change nothing do not count.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import libcst as cst

_WILD = "any_"
_LAYOUT = ("whitespace", "lpar", "rpar", "comma", "semicolon", "leading_lines", "trailing_whitespace")

Found = dict[str, Any]


class NotFoundError(Exception):
    """A pattern does not occur where a change expects it: the template has moved on, and the change must follow."""


@dataclass(frozen=True)
class Change:
    """``old`` becomes ``new`` wherever it occurs: both expressions, or both statements (``new`` several, or none).

    ``function``: only inside the top-level function of that name. ``which``: only that occurrence, counted from 0 in
    the order of the source. An empty ``old`` puts ``new`` at the start of ``function``.
    """

    old: str
    new: str
    function: str = ""
    which: int | None = None


def rewrite(source: str, changes: Sequence[Change]) -> str:
    """``source`` after all ``changes``, one after the other. Raises ``NotFoundError`` for one that changes nothing."""
    for change in changes:
        module = _parsed(source)
        rewritten = _at_start(module, change) if not change.old else _replaced(module, change)
        if _meaning(rewritten) == _meaning(source):
            raise NotFoundError(f"{change.old!r} -> {change.new!r} leaves the source as it is")
        source = rewritten
    return source


@lru_cache(maxsize=4)  # a template has its bugs one after the other
def _parsed(source: str) -> cst.Module:
    return cst.parse_module(source)


@lru_cache(maxsize=4)
def _meaning(source: str) -> str:
    return ast.dump(ast.parse(source))


def _at_start(module: cst.Module, change: Change) -> str:
    for place, statement in enumerate(module.body):
        if isinstance(statement, cst.FunctionDef) and statement.name.value == change.function:
            block = cst.ensure_type(statement.body, cst.IndentedBlock)
            first = 1 if statement.get_docstring() is not None else 0
            body = [*block.body[:first], *cst.parse_module(change.new).body, *block.body[first:]]
            function = statement.with_changes(body=block.with_changes(body=body))
            return module.with_changes(body=[*module.body[:place], function, *module.body[place + 1 :]]).code
    raise NotFoundError(f"there is no function {change.function}")


def _replaced(module: cst.Module, change: Change) -> str:
    old, new = _expression(change.old), _expression(change.new)
    statements = old is None or new is None
    pattern = cst.parse_module(change.old).body[0] if statements else old
    places = [p for p, s in enumerate(module.body) if not change.function or _name(s) == change.function]
    matches = [(place, *match) for place in places for match in _search(module.body[place], pattern)]
    if len(matches) <= (change.which or 0):
        where = f" in {change.function}" if change.function else ""
        raise NotFoundError(f"{change.old!r} occurs {len(matches)} times{where}")
    chosen = matches if change.which is None else [matches[change.which]]
    body = list(module.body)
    there = {id(node): found for _, node, found in chosen}
    replacement = cst.parse_module(change.new) if statements else new
    for place in {place for place, _, _ in chosen}:
        # Only the function that changes is built anew: a template has thousands of nodes.
        body[place] = body[place].visit(_Replace(there, replacement))
    return module.with_changes(body=body).code


def _name(statement: cst.CSTNode) -> str:
    return statement.name.value if isinstance(statement, cst.FunctionDef) else ""


def _search(node: cst.CSTNode, pattern: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, Found]]:
    """Every node below ``node`` that matches, in the order of the source, and what the wildcards stand for there; none
    inside another."""
    found: Found = {}
    if _matches(pattern, node, found):
        yield node, found
        return
    for child in _children(node):
        yield from _search(child, pattern)


def _children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for name in _content(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, list | tuple):
            yield from value


@cache
def _content(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The names of a node's fields that are more than layout."""
    return tuple(f.name for f in dataclasses.fields(kind) if not f.name.startswith(_LAYOUT))  # type: ignore[arg-type]


def _expression(text: str) -> cst.BaseExpression | None:
    try:
        return cst.parse_expression(text)
    except cst.ParserSyntaxError:
        return None


def _matches(pattern: cst.CSTNode, node: cst.CSTNode, found: Found) -> bool:
    if isinstance(pattern, cst.Name) and pattern.value.startswith(_WILD):
        known = found.setdefault(pattern.value, node)
        return isinstance(node, cst.BaseExpression) and (known is node or _matches(known, node, {}))
    if type(pattern) is not type(node):
        return False
    return all(_same(getattr(pattern, name), getattr(node, name), found) for name in _content(type(pattern)))


def _same(pattern: Any, value: Any, found: Found) -> bool:
    if isinstance(pattern, cst.CSTNode):
        return isinstance(value, cst.CSTNode) and _matches(pattern, value, found)
    if not isinstance(pattern, list | tuple):
        return bool(pattern == value)
    if not isinstance(value, list | tuple):
        return False
    if pattern and (rest := _rest(pattern[-1])):
        pattern = pattern[:-1]
        found[rest], value = value[len(pattern) :], value[: len(pattern)]
    return len(pattern) == len(value) and all(_same(p, v, found) for p, v in zip(pattern, value, strict=True))


def _rest(argument: Any) -> str:
    """The name of an argument that stands for all further ones; empty for any other."""
    if isinstance(argument, cst.Arg) and argument.star == "**" and isinstance(argument.value, cst.Name):
        return argument.value.value if argument.value.value.startswith(_WILD) else ""
    return ""


class _Replace(cst.CSTTransformer):
    def __init__(self, chosen: Mapping[int, Found], new: cst.CSTNode) -> None:
        super().__init__()
        self._chosen, self._new = chosen, new

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        found = self._chosen.get(id(original_node))
        if found is None:
            return super().on_leave(original_node, updated_node)
        filled: Any = self._new.visit(_Fill(found))
        if isinstance(filled, cst.Module):
            return cst.FlattenSentinel(filled.body) if filled.body else cst.RemoveFromParent()
        return _bracketed(filled)


class _Fill(cst.CSTTransformer):
    """Puts what the wildcards stand for in their places."""

    def __init__(self, found: Found) -> None:
        super().__init__()
        self._found = found

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        found = self._found.get(updated_node.value)
        return _bracketed(found.deep_clone()) if isinstance(found, cst.CSTNode) else updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        arguments = updated_node.args
        name = _rest(arguments[-1]) if arguments else ""
        if not name:
            return updated_node
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        rest = [argument.deep_clone() for argument in self._found[name]]
        return updated_node.with_changes(args=[*(a.with_changes(comma=comma) for a in arguments[:-1]), *rest])


def _bracketed(expression: Any) -> Any:
    if isinstance(expression, cst.Name | cst.Call | cst.Attribute | cst.Subscript | cst.Integer | cst.Float):
        return expression
    if isinstance(expression, cst.Arg) or expression.lpar:
        return expression
    return expression.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
