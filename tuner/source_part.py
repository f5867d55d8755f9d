"""The part of a Python file that some of its names need: what a kernel or a function takes along when it leaves home.

Read off the syntax tree; nothing is run. A name needs the statements at the top level that bind it, and what those name
in turn. A kernel that is imported from a file beside it comes along as well.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
from collections.abc import Iterable
from pathlib import Path

from tuner.errors import TemplateError

_FUTURE = "__future__"


def holds_more(tree: ast.Module, path: Path) -> bool:
    """Whether the file at ``path`` is more than a kernel that stands alone: it imports this project, which it declares
    something with, or functions of a file beside it."""
    return any("tuner" in _modules(node) or _beside(node, path) is not None for node in tree.body)


def needed(source: str, names: Iterable[str], path: Path) -> str:
    """The text of the statements that ``names`` need, imports first, with the comments above each.

    ``path`` is where it stands: modules beside it whose functions are imported give their own part in place of the
    import, so that the text stands alone. Raises ``TemplateError`` (file, line) where a name is bound nowhere, or where
    a module beside it is taken whole.
    """
    imports, rest = _parts(source, names, path)
    return "\n\n\n".join([*(["\n".join(dict.fromkeys(imports))] if imports else []), *dict.fromkeys(rest)]) + "\n"


def _parts(source: str, names: Iterable[str], path: Path) -> tuple[list[str], list[str]]:
    """The imports, and the other statements, that ``names`` need."""
    lines = source.splitlines()
    imports: list[str] = []
    rest: list[str] = []
    for node in _statements(_tree(source, path), names, path):
        beside = _beside(node, path)
        if beside is not None:
            assert isinstance(node, ast.ImportFrom)
            if any(alias.asname or alias.name == "*" for alias in node.names):
                raise TemplateError(f"{path}:{node.lineno}: write this import as `from {node.module} import name`")
            theirs = _parts(beside.read_text(encoding="utf-8"), [alias.name for alias in node.names], beside)
            imports += theirs[0]
            rest += theirs[1]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(ast.unparse(node))
        else:
            rest.append("\n".join(lines[_first_line(node, lines) - 1 : node.end_lineno]))
    return imports, rest


def digest_of(source: str, names: Iterable[str], path: Path) -> str:
    """The SHA-256, in hex, of what ``names`` need of the file. Comments and layout do not count."""
    text = "\n".join(ast.unparse(node) for node in _statements(_tree(source, path), names, path))
    return hashlib.sha256(text.encode()).hexdigest()


def _statements(tree: ast.Module, names: Iterable[str], path: Path) -> list[ast.stmt]:
    by_name: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in _bound(node):
            by_name.setdefault(name, []).append(node)
    wanted, waiting = {}, list(names)
    for name in waiting:
        if name not in by_name:
            raise TemplateError(f"{path}:1: nothing at the top level is called {name}; define it there")
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or (name not in by_name and hasattr(builtins, name)):
            continue
        seen.add(name)
        for node in by_name.get(name, ()):
            wanted[id(node)] = node
            waiting += [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in seen]
    return [node for node in tree.body if id(node) in wanted]


def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement at the top level binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return set() if node.module == _FUTURE else {alias.asname or alias.name for alias in node.names}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _beside(node: ast.stmt, path: Path) -> Path | None:
    """The file beside ``path`` that an import takes names from; None for any other statement."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return None
    for module in _modules(node):
        found = path.parent / f"{module}.py"
        if found.is_file() and found != path:
            if isinstance(node, ast.Import):
                raise TemplateError(
                    f"{path}:{node.lineno}: a kernel cannot take the whole module {module} along; write "
                    f"`from {module} import ...`"
                )
            return found
    return None


def _modules(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.Import):
        return tuple(alias.name.partition(".")[0] for alias in node.names)
    return (str(node.module).partition(".")[0],) if isinstance(node, ast.ImportFrom) else ()


def _first_line(node: ast.stmt, lines: list[str]) -> int:
    """1-based, with decorators and the comments that stand right above."""
    decorators = getattr(node, "decorator_list", [])
    first: int = min([node.lineno, *(d.lineno for d in decorators)])
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return first


def _tree(source: str, path: Path) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise TemplateError(f"{path}:{error.lineno or 1}: {error.msg}; it must be valid Python") from None
