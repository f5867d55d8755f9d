"""Layouts for the check in which every tensor has strides of its own.

Where all tensors lie alike, a kernel that takes one tensor's strides for another's is right by accident. Here no two
tensors agree in the stride of any axis: their axes are in different orders, with room between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from tuner.operators.small_problems import integer_class

_ALIGNED = 16
_FAR = 2**31  # elements, beyond what a signed 32-bit number counts

Layout = tuple[tuple[int, ...], tuple[int, ...]]
# Of [batch, heads, length] (or [pages, tokens, heads]), the outermost first: as projections leave them (for the first
# axes of a cache in pages: each head's tokens together), with padded rows, by token of all sequences, and by head.
_ORDERS = ((0, 2, 1), (0, 1, 2), (2, 0, 1), (1, 0, 2))


def own_strides(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """By tensor of ``shapes`` (of one number of axes, the last of several elements), strides that no other has along
    any axis but the last, which has unit stride.

    Each is in the class that Triton specialises on (divisible by 16, or not) in which that of the contiguous tensor is,
    and divisible by what all contiguous strides are, up to 16 elements.
    """
    found: dict[str, tuple[int, ...]] = {}
    taken: set[tuple[int, int]] = set()  # an axis, and a stride that a tensor has along it
    for number, (name, shape) in enumerate(shapes.items()):
        contiguous = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        step = math.gcd(shape[-1], _ALIGNED)
        strides = [1] * len(shape)
        span = shape[-1]
        for axis in reversed(_order(number, len(shape) - 1)):
            strides[axis] = next(s for s in _strides_like(contiguous[axis], span + 1, step) if (axis, s) not in taken)
            taken.add((axis, strides[axis]))
            span = shape[axis] * strides[axis]  # what comes outside leaves room after it
        found[name] = tuple(strides)
    return found


def own_row_strides(names: Sequence[str], row_stride: int) -> dict[str, tuple[int, int]]:
    """By matrix of ``names``, a row stride of its own, at least ``row_stride`` and in its class."""
    strides = _strides_like(row_stride, row_stride, math.gcd(row_stride, _ALIGNED))
    return {name: (stride, 1) for name, stride in zip(names, strides, strict=False)}


def far_strides(tuned: Mapping[str, Layout], small: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """By tensor of ``small`` (shapes), strides with which the last element along an axis is 2^31 elements from the
    first, for every axis of which ``tuned`` (shapes and strides) has elements so far apart; no other tensors.

    What a kernel computes in 32 bits overflows on these as on the tuned ones.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, (shape, strides) in tuned.items():
        far = [(size - 1) * stride >= _FAR for size, stride in zip(shape, strides, strict=True)]
        if not any(far):
            continue
        made, span = [1] * len(shape), small[name][-1]
        for axis in reversed(range(len(shape) - 1)):
            size = small[name][axis]
            apart = -(-_FAR // (size - 1)) if far[axis] and size > 1 else 0
            made[axis] = -(-max(span, apart) // _ALIGNED) * _ALIGNED
            span = size * made[axis]
        found[name] = tuple(made)
    return found


def _strides_like(tuned: int, least: int, step: int) -> Iterator[int]:
    """The multiples of ``step`` from ``least`` on that are in the class of ``tuned``, which is not 1."""
    wanted = integer_class(tuned)
    return (s for s in itertools.count(-(-least // step) * step, step) if integer_class(s) == wanted)


def _order(number: int, axes: int) -> tuple[int, ...]:
    """The axes but the last of tensor ``number``, the outermost first."""
    return _ORDERS[number % len(_ORDERS)] if axes == len(_ORDERS[0]) else tuple(range(axes))
