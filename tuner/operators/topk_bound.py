"""The k largest softmax probabilities of each row in float64: which they are, exactly, and by how much they may be off.

The order is of the inputs, which a kernel compares without a rounding: the indices have no bound but 0. A probability
is one of the softmax's, with the softmax's bound (``tuner.operators.softmax_bound``), to which its place in the order
adds nothing. There is no variance for the root-mean-square check, since k roundings a row are few, and those of one row
share the error of its sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch

from tuner.numerics import EXPONENTIALS, FORMATS, sum_terms
from tuner.operators.invariants import Invariant
from tuner.operators.lse_bound import rescaling
from tuner.operators.reference import BLOCK_ELEMENTS, OutputReference, Reference
from tuner.operators.row_blocks import reference_of_rows
from tuner.operators.softmax_bound import nan_rows, probabilities
from tuner.precision import PrecisionProfile

_U = FORMATS["fp32"].u


def reference(x: torch.Tensor, k: int, profile: PrecisionProfile) -> Reference:
    """``values`` and ``indices`` of ``x`` [rows, cols]; of a few hundred rows where it is large."""

    def values(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        found = largest(x, k)
        expected, bound, variance = (part.gather(1, found) for part in probabilities(x, profile))
        return expected, bound, variance

    def indices(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        found = largest(x, k).double()
        return found, found, found

    exact = reference_of_rows((x,), False, indices)
    return Reference(
        {
            "values": replace(reference_of_rows((x,), nan_rows(x), values), variance=None),
            "indices": OutputReference.exact(exact.expected, exact.index),
        }
    )


def largest(x: torch.Tensor, k: int) -> torch.Tensor:
    """Where the ``k`` largest elements of each row of ``x`` are: int64 [rows, k].

    In descending order, of equal elements (0.0 and -0.0 are) the first column first; 0 to k - 1 in a row without a
    finite maximum, whose probabilities are all NaN.
    """
    # Where all are taken for equal, the first k columns come first. 0.0 is added to make -0.0 positive.
    x = torch.where(torch.isfinite(x.amax(dim=1, keepdim=True)), x, 0.0) + 0.0
    least = torch.topk(x, k, dim=1).values[:, -1:]
    above, level = x > least, x == least
    left = k - above.sum(dim=1, keepdim=True)
    columns = (above | (level & (level.cumsum(dim=1) <= left))).nonzero()[:, 1].view(len(x), k)
    order = x.gather(1, columns).sort(dim=1, descending=True, stable=True).indices
    return columns.gather(1, order)


def largest_are_found(x: torch.Tensor, k: int, profile: PrecisionProfile) -> Invariant:
    """Of finite ``x`` [rows, cols]: each row's indices name its k largest elements in their order, and the values are
    the probabilities of the elements that they name.

    A value may be off, relative, by 2 E + 2 c(N) u_a + R + 4 u and one rounding, as in ``softmax_bound``, with E = 8 u
    L + eps for the largest magnitude L of all elements, since |x| is at most L and |x - m| at most 2 L.
    """
    out, cols = FORMATS[profile.output], x.shape[1]
    top = torch.topk(x, k, dim=1).values
    lse = torch.cat([torch.logsumexp(part.double(), 1) for part in torch.split(x, max(1, BLOCK_ELEMENTS // cols))])
    scaled = FORMATS[profile.input].u if profile.prescaled else 0.0
    weight = (8 * _U + scaled) * x.abs().amax().double() + EXPONENTIALS[profile.exponential]
    relative = 2 * weight + 2 * sum_terms(cols) * FORMATS[profile.accumulator].u + rescaling(profile) + 4 * _U
    relative = relative + out.u * (1 + relative)

    def excess(outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        values, indices = outputs["values"].double(), outputs["indices"]
        named = x.gather(1, indices.clamp(0, cols - 1))
        rising = indices[:, 1:] > indices[:, :-1]
        ordered = ((indices >= 0) & (indices < cols)).all() & (rising | (named[:, 1:] != named[:, :-1])).all()
        wanted = (named.double() - lse[:, None]).exp()
        worst = ((values - wanted).abs() / (relative * wanted + out.eta)).amax()
        right = ordered & (named == top).all() & ~worst.isnan()
        return torch.where(right, worst, math.inf)

    return Invariant("the indices are of the largest elements, and the values theirs", {"x": x}, excess)
