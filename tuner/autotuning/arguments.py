"""The arguments of one call: by name, as the key of the tuning, and as a problem that is stored."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.autotuning.fingerprint import fingerprint
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
    """The kernel's arguments by name, in the kernel's order however they were given; nothing that is not its own."""
    named = dict(zip(arg_names, args, strict=False)) | dict(kwargs)
    return {name: named[name] for name in arg_names if name in named}


def tuning_key(keys: Sequence[str], named: Mapping[str, Any], defaults: Mapping[str, Any]) -> Key:
    """As Triton's: the values of ``keys``, in their order, then the dtype of every tensor argument, in the kernel's.

    ``defaults`` are the kernel's own, for what the call leaves out. Beyond Triton's key: what is equal in Python and
    not to the compiler is kept apart (``True``, ``1`` and ``1.0``: a bool is ``("bool", "True")``, a float
    ``("float", "1.0")``); a tensor counts by its dtype and shape; each argument that is no key and given as None
    is named at the end, since a kernel without it is another; a descriptor counts by its tensor's dtype.
    """
    values = [_comparable(value) for value in _values(keys, named, defaults).values()]
    return (*values, *_dtypes(named).values(), *(f"{name} is None" for name in _nones(keys, named)))


def defaults_of(kernel: Any) -> dict[str, Any]:
    """The default values of the arguments of the Python function under the decorators."""
    parameters = inspect.signature(python_function(kernel)).parameters
    return {name: p.default for name, p in parameters.items() if p.default is not inspect.Parameter.empty}


def kernel_name(kernel: Any) -> str:
    """``module.function`` of the Python function under the decorators; of a script, its file's name."""
    function = python_function(kernel)
    module = function.__module__
    if module == "__main__":
        module = Path(inspect.getsourcefile(function) or "script").stem
    return f"{module}.{function.__qualname__.replace('<locals>.', '')}"[-_LONGEST_NAME:]


def problem_of(name: str, keys: Sequence[str], named: Mapping[str, Any], defaults: Mapping[str, Any]) -> Problem:
    """What is stored of a call: whole numbers of the key as the shape; its other values and all dtypes as options."""
    shape: list[tuple[str, int]] = []
    options: list[tuple[str, Scalar]] = []
    for key, value in _values(keys, named, defaults).items():
        if isinstance(value, int) and not isinstance(value, bool):
            shape.append((key, int(value)))
        elif value is None or isinstance(value, bool | str):
            options.append((key, value))
        else:
            # With its type: 1.0 and "1.0" are two kernels.
            options.append((key, f"{type(value).__name__} {_told(value)}"))
    dtypes = _dtypes(named)
    options += [(f"{argument}.dtype", dtype.removeprefix("torch.")) for argument, dtype in dtypes.items()]
    options += [(f"{argument}.dtype", None) for argument in _nones(keys, named)]
    leading = [d for d in dtypes.values() if "float" in d] or list(dtypes.values()) or ["none"]
    dtype = _SHORT_DTYPES.get(leading[0], leading[0].removeprefix("torch."))
    return Problem(name, tuple(shape), dtype[:_LONGEST_DTYPE], tuple(options))


def _values(keys: Sequence[str], named: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    given = {**defaults, **named}
    return {key: given[key] for key in keys if key in given}


def _dtypes(named: Mapping[str, Any]) -> dict[str, str]:
    """Of what holds elements. A descriptor's block is often set by a hook of each config, so it is left out."""
    bases = {name: base_tensor(value) for name, value in named.items()}
    return {name: str(base.dtype) for name, base in bases.items() if base is not None}


def _nones(keys: Sequence[str], named: Mapping[str, Any]) -> list[str]:
    return [name for name, value in named.items() if value is None and name not in keys]


def _told(value: Any) -> str:
    """``value`` as text that another process has too, where it has the same value."""
    text = str(_comparable(value))
    return fingerprint(value=value).digest[:16] if " at 0x" in text else text


def _comparable(value: Any) -> Any:
    """What is equal, and has an equal hash, exactly where the compiler makes one kernel of it."""
    if isinstance(value, bool | float):
        return (type(value).__name__, repr(value))
    if is_tensor(value):
        return ("tensor", str(value.dtype), tuple(getattr(value, "shape", ())))
    if isinstance(value, list | tuple):
        return tuple(_comparable(inner) for inner in value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
