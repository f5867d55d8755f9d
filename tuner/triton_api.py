"""What ``triton.language`` offers by version, and how a source is brought to an older one.

The table was read off the ``__all__`` of the wheels of 2.1.0 to 3.5.1. Hints that an older ``tl.range`` does not take
are dropped, because they do not change what is computed; anything else that a version lacks is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import libcst as cst

from tuner.errors import TemplateError
from tuner.exp2 import Version, exp2_spelling, parse_version, shim
from tuner.statements import Statement, changed, code, each, kept, parse_statements, trees
from tuner.template import Template

SINCE: dict[str, Version] = {
    "inline_asm_elementwise": (2, 2),
    "sort": (2, 2),
    "range": (3, 0),
    "cast": (3, 0),
    "clamp": (3, 0),
    "flip": (3, 0),
    "histogram": (3, 0),
    "interleave": (3, 0),
    "join": (3, 0),
    "permute": (3, 0),
    "split": (3, 0),
    "assume": (3, 2),
    "dot_scaled": (3, 2),
    "gather": (3, 3),
    "constexpr_function": (3, 4),
    "load_tensor_descriptor": (3, 4),
    "make_tensor_descriptor": (3, 4),
    "store_tensor_descriptor": (3, 4),
    "topk": (3, 4),
    "map_elementwise": (3, 5),
}
"""Names of ``triton.language`` and the first version that has them; names that are not here are in 2.1."""

IN_MATH = frozenset({"ceil", "div_rn", "erf", "exp2", "floor", "log2", "rsqrt", "sqrt_rn"})
"""Names that 2.1 to 2.3 have in ``triton.language.math`` (libdevice) and 3.0 has in ``triton.language``."""

RANGE_HINTS: dict[str, Version] = {
    "num_stages": (3, 0),
    "loop_unroll_factor": (3, 2),
    "disallow_acc_multi_buffer": (3, 3),
    "flatten": (3, 3),
    "warp_specialize": (3, 4),
    "disable_licm": (3, 5),
}
"""Keyword arguments of ``tl.range`` and the first version that takes them."""

MODULES: dict[str, Version] = {"triton.tools.tensor_descriptor": (3, 4), "triton.experimental.gluon": (3, 6)}
"""Modules that templates import, and the first version that has them (Gluon as the templates use it)."""


def resolve(module: cst.Module, template: Template, triton_version: str | None) -> tuple[cst.Module, str]:
    """``module`` for ``triton_version``, and how it spells the base-2 exponential (``none`` where it has none).

    Where the version is not known, only the exponential is made to run on all (``shim``). Raises ``TemplateError`` for
    what the version cannot express, with the line in the template.
    """
    language = _language(trees(module))
    module = _without_shim(module, language)
    version = None if triton_version is None else parse_version(triton_version)
    if version is not None:
        _refuse_missing(module, template, language, version, triton_version or "")
    spelling = exp2_spelling(triton_version)
    exponentials = 0

    def spelled(statement: Statement) -> Statement:
        nonlocal exponentials
        as_spelled, found = _spelled(statement, language, version, spelling == "shim")
        exponentials += found
        return as_spelled

    module = each(module, spelled)
    if not exponentials:
        return module, "none"
    if spelling == "shim":
        if "exp2" in {n.id for n in ast.walk(ast.parse(template.source)) if isinstance(n, ast.Name)} and not _has_shim(
            template.source, language
        ):
            raise TemplateError(f"{template.path}:1: the name exp2 is taken; write {language}.exp2 for the exponential")
        source = code(module)
        module = parse_statements(insert_after_imports(source, shim(language, _jit_name(source))))
    return module, spelling


@kept
def _spelled(statement: Statement, language: str, version: Version | None, use_shim: bool) -> tuple[Statement, int]:
    """``statement`` in the spelling of ``version``, and how many base-2 exponentials it holds."""
    rewrite = _Rewrite(language, version, use_shim)
    return changed(statement, rewrite), rewrite.exponentials


def language_name(source: str) -> str:
    """What the file calls ``triton.language`` (``tl`` where it does not import it under a name)."""
    return _language(ast.parse(source).body)


def _language(statements: Iterable[ast.stmt]) -> str:
    for node in statements:
        if isinstance(node, ast.Import | ast.ImportFrom):
            base = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                if base + alias.name == "triton.language" and (alias.asname or base):
                    return alias.asname or alias.name
    return "tl"


def insert_after_imports(source: str, text: str) -> str:
    """``source`` with ``text`` (whole lines) after its imports and a blank line."""
    line = 0
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            line = node.end_lineno or 0
    lines = source.splitlines(keepends=True)
    return "".join([*lines[:line], "\n", text, *lines[line:]])


def _jit_name(source: str) -> str:
    imports = [n for n in ast.parse(source).body if isinstance(n, ast.Import)]
    return "triton.jit" if any(a.name == "triton" and not a.asname for n in imports for a in n.names) else "jit"


def _has_shim(source: str, language: str) -> bool:
    return shim(language, _jit_name(source)) in source


def _without_shim(module: cst.Module, language: str) -> cst.Module:
    """``module`` before it was given a shim, so that rendering it again starts from the same text."""
    source = code(module)
    text = "\n" + shim(language, _jit_name(source))
    if text not in source:
        return module
    return cst.parse_module(source.replace(text, "", 1)).visit(_Unshim(language))


def lacking(source: str, triton_version: str) -> str | None:
    """What ``source`` cannot be rendered without and ``triton_version`` lacks, for people; None where it has all."""
    missing = next(_lacking(ast.parse(source).body, language_name(source), parse_version(triton_version)), None)
    return missing and f"needs Triton {missing[1][0]}.{missing[1][1]} for {missing[0]}; this is {triton_version}"


def _refuse_missing(module: cst.Module, template: Template, language: str, version: Version, text: str) -> None:
    for name, since in _lacking(trees(module), language, version):
        line = _line(template.source, name.rpartition(".")[2])
        raise TemplateError(
            f"{template.path}:{line}: {name} needs Triton {since[0]}.{since[1]}, but the rendering is for {text}; "
            "choose another template or a newer version"
        )


def _lacking(statements: Iterable[ast.stmt], language: str, version: Version) -> Iterator[tuple[str, Version]]:
    for name, since in _needs(statements, language):
        if since > version and name not in _REWRITTEN:
            yield name, since


def _needs(statements: Iterable[ast.stmt], language: str) -> Iterator[tuple[str, Version]]:
    # Level by level, as a walk over the whole goes: the first that is found is what is named.
    for node in ast.walk(ast.Module([*statements], [])):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == language:
            if node.attr in SINCE:
                yield f"tl.{node.attr}", SINCE[node.attr]
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield node.module, MODULES[node.module]
        elif isinstance(node, ast.Import):
            yield from ((a.name, MODULES[a.name]) for a in node.names if a.name in MODULES)


_REWRITTEN = ("tl.range", "tl.cast")


def _line(source: str, name: str) -> int:
    """The first line of ``source`` that holds ``name``."""
    return next((i for i, line in enumerate(source.splitlines(), 1) if name in line), 1)


class _Unshim(cst.CSTTransformer):
    def __init__(self, language: str) -> None:
        super().__init__()
        self._language = language

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if isinstance(updated_node.func, cst.Name) and updated_node.func.value == "exp2":
            return updated_node.with_changes(func=cst.Attribute(cst.Name(self._language), cst.Name("exp2")))
        return updated_node


class _Rewrite(cst.CSTTransformer):
    """Spell each use of ``triton.language`` for one version. ``exponentials`` counts the base-2 ones."""

    def __init__(self, language: str, version: Version | None, use_shim: bool) -> None:
        super().__init__()
        self.exponentials = 0
        self._language = cst.Name(language)
        self._version = version
        self._shim = use_shim

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        name = self._member(updated_node)
        if name is None:
            return updated_node
        if name == "exp2":
            self.exponentials += 1
            if self._shim:
                return cst.Name("exp2", lpar=updated_node.lpar, rpar=updated_node.rpar)
        elif self._version is None:
            return updated_node
        owner: cst.BaseExpression = self._language
        if self._version is not None and self._version < (3, 0):
            owner = cst.Attribute(self._language, cst.Name("math"))
        return updated_node.with_changes(value=owner, attr=cst.Name(name))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        function = updated_node.func
        if self._version is None or not self._is_language(function):
            return updated_node
        assert isinstance(function, cst.Attribute)
        if function.attr.value == "range":
            return self._range(updated_node)
        if function.attr.value == "cast" and self._version < (3, 0) and len(updated_node.args) == 2:
            value, dtype = (a.value for a in updated_node.args)
            if not isinstance(value, cst.Name | cst.Call | cst.Attribute | cst.Subscript) and not value.lpar:
                value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
            return cst.Call(cst.Attribute(value, cst.Name("to")), [cst.Arg(dtype)])
        return updated_node

    def _range(self, call: cst.Call) -> cst.Call:
        assert self._version is not None
        args = list(call.args)
        for name, since in RANGE_HINTS.items():
            if self._version < since:
                args = [a for a in args if a.keyword is None or a.keyword.value != name]
        if self._version < (3, 0):
            args = args[:3]
            call = call.with_changes(func=cst.Name("range"))
        if len(args) == len(call.args):
            return call
        last = args[-1].with_changes(comma=call.args[-1].comma, whitespace_after_arg=call.args[-1].whitespace_after_arg)
        return call.with_changes(args=[*args[:-1], last])

    def _is_language(self, node: cst.BaseExpression) -> bool:
        return (
            isinstance(node, cst.Attribute)
            and isinstance(node.value, cst.Name)
            and node.value.value == self._language.value
        )

    def _member(self, node: cst.Attribute) -> str | None:
        """``exp2`` for ``tl.exp2`` and ``tl.math.exp2``, and likewise for the others of ``IN_MATH``."""
        if node.attr.value not in IN_MATH:
            return None
        in_math = (
            isinstance(node.value, cst.Attribute) and node.value.attr.value == "math" and self._is_language(node.value)
        )
        return node.attr.value if in_math or self._is_language(node) else None
