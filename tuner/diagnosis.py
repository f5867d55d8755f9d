"""What a wrong output looks like, in one line: a person should know where to look before opening the kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

SMALL_EVERYWHERE = "small everywhere"
_SMALL, _MANY = 2.0**-8, 1 / 64  # an error relative to the largest element, and a share of the elements

_FACTORS = {
    math.log2(math.e): "log2(e): a base-2 value where a natural one belongs",
    math.log(2.0): "ln 2: a natural value where a base-2 one belongs",
}


def describe(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> str:
    """One line on how ``got`` differs from ``expected`` (float64, same shape) at the elements ``wrong`` (bool)."""
    finite = torch.isfinite(got) & torch.isfinite(expected)
    count, total = int(wrong.sum()), wrong.numel()
    new_nan = wrong & got.isnan() & ~expected.isnan()
    if bool(new_nan.any()):
        return f"NaN at {int(new_nan.sum())} of {total} elements where the reference has none{_where(new_nan)}"
    pattern = wrong & ~finite
    if bool(pattern.any()):
        infinite = bool((pattern & got.isinf() & torch.isfinite(expected)).any())
        kind = "infinite" if infinite else "finite, or infinite the wrong way, where the reference is not,"
        return f"{kind} at {int(pattern.sum())} of {total} elements{_where(pattern)}"
    if bool((got == 0).all()):
        return "every element is zero"
    text = f"{count} of {total} elements beyond the bound{_where(wrong)}{_small_everywhere(got, expected, wrong)}"
    factor = _constant_factor(got, expected, wrong)
    if factor:
        return f"wrong by a constant factor {factor}; {text}"
    return text


def _constant_factor(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> str:
    usable = wrong & (expected.abs() > 1e-30) & (got.abs() > 1e-30)
    if int(usable.sum()) < 8 or int(usable.sum()) < wrong.numel() // 2:
        return ""
    ratios = (got[usable] / expected[usable]).sort().values
    low, middle, high = (float(ratios[int(f * (len(ratios) - 1))]) for f in (0.05, 0.5, 0.95))
    # All alike, and more alike than they are near to 1: else it is an error that is small everywhere.
    if high - low > min(0.02 * abs(middle), 0.2 * abs(middle - 1.0)):
        return ""
    for value, meaning in _FACTORS.items():
        if abs(middle - value) < 0.01:
            return f"{middle:.4g} ({meaning})"
    short = f"{middle:.4g}"
    return f"{middle:.6g}" if short == "1" else short


def _small_everywhere(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> str:
    """That the error is small and of no certain elements, where it is so."""
    finite = torch.isfinite(expected)
    largest = float(expected[finite].abs().max()) if bool(finite.any()) else 0.0
    error = float((got - expected)[wrong].abs().max())
    spread = all(2 * (last - first) >= size for _, first, last, size in _extents(wrong))
    if int(wrong.sum()) < _MANY * wrong.numel() or not spread or not 0.0 < error <= _SMALL * largest:
        return ""
    return f", {SMALL_EVERYWHERE}: at most 2^{math.log2(error / largest):.1f} of the largest element"


def _where(wrong: torch.Tensor) -> str:
    """What the wrong elements have in common along the last two axes, if anything."""
    notes = []
    for name, first, last, size in _extents(wrong):
        if first > 0 or last < size - 1:
            notes.append(f"{name} {first} to {last} of {size}" if first != last else f"{name[:-1]} {first} of {size}")
    return f" (only {', '.join(notes)})" if notes else ""


def _extents(wrong: torch.Tensor) -> Iterator[tuple[str, int, int, int]]:
    """Of the last two axes, where they have four places or more: the name, the first and the last place with a wrong
    element, and how many there are."""
    for axis, name in ((-1, "columns"), (-2, "rows")):
        if wrong.dim() < -axis or wrong.shape[axis] < 4:
            continue
        others = [a for a in range(wrong.dim()) if a != wrong.dim() + axis]
        hit = wrong.any(dim=others) if others else wrong
        places = hit.nonzero()[:, 0]
        yield name, int(places[0]), int(places[-1]), wrong.shape[axis]
