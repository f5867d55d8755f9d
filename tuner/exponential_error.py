"""Measures on a device what the error bound takes from the instruction set's documentation: ex2.approx and lg2.approx.

Where a device is worse than ``tuner.numerics`` says, its right kernels would be refused; the GPU tests ask here.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 1024
_CHUNK = 2**24
# fp32 patterns: from -2^-30 down to -126, where exp2 is still a normal number; and from 1 to 2^30 for log2.
_EXP2_BITS = (0xB0800000, 0xC2FC0000)
_LOG2_BITS = (0x3F800000, 0x4E800000)


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(x_ptr, exp2_ptr, log2_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """exp2 and log2 of x [n] fp32."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1.0)
    tl.store(exp2_ptr + at, tl.exp2(x), mask=at < n)
    tl.store(log2_ptr + at, tl.log2(x), mask=at < n)


def exponential_error(device: str, step: int) -> tuple[float, float]:
    """The largest relative error of ``tl.exp2`` on [-126, 0], and error of ``tl.log2`` on [1, 2^30].

    The latter is over the larger of 1 and the result. Every ``step``-th fp32 number is tried (1: all 300 million).
    """
    worst_exp2 = max(_worst(device, step, *_EXP2_BITS, 0))
    worst_log2 = max(_worst(device, step, *_LOG2_BITS, 1))
    return worst_exp2, worst_log2


def _worst(device: str, step: int, first: int, last: int, which: int) -> list[float]:
    found = []
    for start in range(first, last, _CHUNK * step):
        bits = torch.arange(start, min(last, start + _CHUNK * step), step, dtype=torch.int64, device=device)
        # As int32 the patterns of negative numbers are negative.
        x = torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32).view(torch.float32)
        got = [torch.empty_like(x), torch.empty_like(x)]
        _kernel[(triton.cdiv(x.numel(), _BLOCK),)](x, *got, x.numel(), BLOCK=_BLOCK)
        exact = torch.exp2(x.double()) if which == 0 else torch.log2(x.double())
        error = (got[which].double() - exact).abs() / (exact if which == 0 else exact.clamp(min=1.0))
        found.append(float(error.max()))
    return found
