"""Two-pass attention over a cache in float64, and the bound on what a kernel's rounding can do to each element.

The bound is that of ``attention_bound``, with the notation explained there and every query's keys those of its own
sequence. Two things are new where a kernel cuts the keys into splits and merges them (M = max m_s, L = sum l_s w_s, O =
sum acc_s w_s / L with w_s = exp(m_s - M)):

* the merge rescales each split once more: one exponential and its roundings, eps + 3 u_a, as at a rise of the running
  maximum (Milakov and Gimelshein, arXiv 1805.02867, whose operator is associative). A search space counts it as one
  more tile. That m_s differs from M costs nothing else: the distances of a weight's logit to m_s and of m_s to M add up
  to its distance to M, of which E has the error already.
* the sum over splits of sums over keys adds the same N terms in another order. No term goes through more than N
  additions in any order, so c(N) u_a still covers it (Higham, Accuracy and Stability of Numerical Algorithms, 4.2;
  Higham and Mary, SIAM J. Sci. Comput. 41, 2019, for the square root).

Partial results are kept in fp32, in which they are computed, so nothing is rounded on the way to the merge. N is
``kv_len`` for every sequence, and so at least its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import torch

from tuner.operators.attention_bound import KeyValues, attend
from tuner.operators.decode_inputs import gathered
from tuner.operators.reference import Reference
from tuner.precision import PrecisionProfile

# The rms check is of means: a sequence with fewer keys than these has too few roundings to average.
_RMS_KEYS = 256


def reference(
    inputs: Mapping[str, torch.Tensor], kv_len: int, kv_heads: int, scale: float, profile: PrecisionProfile
) -> Reference:
    """Attention of ``inputs`` (``tuner.operators.decode_inputs``) with its bounds."""
    q, k, v, lengths = (inputs[name] for name in ("q", "k", "v", "seq_lens"))
    q_len, group = q.shape[2], q.shape[1] // kv_heads

    def tokens(cache: torch.Tensor, batch: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        if "block_table" in inputs:
            pages = inputs["block_table"][batch].long()
            found = cache[pages, :, head[:, None]].flatten(1, 2)[:, :kv_len]
        else:
            found = cache[batch, head]
        beyond = torch.arange(kv_len, device=q.device) >= lengths[batch][:, None]
        return found.double().masked_fill_(beyond[..., None], 0.0)

    def taken(batch: torch.Tensor, head: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return tokens(k, batch, head // group), tokens(v, batch, head // group)

    def last(batch: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return rows + (lengths.long()[batch][:, None] - q_len)

    # One sequence after the other: gathered pages are copies.
    seen = chain([q], chain.from_iterable(gathered(inputs, sequence) for sequence in range(len(lengths))))
    has_nan = not all(bool(torch.isfinite(t).all()) for t in seen)
    found = attend(q, KeyValues(kv_len, taken, last, has_nan), scale, profile)
    if int(lengths.min()) >= _RMS_KEYS:
        return found
    return Reference({name: replace(output, variance=None) for name, output in found.outputs.items()})
