"""The arguments of one call: by name, as the key of the tuning, and as a problem that is stored."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.autotuning.kernel_source import python_function
from tuner.problem import Problem, Scalar

Key = tuple[Any, ...]

_SHORT_DTYPES = {
    "torch.float32": "fp32", "torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float64": "fp64",
    "torch.float8_e4m3fn": "fp8e4m3", "torch.float8_e5m2": "fp8e5m2",
}  # fmt: skip
_LONGEST_NAME = 100
_LONGEST_DTYPE = 10


def is_tensor(value: Any) -> bool:
    """Whether a kernel gets ``value`` as an address of elements."""
    return hasattr(value, "data_ptr") and hasattr(value, "dtype")


def base_tensor(value: Any) -> Any:
    """The tensor that ``value`` is, or that a tensor descriptor stands for; None where it is neither."""
    if is_tensor(value):
        return value
    base = getattr(value, "base", None)
    return base if is_tensor(base) else None


def by_name(arg_names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The kernel's arguments by name, in the kernel's order for those given by place; nothing that is not its own."""
    named = dict(zip(arg_names, args, strict=False))
    named.update({name: value for name, value in kwargs.items() if name in arg_names})
    return named


def tuning_key(keys: Sequence[str], named: Mapping[str, Any]) -> Key:
    """As Triton's: the values of ``keys`` that were given, in their order, then the dtype of every tensor argument.

    A value that no dictionary takes as a key is made into one; a tensor counts by its dtype and shape.
    """
    values = [_hashable(named[name]) for name in keys if name in named]
    return (*values, *(str(value.dtype) for value in named.values() if hasattr(value, "dtype")))


def kernel_name(kernel: Any) -> str:
    """``module.function`` of the Python function under the decorators; of a script, its file's name."""
    function = python_function(kernel)
    module = function.__module__
    if module == "__main__":
        module = Path(inspect.getsourcefile(function) or "script").stem
    return f"{module}.{function.__qualname__.replace('<locals>.', '')}"[-_LONGEST_NAME:]


def problem_of(name: str, keys: Sequence[str], named: Mapping[str, Any]) -> Problem:
    """What is stored of a call: whole numbers of the key as the shape; its other values and all dtypes as options."""
    shape: list[tuple[str, int]] = []
    options: list[tuple[str, Scalar]] = []
    for key in keys:
        if key not in named:
            continue
        value = _hashable(named[key])
        if isinstance(value, int) and not isinstance(value, bool):
            shape.append((key, value))
        elif value is None or isinstance(value, bool | str):
            options.append((key, value))
        else:
            options.append((key, str(value)))
    dtypes = {argument: str(value.dtype) for argument, value in named.items() if hasattr(value, "dtype")}
    options += [(f"{argument}.dtype", dtype.removeprefix("torch.")) for argument, dtype in dtypes.items()]
    leading = [d for d in dtypes.values() if "float" in d] or list(dtypes.values()) or ["none"]
    dtype = _SHORT_DTYPES.get(leading[0], leading[0].removeprefix("torch."))
    return Problem(name, tuple(shape), dtype[:_LONGEST_DTYPE], tuple(options))


def _hashable(value: Any) -> Any:
    if is_tensor(value):
        return ("tensor", str(value.dtype), tuple(getattr(value, "shape", ())))
    if isinstance(value, list | tuple):
        return tuple(_hashable(inner) for inner in value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
