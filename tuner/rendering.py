"""Render a template: fix its switches, and give the one variant that they select, as source that stands alone."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import libcst as cst

from tuner.config import Value
from tuner.constants import literal
from tuner.errors import TemplateError
from tuner.fixing import fix
from tuner.fold import blank_lines, fold, leading_lines, with_leading
from tuner.optional_parameters import Names, parameters_read, prune_optional, remove_optional, unread
from tuner.statements import Statement, changed, code, each, kept, parse_statements
from tuner.switches import find_uses
from tuner.template import Template
from tuner.triton_api import resolve
from tuner.unused import Scoped, prune_unused, reads, remove_unused, unused
from tuner.variant import Variant


def render(template: Template, switches: Mapping[str, Value], triton_version: str | None) -> Variant:
    """The variant of ``template`` with ``switches`` fixed, for ``triton_version`` (None: any, by a shim for exp2).

    The same arguments give the same bytes. Raises ``TemplateError``, with the template's file and line, for a switch
    that cannot be fixed and for what the version cannot express.
    """
    # Values carry their type, because 1 == True and the cache must tell them apart.
    items = tuple((name, type(value).__name__, value) for name, value in sorted(switches.items()))
    return _render(template, items, triton_version)


@lru_cache(maxsize=512)
def _render(template: Template, items: tuple[tuple[str, str, Value], ...], triton_version: str | None) -> Variant:
    switches = {name: value for name, _, value in items}
    for name, value in switches.items():
        try:
            literal(value)
        except ValueError as error:
            raise TemplateError(f"{template.path}:1: the switch {name}: {error}; choose a finite value") from error
    uses = find_uses(template, switches)
    module = _without_unused(fold(fix(_parsed(template.source), uses)), template.source)
    module, spelling = resolve(module, template, triton_version)
    source = code(_tidy(module))
    source = source if source.endswith("\n") else source + "\n"
    try:
        ast.parse(source)
    except SyntaxError as error:
        raise TemplateError(f"{template.path}:1: the rendered source is not Python ({error}); simplify it") from error
    return Variant(
        operator=template.operator,
        template=template.name,
        template_hash=template.hash,
        switches=tuple(sorted(switches.items())),
        source=source,
        exp2=spelling,
    )


@lru_cache(maxsize=16)
def _parsed(source: str) -> cst.Module:
    return parse_statements(spaced(source))


@lru_cache(maxsize=16)
def _used(source: str) -> tuple[frozenset[Scoped], Names]:
    """What a template reads: names, and optional parameters."""
    tree = ast.parse(source)
    return reads(tree), parameters_read(tree)


def _without_unused(module: cst.Module, before: str) -> cst.Module:
    """``module`` less the names and optional parameters that ``before`` used and ``module`` does not.

    What goes leaves more without a use. That is followed in a plain ``ast`` tree, and taken out of ``module`` at once:
    a pass over a tree that keeps its layout takes many times as long.
    """
    names, parameters = _used(before)
    tree = ast.parse(code(module))
    gone: frozenset[Scoped] = frozenset()
    gone_parameters: dict[str, frozenset[str]] = {}
    while True:
        if more := unused(tree, names):
            prune_unused(tree, more)
            gone |= more
        elif found := unread(tree, parameters):
            prune_optional(tree, found)
            for function, of_it in found.items():
                gone_parameters[function] = gone_parameters.get(function, frozenset()) | of_it
        else:
            return remove_optional(remove_unused(module, gone), gone_parameters)


_SPACED = frozenset(keyword.kwlist) - {"True", "False", "None", "lambda", "print"}
# Where a source has none of these, also in its text, which is nearly all, its tokens need not be looked at.
_KEYWORDS = "|".join(sorted(_SPACED))
_GLUED = re.compile(rf"""\b({_KEYWORDS})[(\[{{'"]|[)\]}}'"0-9]({_KEYWORDS})\b""")


def spaced(source: str) -> str:
    """``source`` with a space between a keyword and a bracket or literal beside it (``if(x)``, ``(x)else 1``).

    Folding takes brackets away, and would else glue ``return(x)`` into ``returnx``.
    """
    if not _GLUED.search(source):
        return source
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for before, after in reversed(list(pairwise(tokens))):
        if before.end != after.start:
            continue
        opens = after.string[:1] in tuple("([{'\"0123456789") or after.type == tokenize.STRING
        closes = before.string[-1:] in tuple(")]}'\"0123456789") and before.type != tokenize.NAME
        if (before.string in _SPACED and opens) or (closes and after.string in _SPACED):
            row, column = after.start
            lines[row - 1] = f"{lines[row - 1][:column]} {lines[row - 1][column:]}"
    return "".join(lines)


def _tidy(module: cst.Module) -> cst.Module:
    tidied = each(module, _tidied)
    lines = {name: [line.visit(_Tidy()) for line in getattr(module, name)] for name in ("header", "footer")}
    tidied = tidied.with_changes(**lines)
    return _Tidy().leave_Module(tidied, tidied)


@kept
def _tidied(statement: Statement) -> Statement:
    return changed(statement, _Tidy())


class _Tidy(cst.CSTTransformer):
    """No trailing white space, at most two blank lines in a row at the top level and one further in."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self._depth += 1

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        self._depth -= 1
        return updated_node.with_changes(body=[self._statement(s, 1) for s in updated_node.body])

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        footer = list(updated_node.footer)
        while footer and footer[-1].comment is None:
            footer.pop()
        return updated_node.with_changes(
            body=[self._statement(s, 2) for s in updated_node.body],
            header=_collapsed(updated_node.header, 2),
            footer=footer,
        )

    def leave_EmptyLine(self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine) -> cst.EmptyLine:
        if updated_node.comment is None:
            return updated_node.with_changes(indent=False, whitespace=cst.SimpleWhitespace(""))
        return updated_node

    def leave_TrailingWhitespace(
        self, original_node: cst.TrailingWhitespace, updated_node: cst.TrailingWhitespace
    ) -> cst.TrailingWhitespace:
        if updated_node.comment is None:
            return updated_node.with_changes(whitespace=cst.SimpleWhitespace(""))
        return updated_node

    def leave_Comment(self, original_node: cst.Comment, updated_node: cst.Comment) -> cst.Comment:
        return updated_node.with_changes(value=updated_node.value.rstrip())

    def _statement(self, statement: cst.BaseStatement, limit: int) -> cst.BaseStatement:
        lines = _collapsed(leading_lines(statement), limit)
        return with_leading(statement, lines) if len(lines) != len(leading_lines(statement)) else statement


def _collapsed(lines: Sequence[cst.EmptyLine], limit: int) -> list[cst.EmptyLine]:
    """``lines`` with at most ``limit`` blank ones in a row."""
    out: list[cst.EmptyLine] = []
    for line in lines:
        if line.comment is None and blank_lines(out[::-1]) >= limit:
            continue
        out.append(line)
    return out
