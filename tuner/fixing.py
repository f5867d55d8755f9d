"""Fix switches in a libcst tree: the literal for each use, and no parameter or keyword argument of that name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TypeVar

import libcst as cst

from tuner.config import Value
from tuner.constants import literal
from tuner.partitions import WARP_SPECIALIZE
from tuner.statements import Statement, changed, each, kept, texts, words
from tuner.switches import Seen, Uses

_Item = TypeVar("_Item", cst.Arg, cst.Param)


def fix(module: cst.Module, uses: Uses) -> cst.Module:
    """``module`` with the switches of ``uses`` fixed. Nothing is folded yet."""
    seen = {id(s): uses.seen_by(words(text)) for s, text in zip(module.body, texts(module), strict=True)}
    return each(module, lambda statement: _fixed(statement, seen[id(statement)]))


@kept
def _fixed(statement: Statement, seen: Seen) -> Statement:
    return changed(statement, _Fix(seen.uses()))


class _Fix(cst.CSTTransformer):
    def __init__(self, uses: Uses) -> None:
        super().__init__()
        self._uses = uses
        self._depth = 0
        self._inside: Mapping[str, Value] = {}
        self._not_uses: set[cst.CSTNode] = set()
        self._partitions: set[cst.CSTNode] = set()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        if self._depth == 0:
            self._inside = self._uses.fixed.get(node.name.value, {})
        self._depth += 1

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._depth -= 1
        if self._depth:
            return updated_node
        names, self._inside = self._inside, {}
        parameters = updated_node.params
        positional = without(parameters.params, names)
        keyword_only = without(parameters.kwonly_params, names)
        star: cst.ParamStar | cst.Param | cst.MaybeSentinel = parameters.star_arg
        if not keyword_only and isinstance(star, cst.ParamStar):
            star = cst.MaybeSentinel.DEFAULT
            if positional and not isinstance(parameters.star_kwarg, cst.Param):
                positional = (*positional[:-1], _as_last(positional[-1], parameters.kwonly_params[-1]))
        return updated_node.with_changes(
            params=parameters.with_changes(params=positional, kwonly_params=keyword_only, star_arg=star)
        )

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._not_uses.add(node.attr)

    def visit_Param(self, node: cst.Param) -> None:
        self._not_uses.add(node.name)

    def visit_Arg(self, node: cst.Arg) -> None:
        if node.keyword is not None:
            self._not_uses.add(node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        if original_node.value not in self._inside or original_node in self._not_uses:
            return updated_node
        value = literal(self._inside[original_node.value])
        return value.with_changes(lpar=(*updated_node.lpar, *value.lpar), rpar=(*value.rpar, *updated_node.rpar))

    def visit_Call(self, node: cst.Call) -> None:
        starts = isinstance(node.func, cst.Attribute) and node.func.attr.value == WARP_SPECIALIZE and node.args
        if starts and isinstance(node.args[0].value, cst.List):
            self._partitions.update(e.value for e in node.args[0].value.elements)

    def leave_Tuple(self, original_node: cst.Tuple, updated_node: cst.Tuple) -> cst.Tuple:
        if original_node not in self._partitions or len(original_node.elements) != 2:
            return updated_node
        partition, arguments = (e.value for e in original_node.elements)
        if not isinstance(partition, cst.Name) or not isinstance(arguments, cst.Tuple):
            return updated_node
        gone = self._uses.fixed.get(partition.value, {}).keys()
        return _without_arguments(updated_node, self._uses.parameters.get(partition.value, ()), gone)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        callee: cst.BaseExpression = original_node.func
        while isinstance(callee, cst.Subscript):
            callee = callee.value
        if not isinstance(callee, cst.Name):
            return updated_node
        gone = {
            arg.keyword.value
            for arg in original_node.args
            if arg.keyword is not None and self._uses.removes(callee.value, arg.keyword.value, self._inside)
        }
        return updated_node.with_changes(args=without(updated_node.args, gone))


def without(items: Sequence[_Item], names: Mapping[str, Value] | Set[str]) -> tuple[_Item, ...]:
    """``items`` less those called ``names``, with the line breaks of what is left as they were."""
    left: list[_Item] = []
    for item in items:
        if _name(item) not in names:
            left.append(item)
        elif left and _breaks(item) and not _breaks(left[-1]):
            left[-1] = _as_last(left[-1], item)
    if left and len(left) < len(items) and left[-1] is not items[-1]:
        left[-1] = _as_last(left[-1], items[-1])
    return tuple(left)


def _name(item: cst.Arg | cst.Param) -> str | None:
    if isinstance(item, cst.Param):
        return item.name.value
    return item.keyword.value if item.keyword is not None else None


def _space(item: cst.Arg | cst.Param) -> cst.BaseParenthesizableWhitespace:
    return item.comma.whitespace_after if isinstance(item.comma, cst.Comma) else cst.SimpleWhitespace("")


def _breaks(item: cst.Arg | cst.Param) -> bool:
    return isinstance(_space(item), cst.ParenthesizedWhitespace)


def _as_last(item: _Item, gone: cst.Arg | cst.Param) -> _Item:
    """``item`` in the place of ``gone`` before what followed that: its comma, and its line break less its comment."""
    space, old = _space(gone), _space(item)
    if isinstance(space, cst.ParenthesizedWhitespace):
        first = old.first_line if isinstance(old, cst.ParenthesizedWhitespace) else cst.TrailingWhitespace()
        space = space.with_changes(first_line=first)
    comma: cst.Comma | cst.MaybeSentinel = cst.MaybeSentinel.DEFAULT
    if isinstance(gone.comma, cst.Comma):
        comma = gone.comma.with_changes(whitespace_after=space)
    if isinstance(item, cst.Arg) and isinstance(gone, cst.Arg):
        return item.with_changes(comma=comma, whitespace_after_arg=gone.whitespace_after_arg)
    if isinstance(item, cst.Param) and isinstance(gone, cst.Param):
        return item.with_changes(comma=comma, whitespace_after_param=gone.whitespace_after_param)
    return item.with_changes(comma=comma)


def _without_arguments(pair: cst.Tuple, parameters: Sequence[str], gone: Set[str]) -> cst.Tuple:
    """``pair``, a partition and its tuple of arguments, less the arguments for those of ``parameters`` in ``gone``."""
    arguments = pair.elements[1].value
    assert isinstance(arguments, cst.Tuple)
    kept = [e for e, name in zip(arguments.elements, parameters, strict=False) if name not in gone]
    kept += arguments.elements[len(parameters) :]
    if len(kept) == len(arguments.elements):
        return pair
    if kept:  # one element keeps its comma, without which it were no tuple; others end as they did
        comma = arguments.elements[-1].comma if len(kept) > 1 else cst.Comma()
        kept[-1] = kept[-1].with_changes(comma=comma)
    return pair.with_changes(
        elements=[pair.elements[0], pair.elements[1].with_changes(value=arguments.with_changes(elements=kept))]
    )
