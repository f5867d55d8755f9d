"""Remove what a rendering left without a use: imports, helper functions and constants that only a dead branch needed.

Only what was used before is removed; what its author left unused stays.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from tuner.fold import blank_lines, leading_lines, with_blank_lines, with_leading
from tuner.statements import Statement, changed, each, kept

_PURE_CALLS = frozenset({"arange", "cdiv", "constexpr", "full", "num_programs", "program_id", "zeros"})
"""Functions of ``triton.language``, of Gluon's and of ``triton`` without an effect."""


Scoped = tuple[str, str]
"""(module-level function, or "" for the module; a name in it)."""


def unused(tree: ast.Module, used_before: frozenset[Scoped]) -> frozenset[Scoped]:
    """What of ``tree`` may go: names of ``used_before`` that nothing in it reads. ``launch`` always stays."""
    uses = reads(tree)
    return frozenset(
        (scope, name)
        for scope, name in _removable(tree)
        if (scope, name) in used_before and (scope, name) not in uses and name != "launch"
    )


def prune_unused(tree: ast.Module, gone: frozenset[Scoped]) -> None:
    """Take ``gone`` out of ``tree``, so that what only it read is seen to be unused too."""
    _Prune(gone).visit(tree)


def remove_unused(module: cst.Module, gone: frozenset[Scoped]) -> cst.Module:
    """``module`` less ``gone``; itself where that is nothing."""
    if not gone:
        return module

    def without(statement: Statement) -> Statement:
        if isinstance(statement, cst.SimpleStatementLine):
            return statement  # the module's own block takes care of it
        own = statement.name.value if isinstance(statement, cst.FunctionDef) else ""
        concerned = frozenset(scoped for scoped in gone if scoped[0] == own)
        return _without(statement, concerned) if concerned else statement

    rest = each(module, without)
    return _Remove(gone).leave_Module(rest, rest)


@kept
def _without(statement: Statement, gone: frozenset[Scoped]) -> Statement:
    return changed(statement, _Remove(gone))


def reads(tree: ast.Module) -> frozenset[Scoped]:
    """What is read where. What a function reads, the module reads too, but for the function's own name."""
    found: set[Scoped] = set()
    for statement in tree.body:
        scope = statement.name if isinstance(statement, ast.FunctionDef | ast.ClassDef) else ""
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.add((scope, node.id))
                if node.id != scope:
                    found.add(("", node.id))
    return frozenset(found)


def _removable(tree: ast.Module) -> Iterator[Scoped]:
    """What may be removed if it is not used: functions, imports, and assignments without an effect."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            yield "", statement.name
            yield from ((statement.name, name) for name in _local_constants(statement))
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from (("", (a.asname or a.name).partition(".")[0]) for a in statement.names)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and (name := _assigned(statement)):
            yield "", name


def _local_constants(function: ast.FunctionDef) -> set[str]:
    pure: set[str] = set()
    other: set[str] = set()
    in_pure: set[int] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and (name := _assigned(node)):
            pure.add(name)
            in_pure.add(id(node.targets[0] if isinstance(node, ast.Assign) else node.target))
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in in_pure:
            other.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            other.update(node.names)
    return pure - other


def _assigned(node: ast.Assign | ast.AnnAssign) -> str | None:
    """The one name that ``node`` assigns something without an effect to, else None."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if len(targets) != 1 or not isinstance(targets[0], ast.Name) or node.value is None or not _is_pure(node.value):
        return None
    return targets[0].id


def _is_pure(node: ast.expr) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            function = part.func
            if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
                return False
            if function.attr not in _PURE_CALLS or function.value.id not in ("tl", "gl", "triton"):
                return False
        elif isinstance(part, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr):
            return False
    return True


