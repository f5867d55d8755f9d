"""Where a template uses its switches: which function parameters a rendering may fix, and what forbids one.

A switch is a keyword-only parameter of ``launch`` that is handed down by keyword under one name. A function's parameter
of that name is fixed with it if every call passes the switch (or the same literal); a helper that some call gives
another literal keeps its parameter, as an ordinary ``tl.constexpr`` of its own.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from tuner.config import Value
from tuner.constants import constant, same
from tuner.errors import TemplateError
from tuner.partitions import partition_calls
from tuner.template import Template, parse

Fixed = dict[str, dict[str, Value]]
"""For each module-level function, the switches that are fixed inside it."""


@dataclass(frozen=True)
class Uses:
    """``fixed``: what is fixed in each module-level function; ``module_names``: what the module binds.

    ``parameters`` are those of each module-level function, in order.
    """

    fixed: Fixed
    module_names: frozenset[str]
    parameters: Mapping[str, tuple[str, ...]]

    def removes(self, callee: str, switch: str, inside: Mapping[str, Value]) -> bool:
        """Whether a call of ``callee`` in a function that fixes ``inside`` loses its keyword argument ``switch``."""
        if callee in self.fixed:
            return switch in self.fixed[callee]
        return switch in inside and is_alias(callee, self.module_names)

    def seen_by(self, words: Collection[str]) -> Seen:
        """What a statement of these ``words`` sees of this."""
        fixed = tuple(
            (name, tuple((switch, type(value).__name__, value) for switch, value in sorted(values.items())))
            for name, values in sorted(self.fixed.items())
            if name in words
        )
        parameters = tuple((name, own) for name, own in sorted(self.parameters.items()) if name in words)
        return Seen(fixed, self.module_names.intersection(words), parameters)


@dataclass(frozen=True)
class Seen:
    """The part of ``Uses`` that concerns one statement, as a value to keep results by.

    Values of switches carry their type, because 1 == True.
    """

    fixed: tuple[tuple[str, tuple[tuple[str, str, Value], ...]], ...]
    module_names: frozenset[str]
    parameters: tuple[tuple[str, tuple[str, ...]], ...]

    def uses(self) -> Uses:
        fixed = {name: {switch: value for switch, _, value in values} for name, values in self.fixed}
        return Uses(fixed, self.module_names, dict(self.parameters))


@dataclass(frozen=True)
class _Call:
    """``by_position``: the callee is a partition, which gets everything by position."""

    caller: str
    callee: str
    node: ast.Call
    by_position: bool = False


def find_uses(template: Template, switches: Mapping[str, Value]) -> Uses:
    """Read how ``template`` uses ``switches``. Raises ``TemplateError`` (file, line) for a use that cannot be fixed."""
    return _Reader(template, switches).read()


def callee_name(node: ast.expr) -> str | None:
    """The name that is called in ``name(...)`` or ``name[grid](...)``, else None."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def is_alias(callee: str, module_names: frozenset[str]) -> bool:
    """Whether a callee is a local name, which may stand for a kernel of the file (``fn = kernel[grid]``)."""
    return callee not in module_names and not hasattr(builtins, callee)


