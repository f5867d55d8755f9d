"""What a variant's ``launch()`` does with its kernel: whether the two can be put under ``@triton.autotune``, and how.

An autotuner launches one kernel and chooses some of its compile-time arguments and launch options. So a config can be
handed to one only where ``launch()`` calls a single kernel, and where what the search chose reaches nothing but
compile-time arguments of that kernel (and the grid, which can read those), and launch options.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tuner.template import is_jit
from tuner.variant import Variant

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Launch options that ``triton.Config`` has as fields of its own."""


class NotOneKernelError(ValueError):
    """The launch cannot be put under an autotuner; the message says why."""


@dataclass(frozen=True)
class KernelCall:
    """The one kernel of a launch. ``arguments`` are its parameters in order.

    ``tensors`` maps the parameters that take a tensor of ``launch()`` to that tensor's name; ``parameters`` are those
    names of the config that the kernel takes at compile time.
    """

    kernel: str
    arguments: tuple[str, ...]
    tensors: Mapping[str, str]
    parameters: tuple[str, ...]


def kernel_call(variant: Variant, chosen: Collection[str]) -> KernelCall:
    """Read off ``variant``'s source, without running it. ``chosen``: the names that the search chose.

    Raises ``NotOneKernelError``.
    """
    tree = ast.parse(variant.source)
    kernels = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and is_jit(node)}
    launch = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "launch")
    calls = [node for node in ast.walk(launch) if _kernel_of(node) in kernels]
    if len(calls) != 1:
        raise NotOneKernelError(f"its launch() calls {len(calls)} kernels, and an autotuner chooses for one")
    call = calls[0]
    assert isinstance(call, ast.Call)
    kernel = kernels[str(_kernel_of(call))]
    names = [*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs]
    arguments = tuple(a.arg for a in names)
    constexpr = {a.arg for a in names if a.annotation is not None and "constexpr" in ast.unparse(a.annotation)}
    origins = _origins(launch, chosen)
    given = {a.arg for a in (*launch.args.posonlyargs, *launch.args.args)}
    tensors: dict[str, str] = {}
    for parameter, value in _passed(call, arguments):
        if isinstance(value, ast.Name) and value.id in given:
            tensors[parameter] = value.id
        if parameter in chosen and isinstance(value, ast.Name) and value.id == parameter:
            continue
        if used := sorted(set().union(*(origins.get(name, set()) for name in _names(value)))):
            what = f"launch() computes the argument {parameter} from {', '.join(used)}"
            raise NotOneKernelError(f"{what}, which an autotuner chooses after it")
    passed = {parameter for parameter, _ in _passed(call, arguments)}
    switches = {name for name, _ in variant.switches}
    for name in sorted(set(chosen) - switches - set(LAUNCH_OPTIONS)):
        if name not in constexpr or name not in passed:
            raise NotOneKernelError(f"the kernel does not take {name}, which launch() uses outside it")
    return KernelCall(kernel.name, arguments, tensors, tuple(sorted(constexpr & set(chosen))))


def first_kernel(source: str, inputs: Collection[str]) -> tuple[str, Mapping[str, str]] | None:
    """The first kernel of ``source``'s ``launch()`` that gets all of ``inputs``, and by its parameter what of the
    arguments of ``launch()`` it gets; None where no kernel does."""
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    launch = functions["launch"]
    for call in sorted((n for n in ast.walk(launch) if isinstance(n, ast.Call)), key=lambda n: n.lineno):
        kernel = functions.get(str(_kernel_of(call)))
        if kernel is None or not is_jit(kernel):
            continue
        names = tuple(a.arg for a in (*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs))
        try:
            passed = _passed(call, names)
        except NotOneKernelError:
            continue
        found = {parameter: value.id for parameter, value in passed if isinstance(value, ast.Name)}
        if set(inputs) <= set(found.values()):
            return kernel.name, found
    return None


def _kernel_of(node: ast.AST) -> str | None:
    """The kernel of ``kernel[grid](...)``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name):
        return node.func.value.id
    return None


def _passed(call: ast.Call, arguments: tuple[str, ...]) -> list[tuple[str, ast.expr]]:
    if any(isinstance(value, ast.Starred) for value in call.args) or any(k.arg is None for k in call.keywords):
        raise NotOneKernelError("launch() passes arguments with * or **, which cannot be followed")
    positional = list(zip(arguments, call.args, strict=False))
    return positional + [(str(keyword.arg), keyword.value) for keyword in call.keywords]


def _origins(launch: ast.FunctionDef, chosen: Collection[str]) -> dict[str, set[str]]:
    """By local name of ``launch``, which of ``chosen`` it is computed from; ``chosen`` themselves among them."""
    origins = {name: {name} for name in chosen}
    for _ in range(len(launch.body) + 1):
        for node in ast.walk(launch):
            if isinstance(node, ast.Assign):
                targets, value = {n for target in node.targets for n in _names(target)}, _names(node.value)
            elif isinstance(node, ast.FunctionDef) and node is not launch:
                targets, value = {node.name}, _names(node)
            else:
                continue
            found: set[str] = set().union(*(origins.get(name, set()) for name in value))
            for name in targets if found else ():
                origins[name] = origins.get(name, set()) | found
    return origins


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
