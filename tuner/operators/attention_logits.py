"""What an attention does to the scaled products of queries and keys before they are weights, in float64, with errors.

Notation and the first terms are those of ``attention_bound``. All to first order, each element on its own:

* softcap c, s = c tanh(r / c) for the scaled product r, off by dr: c min(d (1 - t^2) e^(2 d), 2) for t = tanh(r / c)
  and d = dr / c (the mean value theorem; 1 - tanh^2 grows by e^(2 d) at most over d). It is computed as
  c - 2 c / (1 + g) with g = exp(2 r / c): g is off by eps + 2 u |2 r / c| (the exponential, and the two roundings
  inside ``exp`` in base e), which makes c (1 - t^2) / 2 of that; 2 c / (1 + g) is at most 2 c and has six roundings
  (the sum; the division, 2 ulp in PTX ISA's div.full; the constants), the difference one more and the constant's:
  14 c u.
* something added: 3 u of its magnitude (its conversion to the base of the logits, log2(e), its product) and u of the
  sum's.
* a sink: 4 u of its magnitude, as of a logit; its weight joins the row's sum, with the error of any weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tuner.numerics import EXPONENTIALS, FORMATS
from tuner.precision import PrecisionProfile

_U = FORMATS["fp32"].u
_MOST_EXPONENT = 60.0  # beyond it the cap itself is the bound


@dataclass(frozen=True)
class Logits:
    """Of some rows of n heads, float64: the logits ``s`` and how far a kernel's may be from them [n, rows, kv_len]."""

    s: torch.Tensor
    error: torch.Tensor


@dataclass(frozen=True)
class Terms:
    """What is done to the scaled products of some rows of n heads; nothing where nothing is given.

    ``softcap``: c above. ``added`` to the logits after it, one by one: float64 [n, rows, kv_len] each. ``sink``: of
    each head, float64 [n]. ``kept``: what a weight is multiplied by where it meets its value, after the row's sum, 0 or
    1 / (1 - dropout): float64 [n, rows, kv_len].
    """

    softcap: float | None = None
    added: tuple[torch.Tensor, ...] = ()
    sink: torch.Tensor | None = None
    kept: torch.Tensor | None = None

    def applied(self, s: torch.Tensor, error: torch.Tensor, eps: float) -> Logits:
        """The logits of scaled products ``s``, which are off by ``error``; ``eps``: the error of the exponential."""
        if self.softcap is not None:
            s, error = _capped(s, error, self.softcap, eps)
        for added in self.added:
            s = s + added
            error = error + 3 * _U * added.abs() + _U * s.abs()
        return Logits(s, error)


def cap_error(cap: float, profile: PrecisionProfile) -> float:
    """The most that computing a softcap adds to the error of a logit: |y| (1 - tanh(y)^2) is below 1/2 for every y."""
    return cap * (15 * _U + EXPONENTIALS[profile.exponential] / 2)


def added_error(most: float) -> float:
    """The most that adding something of a magnitude of at most ``most`` adds to the error of a logit."""
    return 4 * _U * most


def _capped(r: torch.Tensor, error: torch.Tensor, cap: float, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    t = (r / cap).tanh()
    slope = 1.0 - t**2
    d = error / cap
    moved = (d * slope * (2.0 * d.clamp(max=_MOST_EXPONENT)).exp()).clamp(max=2.0)
    computed = 14 * _U + slope / 2 * (eps + 4 * _U * (r / cap).abs())
    # Far out, where the slope is 0, the error of the product does nothing, be it infinite.
    return cap * t, cap * (moved + computed).masked_fill(slope == 0.0, 14 * _U)
