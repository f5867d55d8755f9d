"""Two-pass attention over packed sequences in float64, and the bound on what rounding can do to each element.

Each sequence is an attention of its own, with the bound of ``attention_bound`` for as many keys as it has (N there).
T, the number of tiles, is the longest sequence's for all. A query of a sequence without keys is exact: 0 and -inf.

The root-mean-square check is of means. The rows of a sequence with too few keys for it count with the square of their
bound, beyond which none of their errors may be; so they raise no false alarm, and those of long sequences are still
seen. Where all are so short there is no such check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tuner.operators import attention_bound
from tuner.operators.reference import OutputReference, Reference
from tuner.operators.varlen_inputs import by_head, sequences
from tuner.precision import PrecisionProfile

Place = tuple[slice, slice]
"""A sequence's queries and keys, among all tokens."""
# All rows are compared up to this many query-key pairs; those on which the classical errors are computed are whole.
WHOLE = 2**24
# Beyond it, of as many sequences a selection of rows (``attention_bound.selection``).
_SEQUENCES_SELECTED = 64


@dataclass(frozen=True)
class _Rows:
    """Some rows of a sequence. ``token``, ``head`` [rows] say which; out [rows, head_dim], lse [rows], as ``_Parts``.

    ``variance`` is None where there are too few keys for it.
    """

    token: torch.Tensor
    head: torch.Tensor
    out: torch.Tensor
    out_bound: torch.Tensor
    variance: torch.Tensor | None
    lse: torch.Tensor
    lse_bound: torch.Tensor
    has_nan: bool = False


def reference(inputs: Mapping[str, torch.Tensor], scale: float, causal: bool, profile: PrecisionProfile) -> Reference:
    """Attention of ``inputs`` (``tuner.operators.varlen_inputs``) with its bounds.

    Up to ``WHOLE`` pairs the whole outputs, else a selection of rows of the first, the last, the largest and others.
    """
    q = inputs["q"]
    total, heads, head_dim = q.shape
    every = [(queries, keys) for queries, keys in sequences(inputs) if queries.stop > queries.start]
    sizes = [(queries.stop - queries.start) * (keys.stop - keys.start) for queries, keys in every]
    whole = heads * sum(sizes) <= WHOLE
    if not whole:
        spread = {at * (len(every) - 1) // (_SEQUENCES_SELECTED - 1) for at in range(_SEQUENCES_SELECTED)}
        every = [every[at] for at in sorted({*spread, sizes.index(max(sizes))})]
    groups: dict[tuple[int, ...], list[Place]] = {}
    for number, (queries, keys) in enumerate(every):
        lengths = (queries.stop - queries.start, keys.stop - keys.start)
        # Copies of large sequences would take much memory, and those are few.
        groups.setdefault(lengths if whole else (number,), []).append((queries, keys))
    found = [_alike(inputs, group, scale, causal, profile, whole) for group in groups.values()]
    token, head, out, out_bound, lse, lse_bound = (
        torch.cat([getattr(rows, name) for rows in found])
        for name in ("token", "head", "out", "out_bound", "lse", "lse_bound")
    )
    variance = None
    if any(rows.variance is not None for rows in found):
        variance = torch.cat([rows.out_bound**2 if rows.variance is None else rows.variance for rows in found])
    has_nan = any(rows.has_nan for rows in found)
    if not whole:
        return Reference(
            {
                "out": OutputReference(out, out_bound, variance, (token, head), has_nan),
                "lse": OutputReference(lse, lse_bound, None, (head, token), has_nan),
            }
        )

    def placed(rows: torch.Tensor) -> torch.Tensor:
        """As the output has them."""
        if rows.dim() == 1:
            into = rows.new_empty(heads, total)
            into[head, token] = rows
        else:
            into = rows.new_empty(total, heads, head_dim)
            into[token, head] = rows
        return into

    spread_out = None if variance is None else placed(variance)
    return Reference(
        {
            "out": OutputReference(placed(out), placed(out_bound), spread_out, None, has_nan),
            "lse": OutputReference(placed(lse), placed(lse_bound), None, None, has_nan),
        }
    )


def _alike(
    inputs: Mapping[str, torch.Tensor],
    places: list[Place],
    scale: float,
    causal: bool,
    profile: PrecisionProfile,
    whole: bool,
) -> _Rows:
    """All rows of sequences of the same lengths, with queries, or a selection of them."""
    views = zip(*(by_head(inputs, *place) for place in places), strict=True)
    q, k, v = (torch.cat(of_each) if len(of_each) > 1 else of_each[0] for of_each in views)
    first = torch.tensor([queries.start for queries, _ in places], device=q.device)
    if not k.shape[2]:
        return _without_keys(q, first, whole)
    found = attention_bound.reference(q, k, v, scale, causal, profile, whole=whole).outputs
    out, lse = found["out"], found["lse"]
    if whole:
        ranges = (torch.arange(count, device=q.device) for count in q.shape[:3])
        sequence, head, row = (t.flatten() for t in torch.meshgrid(*ranges, indexing="ij"))
    else:
        assert out.index is not None
        sequence, head, row = out.index

    def rows(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.flatten(0, 2) if whole else tensor

    variance = None if out.variance is None else rows(out.variance)
    return _Rows(
        row + first[sequence], head, rows(out.expected), rows(out.bound), variance, rows(lse.expected),
        rows(lse.bound), out.has_nan,
    )  # fmt: skip


def _without_keys(q: torch.Tensor, first: torch.Tensor, whole: bool) -> _Rows:
    """Of q [sequences, heads, queries, head_dim] that see nothing; ``first``: the sequences' first tokens."""
    chosen = (attention_bound.everything if whole else attention_bound.selection)(*q.shape[:3])
    sequence, head = (
        torch.cat([torch.full_like(rows, pair[axis]) for pair, rows in chosen.items()]).to(q.device) for axis in (0, 1)
    )
    row = torch.cat(list(chosen.values())).to(q.device)
    zeros = torch.zeros(len(row), q.shape[3], dtype=torch.float64, device=q.device)
    lse = torch.full_like(zeros[:, 0], -torch.inf)
    return _Rows(row + first[sequence], head, zeros, zeros, None, lse, zeros[:, 0])
