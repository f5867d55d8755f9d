"""What the number formats of the kernels are, as far as error bounds need to know them.

The two properties of a format that a bound depends on are its unit roundoff ``u`` (largest relative error of one
rounding to nearest) and ``eta`` (largest absolute error of one rounding near zero: half the smallest subnormal, or the
smallest normal where subnormals are flushed). Source: IEEE 754-2019 for fp32 and fp16; bf16 and tf32 as documented in
NVIDIA's PTX ISA; fp8 is e4m3 of the OCP 8-bit Floating Point Specification 1.0 (Micikevicius et al., arXiv 2209.05433).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A floating-point format: its ``name`` here, unit roundoff ``u``, absolute floor ``eta`` and size in bytes."""

    name: str
    u: float
    eta: float
    itemsize: int


# fp32 and bf16: kernels flush fp32 subnormals (ex2.approx.ftz), so the floor is the smallest normal number.
# tf32: operands may be truncated instead of rounded, which costs a whole unit in the last place.
FORMATS = {
    "fp32": Format("fp32", 2.0**-24, 2.0**-126, 4),
    "tf32": Format("tf32", 2.0**-10, 2.0**-126, 4),
    "fp16": Format("fp16", 2.0**-11, 2.0**-25, 2),
    "bf16": Format("bf16", 2.0**-8, 2.0**-126, 2),
    "fp8": Format("fp8", 2.0**-4, 2.0**-10, 1),
}

TENSOR_DTYPES = ("bf16", "fp16", "fp32")
"""The dtypes that a problem of every operator may have."""

FP8 = "fp8"
"""e4m3 with NaN and without infinities (``torch.float8_e4m3fn``): a dtype of the inputs of some operators."""

ALL_DTYPES = (*TENSOR_DTYPES, FP8)
"""The dtypes that a problem of some operator may have."""

LARGEST_FP8 = 448.0
"""Its largest number. What is rounded to it saturates there (PTX ISA, ``cvt.rn.satfinite.e4m3x2.f32``)."""

U_FP8_SUMS = 2.0**-14
"""Unit roundoff of the sums that tensor cores of sm_89 and sm_90 make of products of fp8 operands.

They keep 14 bits below the largest of the products and the accumulator, and drop the others of each (DeepSeek-V3, arXiv
2412.19437, 3.5.2, after a shift that fills with the sign; SageAttention2, arXiv 2411.10958, 3.4: a sign, 8 bits of
exponent, 13 of mantissa).
"""
_FP8_AT_ONCE = 32  # products of one instruction (PTX ISA, wgmma and mma of e4m3)

EPS_EX2 = 2.0**-22
"""Relative error of ``ex2.approx.f32`` (PTX ISA); ``tuner.exponential_error`` measures it on a device."""

EPS_LG2 = 2.0**-22
"""Absolute error of ``lg2.approx.f32`` where its result is small, relative elsewhere (PTX ISA)."""

EXPONENTIALS: dict[str, float] = {"ex2": EPS_EX2, "ex2_f16": 2.0**-9.9, "ex2_bf16": 2.0**-7}
"""Relative error of the exponential by name: ``ex2.approx`` of fp32, of f16 and of bf16 (PTX ISA)."""

LAMBDA = 4.0
"""The one free constant: how many standard deviations a sum of n roundings may be from zero."""


def output_dtype(dtype: str) -> str:
    """The format of what is computed from inputs of ``dtype``: theirs, and bf16 for fp8, which is for inputs alone."""
    return "bf16" if dtype == FP8 else dtype


def product_sums(mode: str, terms: int, u: float) -> float:
    """What summing so many products of a dot ``mode`` can lose, relative to the sum of their magnitudes.

    2 c(n) u: the factor of 2 is for tensor cores, which truncate. ``u`` is of the accumulators. Of fp8 operands 2 n u
    with u their own (``U_FP8_SUMS``), n the products and twice for each instruction the accumulator, which is
    truncated with them and once more: what is filled with the sign is always truncated downwards, and nothing averages
    out.
    """
    if mode == "8bit":
        return 2 * (terms + 2 * math.ceil(terms / _FP8_AT_ONCE)) * max(u, U_FP8_SUMS)
    return 2 * sum_terms(terms) * u


def sum_terms(n: int) -> float:
    """c(n) = min(n, LAMBDA * sqrt(n)): unit roundoffs that a sum of ``n`` terms may lose.

    The worst case is n; the probabilistic bound grows with sqrt(n) (Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
    """
    return min(float(n), LAMBDA * math.sqrt(n))
