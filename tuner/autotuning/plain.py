"""Values that are known by their contents alone: what each is in words that are the same in every process."""

from __future__ import annotations

import datetime
import decimal
import fractions
import hashlib
import logging
import pathlib
import re
import sys
import types
from typing import Any

import torch

LARGEST_TENSOR_BYTES = 1 << 24
"""Tensors and arrays up to this size are known by their contents; a larger one is not known."""

_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
_BY_REPR = (
    range, slice, decimal.Decimal, fractions.Fraction, datetime.date, datetime.timedelta, pathlib.PurePath, re.Pattern,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip

_OPERATORS_OF_TORCH = ("aten.", "prims.", "prim.")  # others are what somebody's Python says


def plain_words(value: Any) -> str | None:
    """``value`` in words, or None where it is none that is known by its contents alone."""
    kind = type(value)
    if kind is int:
        return f"int {value:x}"  # decimal text of very large ones is refused
    if kind in _SCALARS or isinstance(value, _BY_REPR):
        return f"{kind.__name__} {value!r}"
    if kind is bytearray:
        return f"bytearray {bytes(value)!r}"
    if isinstance(value, logging.Logger):
        return f"logger {value.name}"  # it says something, and decides nothing
    if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"operator {value}" if str(value).startswith(_OPERATORS_OF_TORCH) else None
    if isinstance(value, torch.Tensor) and kind in (torch.Tensor, torch.nn.Parameter):
        return _tensor_words(value)
    return _array_words(value)


def _tensor_words(tensor: torch.Tensor) -> str | None:
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return None
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return None  # to read it would end the capture
    if tensor.numel() * tensor.element_size() > LARGEST_TENSOR_BYTES:
        return None
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    content = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
    return f"tensor {tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.device.type} {content}"


def _array_words(value: Any) -> str | None:
    numpy: types.ModuleType | None = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ufunc):
        return f"ufunc {value.__name__} {numpy.__version__}"
    if numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        return None
    array = numpy.asarray(value)
    if array.dtype.hasobject or array.nbytes > LARGEST_TENSOR_BYTES:
        return None
    content = hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()
    return f"array {type(value).__name__} {array.dtype!r} {array.shape} {content}"
