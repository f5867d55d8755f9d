"""What Python objects are made of, for whoever takes them apart."""

from __future__ import annotations

import collections
import functools
import types
from typing import Any

C_CALLABLES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType,
)  # fmt: skip
"""What can be called and has no code in Python."""

PARTS: dict[type, tuple[str, ...]] = {
    functools.partial: ("func", "args", "keywords"),
    types.MethodType: ("__func__", "__self__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools._lru_cache_wrapper: ("__wrapped__",),
    types.GenericAlias: ("__origin__", "__args__"),
    types.UnionType: ("__args__",),
}
"""The attributes that such an object is, in whole."""

_PLACES = (types.MemberDescriptorType, type(vars(collections.namedtuple("_Any", "place"))["place"]))
_BESIDE = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__", "__dataclass_fields__",
    "__dataclass_params__", "__parameters__", "__orig_bases__", "__slots__", "__abstractmethods__", "_abc_impl",
}  # fmt: skip


def cells_of(function: types.FunctionType) -> dict[str, Any]:
    """The values of its closure by name, but for those that nothing is assigned to yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def members_of(kind: type) -> dict[str, Any]:
    """What a class defines itself, without what describes it or only says where a value stands."""
    return {n: v for n, v in vars(kind).items() if n not in _BESIDE and not isinstance(v, _PLACES)}


def state_of(value: Any) -> dict[str, Any] | None:
    """An instance's attributes by name; None where it may have more state than those, as types that C defines have."""
    kind = type(value)
    slots = [name for base in kind.__mro__ for name in _slots(base)]
    word = object.__basicsize__ // 2
    room = object.__basicsize__ + word * (len(slots) + (kind.__weakrefoffset__ > 0) + (kind.__dictoffset__ > 0))
    if kind is object or kind.__basicsize__ != room or kind.__itemsize__:
        return None
    return {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots if hasattr(value, name)}}


def _slots(kind: type) -> list[str]:
    slots = kind.__dict__.get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    mangled = [f"_{kind.__name__.lstrip('_')}{n}" if n.startswith("__") and not n.endswith("__") else n for n in names]
    return [name for name in mangled if name not in ("__dict__", "__weakref__")]
