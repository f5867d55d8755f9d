"""How the ``python`` format makes one callable of an operator that a user's file declares."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping

from tuner.constants import quoted
from tuner.errors import UsageError
from tuner.exports.python_operators import Callable
from tuner.exports.templating import fill
from tuner.expression import LITERALS
from tuner.operators import get
from tuner.own_operators.declaration import INTEGER_DTYPES, OwnOperator
from tuner.own_operators.declared import DeclaredOperator
from tuner.own_operators.shapes import axes_of
from tuner.source_part import needed

_TORCH = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}
_TORCH |= {name: f"torch.{name}" for name in INTEGER_DTYPES}


def declared_as(operator: str) -> DeclaredOperator | None:
    """The operator stored under this name, where a user's file declares it."""
    found = get(operator)
    return found if isinstance(found, DeclaredOperator) else None


def own_callable(operator: DeclaredOperator) -> Callable:
    """Its sizes choose the table; its numbers are arguments of the launch and choose nothing."""
    declared = operator.declared
    numbers = "".join(f", {name}={float(value)!r}" for name, value in declared.numbers.items())
    return Callable(
        axes=tuple(declared.sizes),
        line=f"{declared.name}({', '.join(declared.inputs)}{numbers}): {' '.join(declared.summary.split())}",
        tensors=tuple(axes_of(spec) for spec in declared.tensors.values()),
        unset=tuple(declared.numbers),
    )


def why_not(operator: DeclaredOperator) -> str:
    """Why no callable can be made of it; empty where one can."""
    if get(operator.declared.name).name != operator.name:
        return f"a newer {operator.declared.name} is loaded"
    try:
        own_module(operator)
    except UsageError as error:
        return str(error)
    return ""


def own_module(operator: DeclaredOperator) -> str:
    """The module's text, which holds the file's reference for calls that nothing was tuned for.

    Raises ``UsageError`` where the reference or a shape cannot leave the file.
    """
    declared = operator.declared
    if declared.reference.__name__ == "<lambda>":
        raise UsageError("its reference is a lambda; make it a function, so that it can leave its file")
    reference = needed(operator.source, [declared.reference.__name__], operator.path)
    if declared.reference.__name__ == declared.name:
        raise UsageError("its reference is called as the operator; give the function another name")
    if "import tuner" in reference or "from tuner" in reference:
        raise UsageError("its reference uses this project, which such a package does not need")
    specs = declared.tensors
    tensors = {name: specs[name] for name in declared.inputs}
    leading = next((name for name, spec in tensors.items() if spec.dtype is None), None)
    if leading is None:
        raise UsageError("no input has the problem's dtype, so a call does not say which it is")
    words = [*(f"Tensor {name}" for name in tensors), *(f"float {name}" for name in declared.numbers)]
    return fill(
        "python/_own.py.j2",
        name=declared.name,
        summary=_plain_text(declared.summary),
        reference=reference,
        reference_name=declared.reference.__name__,
        arguments=[*tensors, *declared.numbers],
        defaults=[*tensors, *(f"{name}={float(value)!r}" for name, value in declared.numbers.items())],
        tensors=list(tensors),
        numbers=list(declared.numbers),
        leading=leading,
        sizes=list(declared.sizes),
        size_lines=_size_lines(declared),
        shapes={name: _shape(spec.shape) for name, spec in specs.items()},
        dtypes={name: _TORCH[spec.dtype] if spec.dtype else f"{leading}.dtype" for name, spec in specs.items()},
        wide=[name for name, spec in tensors.items() if spec.dtype not in INTEGER_DTYPES],
        outputs=list(declared.outputs),
        schema=f"({', '.join(words)}) -> {_returned(len(declared.outputs))}",
    )


def _returned(count: int) -> str:
    return "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"


def _size_lines(declared: OwnOperator) -> list[str]:
    """Statements that read each size off the inputs, in an order in which each needs only earlier ones."""
    seen = [(name, at, axis) for name in declared.inputs for at, axis in enumerate(declared.tensors[name].shape)]
    found: dict[str, str] = {}
    for name, at, axis in seen:
        if axis in declared.sizes and axis not in found:
            found[str(axis)] = f"{axis} = {name}.shape[{at}]"
    for _ in declared.sizes:
        for name, at, axis in seen:
            text = _expression(axis)
            unknown = sorted(_names(text) - found.keys())
            if len(unknown) == 1:
                unit = _expression(axis, {unknown[0]: 1})
                found[unknown[0]] = f"{unknown[0]} = {name}.shape[{at}] // ({unit})"
    missing = [size for size in declared.sizes if size not in found]
    if missing:
        raise UsageError(f"no input has an axis that gives {', '.join(missing)}")
    return list(found.values())


def _shape(axes: tuple[str | int, ...]) -> str:
    return f"({', '.join(_expression(axis) for axis in axes)}{',' if len(axes) == 1 else ''})"


def _expression(axis: str | int, given: Mapping[str, int] | None = None) -> str:
    """An axis as Python; its language is this project's, whose functions the package lacks."""
    tree = ast.parse(str(axis).strip(), mode="eval")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if calls or _names(str(axis)) & LITERALS.keys():
        raise UsageError(f"the axis {quoted(str(axis))} is more than arithmetic")
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.Name) and value.id in (given or {}):
                setattr(node, field, ast.Constant((given or {})[value.id]))
    return ast.unparse(tree)


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text.strip(), mode="eval")) if isinstance(node, ast.Name)}


def _plain_text(text: str) -> str:
    """For a docstring: no quotes or backslashes that could end it."""
    return textwrap.shorten(text.replace("\\", "/").replace('"', "'"), 200)
