"""Removes the parameters that a rendering has no use for: those with the default None that only a dead branch read.

In ``launch`` they stand before the ``*``: tensors and numbers that the operator gives where a problem has them. With a
parameter goes what the file's own calls pass for it, which must be by keyword.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import libcst as cst

from tuner.fixing import without
from tuner.statements import Statement, changed, each, kept
from tuner.switches import callee_name

Names = Mapping[str, frozenset[str]]
"""By module-level function, names of its parameters."""


def unread(tree: ast.Module, read_before: Names) -> Names:
    """The optional parameters of ``tree`` that were read before (``parameters_read``), and are not now."""
    gone = {
        function.name: names
        for function in _functions(tree)
        if (names := (_optional(function) & read_before.get(function.name, frozenset())) - _read(function))
    }
    if not gone:
        return {}
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    for name in _referred_to(nodes, calls):
        gone.pop(name, None)
    definitions = {function.name: function for function in _functions(tree)}
    for call in calls:
        callee = callee_name(call.func)
        if callee in gone:
            gone[callee] -= _hidden(call, definitions[callee])
    return {function: names for function, names in gone.items() if names}


def parameters_read(tree: ast.Module) -> Names:
    """What the body of each function reads."""
    return {function.name: _read(function) for function in _functions(tree)}


def prune_optional(tree: ast.Module, gone: Names) -> None:
    """Take the parameters ``gone`` out of ``tree``, and what its calls pass for them."""
    for function in _functions(tree):
        _drop_parameters(function.args, gone.get(function.name, frozenset()))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        names = gone.get(callee_name(call.func) or "", frozenset())
        call.keywords = [k for k in call.keywords if k.arg not in names]


def remove_optional(module: cst.Module, gone: Names) -> cst.Module:
    """``module`` less the parameters ``gone``; itself where there are none."""
    functions = tuple(sorted(gone.items()))
    return each(module, lambda statement: _without(statement, functions)) if gone else module


@kept
def _without(statement: Statement, gone: tuple[tuple[str, frozenset[str]], ...]) -> Statement:
    return changed(statement, _Remove(dict(gone)))


def _drop_parameters(arguments: ast.arguments, names: frozenset[str]) -> None:
    left = len(arguments.args) - len(arguments.defaults) + len(arguments.posonlyargs)
    places = [*arguments.posonlyargs, *arguments.args]
    kept = [place >= left and a.arg in names for place, a in enumerate(places)]
    arguments.defaults = [d for place, d in enumerate(arguments.defaults, left) if not kept[place]]
    gone = {id(a) for a, out in zip(places, kept, strict=True) if out}
    arguments.args = [a for a in arguments.args if id(a) not in gone]
    pairs = [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if a.arg not in names]
    arguments.kwonlyargs, arguments.kw_defaults = [a for a, _ in pairs], [d for _, d in pairs]


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def _optional(function: ast.FunctionDef) -> frozenset[str]:
    """The parameters with the default None; of ``launch`` those before the ``*``."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    if function.name != "launch":
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    return frozenset(a.arg for a, default in pairs if isinstance(default, ast.Constant) and default.value is None)


def _read(function: ast.FunctionDef) -> frozenset[str]:
    body = [node for statement in function.body for node in ast.walk(statement)]
    return frozenset(node.id for node in body if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))


def _referred_to(nodes: Sequence[ast.AST], calls: Sequence[ast.Call]) -> set[str]:
    """What is used other than in calls by its name, so that not every call of it is known."""
    called = set()
    for call in calls:
        target: ast.expr = call.func
        while isinstance(target, ast.Subscript):
            target = target.value
        called.add(id(target))
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called}


def _hidden(call: ast.Call, function: ast.FunctionDef) -> set[str]:
    """The parameters of ``function`` that ``call`` passes, or may pass, other than by keyword."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return {*names, *(a.arg for a in function.args.kwonlyargs)}
    return set(names[: len(call.args)])


class _Remove(cst.CSTTransformer):
    def __init__(self, gone: Names) -> None:
        super().__init__()
        self._gone = gone
        self._depth = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._depth += 1

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._depth -= 1
        names = self._gone.get(updated_node.name.value, frozenset())
        if self._depth or not names:
            return updated_node
        parameters = updated_node.params
        return updated_node.with_changes(
            params=parameters.with_changes(
                params=without(parameters.params, names), kwonly_params=without(parameters.kwonly_params, names)
            )
        )

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        callee: cst.BaseExpression = original_node.func
        while isinstance(callee, cst.Subscript):
            callee = callee.value
        if not isinstance(callee, cst.Name) or not self._gone.get(callee.value):
            return updated_node
        return updated_node.with_changes(args=without(updated_node.args, self._gone[callee.value]))