class _Prune(ast.NodeTransformer):
    """Does to an ``ast`` tree what ``_Remove`` does to one that keeps its layout."""

    def __init__(self, gone: frozenset[Scoped]) -> None:
        self._gone = gone
        self._scopes: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if not self._scopes and ("", node.name) in self._gone:
            return None
        self._scopes.append(node.name)
        self.generic_visit(node)
        self._scopes.pop()
        return _filled(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if len(node.targets) == 1 and self._is_gone(node.targets[0]) else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return None if node.value is not None and self._is_gone(node.target) else node

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        return self._import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return self._import(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return _filled(super().generic_visit(node))

    def _is_gone(self, target: ast.expr) -> bool:
        scope = self._scopes[0] if self._scopes else ""
        return isinstance(target, ast.Name) and (scope, target.id) in self._gone

    def _import(self, node: ast.Import | ast.ImportFrom) -> ast.AST | None:
        if self._scopes:
            return node
        node.names = [a for a in node.names if ("", (a.asname or a.name).partition(".")[0]) not in self._gone]
        return node if node.names else None


def _filled(node: ast.AST) -> ast.AST:
    """``node``, with ``pass`` where nothing is left of its body."""
    if getattr(node, "body", None) == [] and not isinstance(node, ast.Module):
        node.body = [ast.Pass()]  # type: ignore[attr-defined]
    return node


class _Remove(cst.CSTTransformer):
    def __init__(self, gone: frozenset[Scoped]) -> None:
        super().__init__()
        self._gone = gone
        self._scopes: list[str] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._scopes.append(node.name.value)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._scopes.pop()
        return updated_node

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        return updated_node.with_changes(body=self._block(updated_node.body))

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        body = self._block(updated_node.body)
        return updated_node.with_changes(body=body or [cst.SimpleStatementLine([cst.Pass()])])

    def _block(self, body: object) -> list[cst.BaseStatement]:
        assert isinstance(body, list | tuple)
        out: list[cst.BaseStatement] = []
        blanks = 0
        removed_first = False
        for statement in body:
            kept = self._statement(statement)
            if kept is None:
                blanks = max(blanks, blank_lines(leading_lines(statement)))
                removed_first = removed_first or not out
                continue
            if removed_first and not out and self._scopes:
                kept = with_leading(kept, leading_lines(kept)[blank_lines(leading_lines(kept)) :])
            else:
                kept = with_blank_lines(kept, blanks)
            blanks = 0
            out.append(kept)
        return out

    def _statement(self, statement: cst.BaseStatement) -> cst.BaseStatement | None:
        scope = self._scopes[0] if self._scopes else ""
        if isinstance(statement, cst.FunctionDef):
            return None if not scope and ("", statement.name.value) in self._gone else statement
        if not isinstance(statement, cst.SimpleStatementLine):
            return statement
        small = [kept for part in statement.body if (kept := self._small(part, scope)) is not None]
        if len(small) == len(statement.body) and all(a is b for a, b in zip(small, statement.body, strict=True)):
            return statement
        if not small:
            return None
        small[-1] = small[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return statement.with_changes(body=small)

    def _small(self, part: cst.BaseSmallStatement, scope: str) -> cst.BaseSmallStatement | None:
        match part:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
                return None if (scope, name) in self._gone else part
            case cst.AnnAssign(target=cst.Name(value=name), value=cst.BaseExpression()):
                return None if (scope, name) in self._gone else part
            case cst.Import() | cst.ImportFrom() if not scope and not isinstance(part.names, cst.ImportStar):
                names = [n for n in part.names if ("", _bound_name(n)) not in self._gone]
                if len(names) == len(part.names):
                    return part
                if not names:
                    return None
                last = names[-1].with_changes(comma=part.names[-1].comma)
                return part.with_changes(names=[*names[:-1], last])
            case _:
                return part


def _bound_name(alias: cst.ImportAlias) -> str:
    """The name that an import binds: ``a`` for ``import a.b``, ``c`` for ``import a.b as c``."""
    if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
        return alias.asname.name.value
    node: cst.BaseExpression = alias.name
    while isinstance(node, cst.Attribute):
        node = node.value
    assert isinstance(node, cst.Name)
    return node.value
