"""Which weights a dropout keeps: a function of the seed and of a weight's own place alone.

Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011), of which
``triton.language.philox`` is another implementation. Weight (batch, head, query i, key j) is decided by 16 of the 128
bits of one counter, so that one call decides over eight keys:

* key: the low and the high 32 bits of the seed, an int64.
* counter: (j // 8, i, head, batch), each of 32 bits; head is the query's. No product of sizes is formed, so that none
  overflows.
* bits: of word (j % 8) // 2 the low half where j is even, else the high one, as a whole number h below 2^16.
* kept where h >= round(2^16 p), which has the chance 1 - p, p being rounded to a multiple of 2^-16.

In integer arithmetic below 2^63, on any device.
"""

from __future__ import annotations

import torch

HALVES = 8
"""So many neighbouring keys share a counter."""
_ROUNDS = 10
_FIRST, _SECOND = (0xD2511F53, 0x9E3779B9), (0xCD9E8D57, 0xBB67AE85)  # multiplier, and what is added to the key
_WORD, _HALF = 0xFFFFFFFF, 0xFFFF

Words = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def threshold(p: float) -> int:
    """Of 16 bits, the least that keep a weight."""
    return round(p * 2**16)


def philox(counter: Words, seed: torch.Tensor) -> Words:
    """The four words, int64 below 2^32, of a counter of four (that go together by broadcasting) and an int64 seed."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & _WORD, (seed >> 32) & _WORD
    for _ in range(_ROUNDS):
        (high0, low0), (high1, low1) = _product(_FIRST[0], c0), _product(_SECOND[0], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _FIRST[1]) & _WORD, (k1 + _SECOND[1]) & _WORD
    return c0, c1, c2, c3


def kept(
    seed: torch.Tensor,
    batch: torch.Tensor,
    head: torch.Tensor,
    rows: torch.Tensor,
    kv_len: int,
    p: float,
    *,
    first: int = 0,
) -> torch.Tensor:
    """Which weights stay: bool [n, rows, kv_len], for int64 ``batch`` and ``head`` [n] and queries ``rows`` [n, rows].

    ``seed``: int64 [1]; ``p``: the chance of each weight to go; ``first``: the first key, a multiple of ``HALVES``.
    """
    groups = first // HALVES + torch.arange(-(-kv_len // HALVES), device=rows.device)
    words = philox((groups, rows[..., None], head[:, None, None], batch[:, None, None]), seed)
    shape = (*rows.shape, len(groups))
    halves = [half for word in words for half in (word & _HALF, word >> 16)]
    bits = torch.stack([half.expand(shape) for half in halves], dim=-1)
    return bits.flatten(-2)[..., :kv_len] >= threshold(p)


def _product(factor: int, word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The high and the low word of a product of two words."""
    upper, lower = factor * (word >> 16), factor * (word & _HALF)
    return (upper + (lower >> 16)) >> 16, (((upper & _HALF) << 16) + lower) & _WORD
