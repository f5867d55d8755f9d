"""What holds for every element of a large output, of which the reference covers a selection only.

Tolerances come from the same terms as the bounds (``softmax_bound``, ``attention_bound``), with the largest weight
error over all rows in the place of each row's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from tuner.numerics import EXPONENTIALS, FORMATS, FP8, product_sums, sum_terms
from tuner.precision import PrecisionProfile

_U = FORMATS["fp32"].u


@dataclass(frozen=True)
class Invariant:
    """``excess`` maps the outputs on ``inputs`` to their largest deviation over its tolerance, a scalar on the device.

    Nothing of it is read on the host, which would wait for the device.
    ``name`` says what must hold.
    """

    name: str
    inputs: Mapping[str, torch.Tensor]
    excess: Callable[[Mapping[str, torch.Tensor]], torch.Tensor]


def rows_sum_to_one(x: torch.Tensor, profile: PrecisionProfile) -> Invariant:
    """Of the softmax of finite ``x`` [rows, cols]: each row's sum is 1."""
    out, cols = FORMATS[profile.output], x.shape[1]
    largest = x.abs().amax().double()
    weight = _weight_error(4 * _U + (FORMATS[profile.input].u if profile.prescaled else 0.0), largest, profile)
    tolerance = 2 * weight + 2 * _sum_error(cols, profile) + 4 * _U + out.u
    tolerance = tolerance * (1 + out.u) + cols * out.eta

    def excess(outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return largest_deviation(outputs["out"].sum(dim=1, dtype=torch.float64) - 1.0) / tolerance

    return Invariant("every row sums to 1", {"x": x}, excess)


def ones_give_ones(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    dead: int,
    profile: PrecisionProfile,
    kv_len: int,
    logit_error: float = 0.0,
    more: Mapping[str, torch.Tensor] | None = None,
) -> Invariant:
    """Of attention of finite q and k over a v of ones: the output is 1, and 0 for the first ``dead`` queries.

    ``kv_len``: the most keys that a query sees. ``logit_error``: what is done to a logit may be off by so much more.
    ``more``: further inputs; with ``sinks`` [heads] the output is 1 less the sink's weight, by the log-sum-exp.
    """
    tolerance = ones_tolerance(q, k, scale, profile, kv_len, logit_error)
    sinks = (more or {}).get("sinks")
    if sinks is not None:
        # The sink's weight exp(sink - lse) is off by what the log-sum-exp is, and by the rounding of both.
        largest = sinks.nan_to_num(neginf=0.0).abs().amax() + scale * (_norms(q).amax() * _norms(k).amax())
        tolerance = 2 * tolerance + 8 * _U * largest.double()

    def excess(outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        alive = outputs["out"][:, :, dead:].float() - 1.0
        if sinks is not None:
            alive = alive + (sinks[:, None] - outputs["lse"][:, :, dead:]).exp()[..., None]
        worst = largest_deviation(alive) / tolerance
        wrong = (outputs["out"][:, :, :dead] != 0).any()
        return torch.where(wrong, math.inf, worst)

    inputs = {"q": q, "k": k, "v": torch.ones_like(v), **(more or {})}
    return Invariant("a v of ones gives an output of ones", inputs, excess)


def ones_tolerance(
    q: torch.Tensor,
    k: torch.Tensor,
    scale: float,
    profile: PrecisionProfile,
    kv_len: int,
    logit_error: float = 0.0,
) -> torch.Tensor:
    """How far from 1 attention of finite q [..., head_dim] and k over a v of ones may be: a scalar on their device.

    ``kv_len``: the most keys that a query sees.
    """
    out, p, head_dim = FORMATS[profile.output], FORMATS[profile.p], k.shape[-1]
    # |q| |k|^T is at most the product of the lengths of a query and a key.
    longest = scale * (_norms(q).amax() * _norms(k).amax()).double()
    products = {
        "ieee": 0.0,
        "16bit": 0.0,
        "8bit": 0.0,
        "tf32": 2 * FORMATS["tf32"].u,
        "tf32x3": 3 * FORMATS["tf32"].u ** 2,
    }
    pv_dot, u_a = profile.pv_dot or profile.dot, FORMATS[profile.accumulator].u
    logit = product_sums(profile.dot, head_dim, u_a) + products[profile.dot] + (6 if profile.input == FP8 else 4) * _U
    logit += FORMATS[profile.input].u if profile.prescaled else 0.0
    low = profile.p in ("fp16", "bf16", FP8)
    rounding = max(products[pv_dot], p.u if low else 0.0)
    rounding += product_sums(pv_dot, profile.pv_terms, u_a) if pv_dot == "8bit" else 0.0
    weight = _weight_error(logit, longest, profile) + logit_error
    tolerance = 2 * weight + rounding + 4 * _sum_error(kv_len, profile) + 4 * _U
    tolerance += (p.u if profile.l_from_rounded_p and low else 0.0) + (p.eta / profile.p_scale * kv_len if low else 0.0)
    return tolerance + out.u * (1 + tolerance) + out.eta


def _norms(tensor: torch.Tensor) -> torch.Tensor:
    lengths: torch.Tensor = torch.linalg.vector_norm(tensor, dim=-1, dtype=torch.float32)
    return lengths


def _weight_error(logit: float, largest: torch.Tensor, profile: PrecisionProfile) -> torch.Tensor:
    """E where every logit is at most ``largest`` in magnitude, and the error of one is ``logit`` times that."""
    return (logit + 6 * _U) * largest + EXPONENTIALS[profile.exponential]


def _sum_error(terms: int, profile: PrecisionProfile) -> float:
    u = FORMATS[profile.accumulator].u
    return sum_terms(terms) * u + profile.tiles * (EXPONENTIALS[profile.exponential] + 3 * u)


def largest_deviation(deviation: torch.Tensor) -> torch.Tensor:
    """The largest magnitude, infinite where there is a NaN: float64 scalar."""
    largest = torch.stack([*torch.aminmax(deviation)]).abs().amax().double()
    return torch.where(largest.isnan(), math.inf, largest)
