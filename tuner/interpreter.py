"""bf16 and fp8 under Triton's interpreter, which stores them as integers and in places computes with those integers.

Found wrong in Triton 3.3, 3.6 and 3.9 (the interpreter's own code, ``triton/runtime/interpreter.py``): ``tl.dot``
multiplies the raw integers; casts from fp32 to bf16 drop the low bits where the hardware rounds to nearest even, and a
NaN whose payload lies in the dropped bits becomes infinite; casts between bf16 and integers or fp64 convert the raw
integer; ``+ - * /``, comparisons, negation and ``tl.sum`` on bf16 values work on the raw integers. Loads, stores,
``tl.where`` and ``tl.max`` (which is taken in fp32) are right. e4m3 it stores as bytes: casts from fp32 round ties
away from zero and wrap around beyond 448, where the hardware gives 448, and a NaN becomes 480 when it is widened.

``repair_bf16_dot`` makes all of these compute in fp32 and round once to nearest even. ``repair_interpreter`` does that,
lends the interpreter the additions through tensor descriptors, which it lacks (up to 3.9), and has it remap
``triton.language`` once a launch, not at every call of a function in it, which took a quarter of its time. Both change
the interpreter of this process alone, and need ``TRITON_INTERPRET=1`` set before Triton is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter

from tuner import e4m3_bits
from tuner.errors import MissingError

_N = 16
_MARK = "_tuner_bf16_repaired"


@triton.jit
def _probe_kernel(a_ptr, b_ptr, dot_ptr, cast_ptr, math_ptr, less_ptr, sum_ptr, int_ptr):  # type: ignore[no-untyped-def]
    """One output for each way in which bf16 is computed with; a, b [16, 16] bf16, the outputs fp32."""
    offsets = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a = tl.load(a_ptr + offsets)
    b = tl.load(b_ptr + offsets)
    tl.store(dot_ptr + offsets, tl.dot(a, b))
    third = a.to(tl.float32) / 3.0
    tl.store(cast_ptr + offsets, third.to(tl.bfloat16).to(tl.float32))
    tl.store(math_ptr + offsets, (a * b - b).to(tl.float32))
    tl.store(less_ptr + offsets, tl.where(a < b, 1.0, 0.0))
    tl.store(sum_ptr + tl.arange(0, 16), tl.sum(a, axis=1).to(tl.float32))
    tl.store(int_ptr + offsets, offsets.to(tl.bfloat16).to(tl.float32))


def is_interpreting() -> bool:
    """Whether kernels of this process run in Triton's interpreter."""
    return not isinstance(_probe_kernel, triton.JITFunction)


def wrong_bf16_paths() -> tuple[str, ...]:
    """Which of dot, cast, arithmetic, compare, sum and integer a tiny kernel finds wrong in the interpreter.

    Raises:
        MissingError: this process does not interpret.
    """
    if not is_interpreting():
        raise MissingError("this process compiles kernels; set TRITON_INTERPRET=1 before Triton is imported")
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-4, 5, (_N, _N), generator=generator).to(torch.bfloat16) for _ in range(2))
    results = {name: torch.zeros(_N, _N) for name in ("dot", "cast", "arithmetic", "compare", "sum", "integer")}
    with np.errstate(all="ignore"):
        _probe_kernel[(1,)](a, b, *results.values())
    wide_a, wide_b = a.float(), b.float()
    index = torch.arange(_N * _N).reshape(_N, _N)
    expected = {
        "dot": wide_a @ wide_b,
        "cast": (wide_a / 3.0).to(torch.bfloat16).float(),
        "arithmetic": wide_a * wide_b - wide_b,  # small integers: exact in bf16
        "compare": (wide_a < wide_b).float(),
        "sum": wide_a.sum(dim=1),
        "integer": index.to(torch.bfloat16).float(),
    }
    results["sum"] = results["sum"].flatten()[:_N]
    return tuple(name for name, value in expected.items() if not torch.equal(value, results[name]))


def bf16_dot_is_wrong() -> bool:
    """Whether ``tl.dot`` of bf16 operands gives wrong values in this process's interpreter."""
    return "dot" in wrong_bf16_paths()


