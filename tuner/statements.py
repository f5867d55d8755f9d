"""A source's top-level statements as shared nodes, so that what a pass worked out of one need not be worked out again.

A template is rendered many times, and each rendering changes some of its functions; of two sources of one template most
functions are the same. Nodes of libcst never change, so statements of the same text are one node here, and a pass keeps
its result by the node.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeVar

import libcst as cst

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
_Result = TypeVar("_Result")
_KEPT = 128  # a kernel is some hundred kilobytes of nodes, and a template has some twenty statements


def kept(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """``function`` of a statement or its text, with its results for the latest ones kept."""
    return lru_cache(maxsize=_KEPT)(function)


def parse_statements(source: str) -> cst.Module:
    """The tree of ``source``; a statement that stood in an earlier one, between the same lines, is the node it was."""
    module = cst.parse_module(source)
    lines = source.split("\n")
    spans = list(_spans(source))
    if len(spans) != len(module.body) or "\r" in source or "\f" in source:
        return module
    body: list[Statement] = []
    for place, (statement, (start, _)) in enumerate(zip(module.body, spans, strict=True)):
        above = spans[place - 1][1] if place else 0
        below = spans[place + 1][0] - 1 if place + 1 < len(spans) else len(lines)
        if any(line[:1].isspace() and line.strip() for line in lines[above : start - 1]):
            body.append(statement)  # a comment there belongs to the statement before, if that is a block
            continue
        ends = (not place, below == len(lines))
        shared = _shared("\n".join(lines[above:below]), ends, module.default_indent)
        if not shared:
            shared.append(statement)
        body.append(shared[0])
    return module.with_changes(body=body)


@kept
def _shared(text: str, ends: tuple[bool, bool], indent: str) -> list[Statement]:
    """Where the statement of this text is kept: empty at first."""
    return []


def _spans(source: str) -> Iterator[tuple[int, int]]:
    """The first and last line, from 1, of each top-level statement; those that share a line are one."""
    first = last = 0
    for node in ast.parse(source).body:
        start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        if start > last and last:
            yield first, last
        first = first if start <= last else start
        last = node.end_lineno or node.lineno
    if last:
        yield first, last


def each(module: cst.Module, change: Callable[[Statement], Statement]) -> cst.Module:
    """``module`` with every top-level statement as ``change`` gives it; itself where that is what it was."""
    body = [change(statement) for statement in module.body]
    same = all(a is b for a, b in zip(body, module.body, strict=True))
    return module if same else module.with_changes(body=body)


def changed(statement: Statement, by: cst.CSTTransformer) -> Statement:
    """What ``by`` makes of ``statement``, of which it leaves one statement."""
    result = statement.visit(by)
    assert isinstance(result, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    return result


@kept
def _text(statement: Statement, indent: str, newline: str) -> str:
    return cst.Module([], default_indent=indent, default_newline=newline).code_for_node(statement)


def texts(module: cst.Module) -> list[str]:
    """The source of each top-level statement of ``module``."""
    return [_text(statement, module.default_indent, module.default_newline) for statement in module.body]


def code(module: cst.Module) -> str:
    """``module.code``."""
    if not (module.body and module.has_trailing_newline):
        return module.code
    outer = ["".join(module.code_for_node(line) for line in lines) for lines in (module.header, module.footer)]
    return "".join([outer[0], *texts(module), outer[1]])


@kept
def _tree(text: str) -> tuple[ast.stmt, ...]:
    return tuple(ast.parse(text).body)


def trees(module: cst.Module) -> list[ast.stmt]:
    """The top-level statements of ``module`` as the language's own trees, which are shared: only to be read."""
    return [node for text in texts(module) for node in _tree(text)]


@kept
def words(text: str) -> frozenset[str]:
    """Every word of ``text``: its names, and more."""
    return frozenset(re.findall(r"\w+", text))
