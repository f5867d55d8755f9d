"""From the tensors of a call to the problem that it is, or the reason why it is none.

Tensors are looked at and never read: only shapes, strides and dtypes count, so that a capture costs little and works on
any device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tuner.errors import ProblemError
from tuner.numerics import TENSOR_DTYPES
from tuner.operators import Operator, get, names
from tuner.operators.tensors import TORCH_DTYPES
from tuner.own_operators.declared import DeclaredOperator
from tuner.own_operators.shapes import sizes_of
from tuner.problem import Problem, Scalar

_DTYPES = {TORCH_DTYPES[name]: name for name in TENSOR_DTYPES}
_COPIED = "some were not contiguous; counted as if they were, which a copy makes them"


class NoProblemError(Exception):
    """The call is none that can be tuned; the message says why."""


@dataclass(frozen=True)
class Seen:
    """A problem, and what of the call it does not hold."""

    problem: Problem
    notes: tuple[str, ...] = ()


def by_rows(
    operator: str,
    tensors: Sequence[torch.Tensor],
    dim: int,
    options: Mapping[str, Scalar] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Seen:
    """An operator over rows, of inputs of one shape over ``dim``, their last axis. Raises ``NoProblemError``.

    ``sizes`` are those that it has beyond rows, cols and row_stride.
    """
    x = tensors[0]
    if x.dim() == 0 or dim % x.dim() != x.dim() - 1:
        raise NoProblemError("it runs over another axis than the last")
    cols = x.shape[-1]
    rows = math.prod(x.shape[:-1])
    strides = {_row_stride(tensor) for tensor in tensors}
    stride, notes = strides.pop() if len(strides) == 1 else None, ()
    if stride is None:
        stride, notes = cols, (_COPIED,)  # type: ignore[assignment]
    shape = {"rows": rows, "cols": cols, "row_stride": stride, **(sizes or {})}
    return Seen(made(operator, shape, x.dtype, options or {}), notes)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    operator: str = "attention_fwd",
) -> Seen:
    """``F.scaled_dot_product_attention`` of [..., heads, length, head_dim], or what has its arguments and is of another
    ``operator``. Raises ``NoProblemError``.
    """
    if attn_mask is not None:
        raise NoProblemError("it has a mask")
    if dropout_p:
        raise NoProblemError("it has dropout")
    if q.dim() not in (3, 4) or k.shape[:-1] != v.shape[:-1]:
        raise NoProblemError("its tensors are not [batch, heads, length, head_dim] with keys like values")
    batch = q.shape[0] if q.dim() == 4 else 1
    heads, q_len, head_dim = q.shape[-3:]
    kv_heads, kv_len = k.shape[-3], k.shape[-2]
    if k.shape[-1] != head_dim or (q.dim() == 4 and k.shape[0] != batch):
        raise NoProblemError("queries and keys differ in batch or head_dim")
    if is_causal and q_len != kv_len:
        raise NoProblemError("it is causal with other numbers of queries and keys, which torch aligns at the first")
    own_value_dim = {"v_head_dim": v.shape[-1]} if v.shape[-1] != head_dim else {}
    if own_value_dim and not any(parameter.name in own_value_dim for parameter in get(operator).shape_parameters):
        raise NoProblemError(f"its values have another head_dim than its queries, which no {operator} has")
    usual = 1.0 / math.sqrt(head_dim)
    masked = any(option.name == "causal" for option in get(operator).options)
    options: dict[str, Scalar] = {"causal": bool(is_causal)} if masked else {}
    if scale is not None and not math.isclose(scale, usual, rel_tol=1e-6):
        options["scale"] = float(scale)
    shape = {
        "batch": batch, "heads": heads, "kv_heads": kv_heads, "q_len": q_len, "kv_len": kv_len, "head_dim": head_dim,
        **own_value_dim,
    }  # fmt: skip
    notes = () if all(t.stride(-1) == 1 for t in (q, k, v)) else (_COPIED,)
    return Seen(made(operator, shape, q.dtype, options), notes)


def attention_backward(named: Mapping[str, Any]) -> Seen:
    """A backward pass of torch's attention by its arguments' names. Raises ``NoProblemError``."""
    bias = named.get("attn_bias")
    mask = named.get("attn_mask") if bias is None else bias
    tensors = (named["query"], named["key"], named["value"])
    others = {name: named[name] for name in ("dropout_p", "is_causal", "scale") if name in named}
    return attention(*tensors, mask, **others, operator="attention_bwd")


def declared(operator: DeclaredOperator, tensors: Mapping[str, Any], numbers: Mapping[str, Any]) -> Seen:
    """A call of an operator of the user's own with these inputs and numbers by name. Raises ``NoProblemError``."""
    wanted = operator.declared
    given = {name: tensors[name] for name in wanted.inputs if isinstance(tensors.get(name), torch.Tensor)}
    if len(given) != len(wanted.inputs):
        missing = [name for name in wanted.inputs if name not in given]
        raise NoProblemError(f"the call shows no {', '.join(missing)}")
    try:
        sizes = sizes_of(wanted, {name: tuple(t.shape) for name, t in given.items()})
    except ProblemError as error:
        raise NoProblemError(str(error)) from None
    leading = next((t for n, t in given.items() if wanted.tensors[n].dtype is None), next(iter(given.values())))
    options = {name: float(numbers[name]) for name in wanted.numbers if isinstance(numbers.get(name), int | float)}
    notes = () if all(t.is_contiguous() for t in given.values()) else (_COPIED,)
    return Seen(made(operator.name, sizes, leading.dtype, options), notes)


def own_operators() -> dict[str, DeclaredOperator]:
    """Those that are loaded, by their own name."""
    found: list[Operator] = [get(name) for name in names()]
    return {o.declared.name: o for o in found if isinstance(o, DeclaredOperator)}


def made(operator: str, shape: Mapping[str, int], dtype: torch.dtype, options: Mapping[str, Scalar]) -> Problem:
    """The operator's problem. Raises ``NoProblemError`` where it has none."""
    if dtype not in _DTYPES:
        raise NoProblemError(f"{operator} takes no {str(dtype).removeprefix('torch.')}")
    try:
        return get(operator).problem(shape, _DTYPES[dtype], options)
    except ProblemError as error:
        raise NoProblemError(str(error)) from None


def _row_stride(x: torch.Tensor) -> int | None:
    """Elements from one row of the last axis to the next; None where that differs from row to row."""
    if x.dim() > 1 and x.stride(-1) != 1 and x.shape[-1] > 1:
        return None
    if x.dim() < 2:
        return x.shape[-1]
    sizes, strides = x.shape[:-1], x.stride()[:-1]
    expected = None
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size == 1:
            continue
        if expected is not None and stride != expected:
            return None
        expected = stride * size if expected is None else expected * size
    row = next((stride for size, stride in zip(reversed(sizes), reversed(strides), strict=True) if size > 1), None)
    return x.shape[-1] if row is None else row if row >= x.shape[-1] else None