def repair_interpreter() -> None:
    """Make the interpreter compute right, and what the templates need. Raises as ``repair_bf16_dot``."""
    repair_bf16_dot()
    _lend_reductions(interpreter.InterpreterBuilder)
    _remap_once()


def repair_bf16_dot() -> None:
    """Make the interpreter compute with bf16 values, in ``tl.dot`` and everywhere else; nothing where it does already.

    Raises:
        MissingError: this process does not interpret, or its interpreter is one that this repair does not know.
    """
    if not wrong_bf16_paths():
        return
    builder = interpreter.InterpreterBuilder
    if not getattr(builder, _MARK, False):
        _patch_builder(builder)
        for reducer in (interpreter.ReduceOps, interpreter.ScanOps):
            _patch_reduction(reducer)
        setattr(builder, _MARK, True)
    left = wrong_bf16_paths()
    if left:
        raise MissingError(
            f"Triton {triton.__version__}'s interpreter computes bf16 wrongly ({', '.join(left)}) in a way that is not "
            "known here; use another Triton version, or fp16 or fp32"
        )


def widen(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """bf16 bits (uint16) as fp32 values."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """fp32 values as bf16 bits (uint16), rounded to nearest even; a NaN stays one."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):
        rounded = ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    quiet = ((bits >> np.uint32(16)) | np.uint32(0x0040)).astype(np.uint16)
    result: np.ndarray[Any, Any] = np.where(nan, quiet, rounded).reshape(np.shape(values))
    return result


def _is_bf16(handle: Any) -> bool:
    return bool(handle.dtype.scalar == tl.bfloat16)


def _is_fp8(handle: Any) -> bool:
    return bool(handle.dtype.scalar == tl.float8e4nv)


def _wide(handle: Any) -> Any:
    """The operand as an fp32 one where it is bf16 or fp8, else as it is."""
    if _is_fp8(handle):
        return interpreter.TensorHandle(e4m3_bits.widen(handle.data), tl.float32)
    return interpreter.TensorHandle(widen(handle.data), tl.float32) if _is_bf16(handle) else handle


def _narrow_handle(handle: Any) -> Any:
    if handle.data.dtype == np.bool_:  # a comparison
        return handle
    return interpreter.TensorHandle(narrow(handle.data), tl.bfloat16)


def _in_fp32(operation: Callable[..., Any], operands: int) -> Callable[..., Any]:
    """``operation`` with its first operands widened and its result rounded back, where they are bf16."""

    def computed(self: Any, *arguments: Any) -> Any:
        handles = arguments[:operands]
        if not any(_is_bf16(h) for h in handles) or arguments[-1] is np.where:
            return operation(self, *arguments)
        return _narrow_handle(operation(self, *(_wide(h) for h in handles), *arguments[operands:]))

    return computed


def _patch_builder(builder: Any) -> None:
    for name, operands in (("unary_op", 1), ("binary_op", 2), ("ternary_op", 3), ("create_fma", 3)):
        setattr(builder, name, _in_fp32(getattr(builder, name), operands))
    dot, cast, convert = builder.create_dot, builder.cast_impl, builder.create_fp_to_fp

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        if not _is_bf16(d):
            return dot(self, _wide(a), _wide(b), d, *rest)
        return _narrow_handle(dot(self, _wide(a), _wide(b), _wide(d), *rest))

    def cast_impl(self: Any, source: Any, to: Any) -> Any:
        if _is_fp8(source) and to.scalar != tl.float8e4nv:
            wide = _wide(source)
            return wide if to.scalar == tl.float32 else self.cast_impl(wide, to)
        if to.scalar == tl.float8e4nv and not _is_fp8(source):
            return interpreter.TensorHandle(e4m3_bits.narrow(_wide(source).data), tl.float8e4nv)
        if to.scalar == tl.bfloat16:
            values = source.data if not _is_bf16(source) else widen(source.data)
            return interpreter.TensorHandle(narrow(values.astype(np.float32)), tl.bfloat16)
        if _is_bf16(source):
            wide = _wide(source)
            return wide if to.scalar == tl.float32 else cast(self, wide, to)
        return cast(self, source, to)

    def create_fp_to_fp(self: Any, source: Any, to: Any, rounding: Any) -> Any:
        floats = (tl.float16, tl.float32, tl.float64, tl.bfloat16, tl.float8e4nv)
        from_fp, to_fp = source.dtype.scalar in floats, to.scalar in floats
        involved = any(dtype in (tl.bfloat16, tl.float8e4nv) for dtype in (source.dtype.scalar, to.scalar))
        toward_zero = getattr(interpreter._ir.ROUNDING_MODE, "RTZ", None)
        if involved and from_fp and to_fp and (rounding is None or rounding != toward_zero):
            return cast_impl(self, source, to)
        return convert(self, source, to, rounding)

    builder.create_dot = create_dot
    builder.cast_impl = cast_impl
    builder.create_fp_to_fp = create_fp_to_fp


def _patch_reduction(reducer: Any) -> None:
    original = getattr(reducer, "apply_impl", None)
    if original is None:
        return  # an old interpreter; ``repair_bf16_dot`` looks afterwards whether anything is left

    def apply_impl(self: Any, given: Any) -> Any:
        many = isinstance(given, tuple)
        tensors = given if many else (given,)
        narrowed = [_is_bf16(t.handle) for t in tensors]
        if not any(narrowed):
            return original(self, given)
        wide = tuple(
            self.to_tensor(widen(t.handle.data), tl.float32) if is_bf16 else t
            for t, is_bf16 in zip(tensors, narrowed, strict=True)
        )
        result = original(self, wide if many else wide[0])
        results = list(result) if isinstance(result, list | tuple) else [result]
        for place, value in enumerate(results):
            if place < len(narrowed) and narrowed[place] and value.handle.dtype.scalar == tl.float32:
                results[place] = self.to_tensor(narrow(value.handle.data), tl.bfloat16)
        if not isinstance(result, list | tuple):
            return results[0]
        return type(result)(results)

    reducer.apply_impl = apply_impl


def _lend_reductions(builder: Any) -> None:
    """Additions through descriptors, made of what the interpreter has: descriptors' pointers, and atomic additions."""
    if hasattr(builder, "create_descriptor_reduce") or not hasattr(ir, "DESCRIPTOR_REDUCE_KIND"):
        return

    def create_descriptor_reduce(self: Any, kind: Any, descriptor: Any, value: Any, indices: list[Any]) -> Any:
        if kind != ir.DESCRIPTOR_REDUCE_KIND.ADD or value.dtype.scalar != tl.float32:
            raise NotImplementedError("of the reductions through descriptors, fp32 additions alone are interpreted")
        places, mask = descriptor.materialize_pointers(indices)
        return self.create_atomic_rmw(ir.ATOMIC_OP.FADD, places, value, mask, ir.MEM_SEMANTIC.RELAXED, None)

    builder.create_descriptor_reduce = create_descriptor_reduce


def _remap_once() -> None:
    """Have calls inside a launch leave ``triton.language`` as the launch has remapped it for them already."""
    remap = getattr(interpreter, "_patch_lang", None)
    if remap is None or hasattr(remap, _MARK):
        return
    remapped: set[Any] = set()  # what the launch that runs has remapped

    def remap_where_it_is_not(function: Any) -> Any:
        languages = _languages(function)
        if remapped and languages <= remapped:
            return interpreter._LangPatchScope()
        scope = remap(function)
        if scope is None or remapped:
            # An old interpreter, which never says when a launch is over; or a function of Triton's own inside one,
            # which names another module of the language than the kernel does.
            remapped.update(languages if remapped else ())
            return scope
        restore = scope.restore

        def over() -> None:
            remapped.clear()
            restore()

        scope.restore = over
        remapped.update(languages)
        return scope

    setattr(remap_where_it_is_not, _MARK, True)
    interpreter._patch_lang = remap_where_it_is_not


@lru_cache(maxsize=512)
def _languages(function: Any) -> frozenset[Any]:
    """What the interpreter remaps for ``function``: the modules of the language that its file names."""
    named = [value for value in function.__globals__.values() if inspect.ismodule(value)]
    return frozenset(value for value in named if value in (tl, tl.core))