class _Reader:
    def __init__(self, template: Template, switches: Mapping[str, Value]) -> None:
        self.path = template.path
        self.switches = switches
        self.tree = parse(template.source, template.path)
        self.functions = {n.name: n for n in self.tree.body if isinstance(n, ast.FunctionDef)}
        self.module_names = frozenset(_bound(self.tree))
        self.parameters = {name: _parameters(node) for name, node in self.functions.items()}

    def read(self) -> Uses:
        launch = self.functions["launch"]
        keyword_only = [a.arg for a in launch.args.kwonlyargs]
        for switch in self.switches:
            if switch not in keyword_only:
                known = ", ".join(keyword_only)
                raise self.error(
                    launch, f"launch() has no keyword-only parameter {switch}", f"name one of {known} as the switch"
                )
        calls = list(self._calls())
        for node in ast.walk(self.tree):
            self._refuse_binding(node)
            self._refuse_quoted(node)
        for name, function in self.functions.items():
            self._refuse_unknown(name, function)
        fixed = {
            name: {s: v for s, v in self.switches.items() if s in parameters}
            for name, parameters in self.parameters.items()
        }
        while self._unfix_one(calls, fixed):
            pass
        self._refuse_open_references(fixed)
        return Uses(fixed, self.module_names, self.parameters)

    def error(self, node: ast.AST, problem: str, remedy: str) -> TemplateError:
        return TemplateError(f"{self.path}:{getattr(node, 'lineno', 1)}: {problem}; {remedy}")

    def _calls(self) -> Iterator[_Call]:
        for caller, function in self.functions.items():
            for node in ast.walk(function):
                if not isinstance(node, ast.Call):
                    continue
                if (callee := callee_name(node.func)) is not None:
                    yield _Call(caller, callee, node)
                for made in partition_calls(node):
                    if (callee := callee_name(made.func)) is not None:
                        yield _Call(caller, callee, made, by_position=True)

    def _unfix_one(self, calls: list[_Call], fixed: Fixed) -> bool:
        """Un-fix the first parameter that some call gives something else; False where there is none."""
        for call in calls:
            if call.callee in self.functions:
                for switch in self.parameters[call.callee]:
                    if switch not in self.switches or self._passes_switch(call, switch, fixed):
                        continue
                    if fixed[call.callee].pop(switch, None) is not None:
                        return True
            elif is_alias(call.callee, self.module_names):
                self._check_alias(call, fixed)
        return False

    def _passes_switch(self, call: _Call, switch: str, fixed: Fixed) -> bool:
        positions = self.parameters[call.callee]
        index = positions.index(switch)
        positional = [a for a in call.node.args if not isinstance(a, ast.Starred)]
        given = next((k.value for k in call.node.keywords if k.arg == switch), None)
        if given is None and call.by_position and len(positional) == len(call.node.args) > index:
            given = positional[index]
        if given is None:
            if len(positional) > index and not call.by_position:
                raise self.error(positional[index], f"{switch} is passed by position", f"write `{switch}={switch}`")
            if len(positional) != len(call.node.args) or any(k.arg is None for k in call.node.keywords):
                remedy = (
                    "write the partition's tuple out" if call.by_position else f"pass `{switch}={switch}` by keyword"
                )
                raise self.error(call.node, f"{switch} may be hidden in a * or ** argument", remedy)
            given = _default(self.functions[call.callee], switch)
            if given is None:
                remedy = f"put {switch} into the partition's tuple" if call.by_position else f"pass `{switch}={switch}`"
                raise self.error(call.node, f"{call.callee}() is called without {switch}", remedy)
            return self._is_value(given, switch, {})
        return self._is_value(given, switch, fixed[call.caller])

    def _is_value(self, given: ast.expr, switch: str, inside: Mapping[str, Value]) -> bool:
        """Whether ``given`` is the fixed value of ``switch``, in a function that fixes ``inside``."""
        value = constant(cst.parse_expression(ast.unparse(given)), inside)
        return same(value, self.switches[switch])

    def _check_alias(self, call: _Call, fixed: Fixed) -> None:
        for keyword in call.node.keywords:
            name = keyword.arg
            if (
                name is not None
                and name in self.switches
                and not self._is_value(keyword.value, name, fixed[call.caller])
            ):
                raise self.error(
                    call.node,
                    f"{call.callee}() gets another value for the switch {name}, and may be any function",
                    "call the function by its own name",
                )

    def _refuse_binding(self, node: ast.AST) -> None:
        """A switch is bound once, as a parameter of a module-level function."""
        for name in _binds(node):
            if name in self.switches:
                raise self.error(node, f"the switch {name} is assigned to", "use another name for the variable")
        if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
            if isinstance(node, ast.FunctionDef) and self.functions.get(node.name) is node:
                return
            for name in _parameters(node):
                if name in self.switches:
                    raise self.error(
                        node, f"an inner function has a parameter named as the switch {name}", "use another name for it"
                    )

    def _refuse_quoted(self, node: ast.AST) -> None:
        """``META["USE_EXP2"]`` and ``do_not_specialize=["USE_EXP2"]`` would name a parameter that is gone."""
        parts: list[ast.AST] = []
        if isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.FunctionDef):
            parts = [n for decorator in node.decorator_list for n in ast.walk(decorator)]
        for part in parts:
            if isinstance(part, ast.Constant) and part.value in self.switches and isinstance(part.value, str):
                raise self.error(part, f"the switch {part.value} is named in a string", "use the parameter itself")

    def _refuse_unknown(self, name: str, function: ast.FunctionDef) -> None:
        own = self.parameters[name]
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in self.switches and node.id not in own:
                raise self.error(
                    node, f"{name}() uses the switch {node.id} without taking it", f"add `{node.id}: tl.constexpr`"
                )

    def _refuse_open_references(self, fixed: Fixed) -> None:
        """A function that keeps a parameter named as a switch must be called by name: an alias could confuse it."""
        mixed = {n for n, ps in self.parameters.items() if any(p in self.switches and p not in fixed[n] for p in ps)}
        calls = [n for n in ast.walk(self.tree) if isinstance(n, ast.Call)]
        called = {id(_root(n.func)) for call in calls for n in (call, *partition_calls(call))}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and node.id in mixed and id(node) not in called:
                raise self.error(
                    node,
                    f"{node.id} is used by reference, and its calls give a switch different values",
                    "rename the parameter",
                )


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> tuple[str, ...]:
    a = node.args
    extra = [x for x in (a.vararg, a.kwarg) if x is not None]
    return tuple(x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, *extra))


def _default(function: ast.FunctionDef, name: str) -> ast.expr | None:
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults: dict[str, ast.expr | None] = {
        a.arg: d for a, d in zip(reversed(positional), reversed(function.args.defaults), strict=False)
    }
    defaults |= {a.arg: d for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)}
    return defaults.get(name)


def _binds(node: ast.AST) -> Iterator[str]:
    """The names that ``node`` itself binds or unbinds, parameters aside."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.alias(name=name, asname=asname):
            yield (asname or name).partition(".")[0]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case _:
            pass


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that the module's own statements bind (not those inside functions)."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield from _binds(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
