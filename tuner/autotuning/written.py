"""Which arguments a kernel may write, read off its source: what a copy must be restored from before each launch.

The answer errs on one side only: an argument that reaches a store, an atomic or anything unknown counts as written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tuner.autotuning.kernel_source import FunctionNumber, FunctionSource, KernelSource, ModuleName

_WRITERS = ("store", "atomic_", "scatter", "async_copy", "reduce_add", "copy_")
_UNKNOWN = ("inline_asm", "extern")  # of Triton's language, and yet anything may happen in it
# Plain Python and methods of values: what they are given they do not write to.
_HARMLESS = (
    "range",
    "min",
    "max",
    "len",
    "int",
    "float",
    "isinstance",
    "getattr",
    "print",
    "static_range",
    "static_print",
)


def written_arguments(source: KernelSource) -> frozenset[str]:
    """The names of the kernel's arguments that it may write to."""
    return _Writers(source).written(0)


class _Writers:
    """Remembers each function's answer; one that is asked for while it is being found out writes everything."""

    def __init__(self, source: KernelSource) -> None:
        self._source = source
        self._known: dict[int, frozenset[str]] = {}

    def written(self, number: int) -> frozenset[str]:
        function = self._source.functions[number]
        node = function.definition()
        parameters = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if number not in self._known:
            self._known[number] = frozenset(parameters)
            origins = _origins(node, parameters)
            found: set[str] = set()
            for name in self._targets(node, function):
                found |= origins.get(name, set())
            self._known[number] = frozenset(found)
        return self._known[number]

    def _targets(self, node: ast.FunctionDef, function: FunctionSource) -> Iterator[str]:
        """The names in every expression that is written to."""
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            callee = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
            reference = function.names.get(callee) if isinstance(call.func, ast.Name) else None
            if isinstance(reference, FunctionNumber):
                yield from self._through_call(call, reference.number)
            elif callee.startswith(_WRITERS):
                # The place comes first; a descriptor is what the method is called on.
                yield from _names_in(call.args[0] if call.args else call)
                yield from (name for word in call.keywords for name in _names_in(word.value) if word.arg != "mask")
                if isinstance(call.func, ast.Attribute):
                    yield from _names_in(call.func.value)
            elif callee.startswith(_UNKNOWN) or not self._is_harmless(call, callee, function):
                yield from _names_in(call)

    def _through_call(self, call: ast.Call, number: int) -> Iterator[str]:
        node = self._source.functions[number].definition()
        parameters = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        written = self.written(number)
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            yield from _names_in(call)
            return
        for name, argument in zip(parameters, call.args, strict=False):
            if name in written:
                yield from _names_in(argument)
        for word in call.keywords:
            if word.arg is None or word.arg in written:
                yield from _names_in(word.value)

    @staticmethod
    def _is_harmless(call: ast.Call, callee: str, function: FunctionSource) -> bool:
        if isinstance(call.func, ast.Attribute):
            root = next((n for n in ast.walk(call.func) if isinstance(n, ast.Name)), None)
            module = function.names.get(root.id) if root is not None else None
            # A method of a value (x.to(...)), or a function of Triton's language that is no writer.
            return module is None or (isinstance(module, ModuleName) and module.name.split(".")[0] == "triton")
        reference = function.names.get(callee)
        if isinstance(reference, ModuleName):
            return reference.name.split(".")[0] == "triton"
        if reference is not None:
            return str(getattr(reference, "__module__", "")).split(".")[0] == "triton"
        return callee in _HARMLESS


def _names_in(node: ast.AST) -> Iterator[str]:
    return (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))


def _origins(node: ast.FunctionDef, parameters: list[str]) -> dict[str, set[str]]:
    """For every local name the parameters that its value may be made of, until nothing changes any more."""
    origins = {name: {name} for name in parameters}
    while True:
        before = sum(len(found) for found in origins.values())
        for inner in ast.walk(node):
            targets, value = _assignment(inner)
            if value is None:
                continue
            made_of = set().union(*(origins.get(name, set()) for name in _names_in(value)))
            for name in (name for target in targets for name in _names_in(target)):
                origins[name] = origins.get(name, set()) | made_of
        if sum(len(found) for found in origins.values()) == before:
            return origins


def _assignment(node: ast.AST) -> tuple[list[ast.expr], ast.expr | None]:
    if isinstance(node, ast.Assign):
        return node.targets, node.value
    if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
        return [node.target], node.value
    if isinstance(node, ast.For):
        return [node.target], node.iter
    return [], None


def mentions(source: KernelSource, word: str) -> bool:
    """Whether the kernel, or a function that it calls, has a call of that name (``dot``)."""
    calls = (n for f in source.functions for n in ast.walk(f.definition()) if isinstance(n, ast.Call))
    return any((c.func.attr if isinstance(c.func, ast.Attribute) else ast.unparse(c.func)) == word for c in calls)


def keyword_values(source: KernelSource, call: str, keyword: str) -> set[str]:
    """The literal texts given as ``keyword`` in calls of that name; ``""`` where one is not given or no literal."""
    found = set()
    for function in source.functions:
        for node in ast.walk(function.definition()):
            name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            if isinstance(node, ast.Call) and name == call:
                values: Mapping[str | None, ast.expr] = {word.arg: word.value for word in node.keywords}
                given = values.get(keyword)
                found.add(str(given.value) if isinstance(given, ast.Constant) else "")
    return found
