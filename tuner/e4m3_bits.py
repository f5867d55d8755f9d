"""e4m3 numbers as their bits: a sign, 4 bits of exponent with bias 7, 3 of mantissa; NaN, and no infinities.

As of the OCP 8-bit Floating Point Specification 1.0, with what PTX's ``cvt.rn.satfinite.e4m3x2.f32`` makes of numbers
beyond the largest. Needs numpy alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.numerics import LARGEST_FP8

_NAN, _SIGN = 0x7F, 0x80
_LOWEST_EXPONENT, _MANTISSA_BITS = -6, 3


def _value(bits: int) -> float:
    magnitude = bits & 0x7F
    exponent, mantissa = magnitude >> _MANTISSA_BITS, magnitude & 7
    significand = mantissa if exponent == 0 else mantissa + 8
    value = float("nan") if magnitude == _NAN else significand * 2.0 ** (max(exponent, 1) - 7 - _MANTISSA_BITS)
    return -value if bits & _SIGN else value


_VALUES = np.array([_value(bits) for bits in range(256)], dtype=np.float32)


def widen(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """e4m3 bits (uint8) as fp32 values."""
    values: np.ndarray[Any, Any] = _VALUES[bits]
    return values


def narrow(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """fp32 values as e4m3 bits (uint8), rounded to nearest even; 448 where they are beyond it, and a NaN stays one."""
    values = np.asarray(values, dtype=np.float32)
    size = np.minimum(np.nan_to_num(np.abs(values), posinf=LARGEST_FP8), np.float32(2 * LARGEST_FP8))
    exponent = np.where(size == 0.0, _LOWEST_EXPONENT, np.maximum(np.frexp(size)[1] - 1, _LOWEST_EXPONENT))
    # In units of the last place: 8 to 16 of a normal number, below 8 of a subnormal one. A carry to 16 is the next
    # exponent's first number, which has the bits that adding gives.
    units = np.rint(np.ldexp(size, _MANTISSA_BITS - exponent)).astype(np.int32)
    bits = np.minimum(((exponent - _LOWEST_EXPONENT) << _MANTISSA_BITS) + units, _NAN - 1)
    bits = np.where(np.isnan(values), _NAN, bits) | np.where(np.signbit(values), _SIGN, 0)
    result: np.ndarray[Any, Any] = bits.astype(np.uint8)
    return result
