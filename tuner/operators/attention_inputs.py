"""Input families of attention. Logits are what is designed; q, k and v are built to give them.

=============== ====================================================================================================
randn           standard normal q, k, v
rising          the row's maximum grows from tile to tile, by 60 nats over the keys
falling_far     it falls by 700 nats, more than 128 / log2(e) per tile of three: a wrong alpha overflows
needle          each query attends to one key; over the queries every tile of keys is decisive once; all logits of a
                third of the queries lie 300 lower, so that the maximum of another query underflows them
very_negative   every logit far below any finite sentinel that kernels use for -inf
negative        every logit about -300: a maximum that starts at 0 underflows
coverage        equal logits, v one-hot of the key's group: a lost or doubled tile shows in its own columns
v_offset        v is 100 with a little noise: an error of the row sum is large against the bound's other terms
one_hot         one key, past the middle, outweighs all others
huge            q and k times 16, logits in the hundreds and thousands
equal_max       every fifth key attains the same maximum, v of one sign: rounding that is biased adds up
constant        every key the same
uniform         q, k, v uniform between 0 and 1: every score positive, v of one sign
tiny            q, k and v far below 1: the output's smallest numbers
capped          where there is a softcap: the products fall from three times the cap to as far below zero
sinking         where there are sinks: above all logits, far below them, -inf, and beside them
steep           where there are slopes: those of ALiBi, 2^-1 to 2^-8
holes           where there is a bias: it is -inf for most keys, for the first and for the last tiles of some queries,
                and for all keys of others
edge            where there is a window: each query attends to its first or last key, or to the one beyond it
nonfinite       NaN in a query and (causal) in the last key, +inf and -inf logits, NaN and both infinities in a v
=============== ====================================================================================================

Those of fp8 are designed in fp32 and then quantised (``quantisation``), which makes infinities finite and leaves NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tuner.errors import ProblemError
from tuner.numerics import FP8, output_dtype
from tuner.operators.attention_features import NONE, Features
from tuner.operators.head_dims import value_dim
from tuner.operators.quantisation import quantised
from tuner.operators.tensors import seed_of, standard_normal
from tuner.problem import Problem

# The largest magnitude of one element of q or k: far from overflow in fp16, ample in the wide formats.
LARGEST = {"fp16": 2.0e4, "bf16": 1.0e9, "fp32": 1.0e9}
_VERY_NEGATIVE = -4.0e6
_COVERAGE_GROUP = 16
_MOST_GAIN = 2.0**8  # of a v of 100 in fp16, by dropout
_TINY = {"fp16": 2.0**-9, "bf16": 2.0**-40, "fp32": 2.0**-40}


@dataclass(frozen=True)
class _Draw:
    """Standard normal q [B, H, Nq, D], k [B, Hk, Nk, D], v [B, Hk, Nk, Dv], to be changed in place, and what the
    families need."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float
    causal: bool
    dtype: str
    features: Features

    @property
    def right(self) -> int | None:
        """How many keys after its own place a query sees; None for all."""
        return 0 if self.causal else self.features.right

    @property
    def seen(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The first and the last key that each query sees, int64 [Nq] each; of one that sees none a key near them."""
        q_len, kv_len = self.q.shape[2], self.k.shape[2]
        place = torch.arange(q_len, device=self.q.device) + (kv_len - q_len)
        left, right = self.features.left, self.right
        first = torch.zeros_like(place) if left is None else (place - left).clamp(0, kv_len - 1)
        last = torch.full_like(place, kv_len - 1) if right is None else (place + right).clamp(0, kv_len - 1)
        return first, last

    @property
    def place(self) -> torch.Tensor:
        """Each key's place, 0 to 1: float [Nk]."""
        n = self.k.shape[2]
        return torch.arange(n, device=self.k.device) / max(1, n - 1)

    def steer(self, logits: torch.Tensor, noise: float) -> None:
        """Make every query's logit of key j about ``logits[j]`` [Nk], with q and k scaled down to ``noise``."""
        most = LARGEST[self.dtype]
        first = max(math.sqrt(self.q.shape[3]), float(logits.abs().max()) / (self.scale * most))
        first = min(first, most)
        self.q.mul_(noise)
        self.k.mul_(noise)
        self.q[..., 0] = first
        self.k[..., 0] = (logits / (self.scale * first)).clamp(-most, most).to(self.k.dtype)


def normal(problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
    """Standard normal q, k, v, contiguous; of fp8 with their scales."""
    drawn = _drawn(problem, seed, device)
    return quantised(drawn) if problem.dtype == FP8 else drawn


def _wide(problem: Problem) -> str:
    """The format in which q, k and v are designed."""
    return "fp32" if problem.dtype == FP8 else problem.dtype


def _drawn(problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
    """Standard normal q, k and v, contiguous, not yet quantised, and what the features take."""
    s = problem.sizes
    queries = (s["batch"], s["heads"], s["q_len"], s["head_dim"])
    keys = (s["batch"], s["kv_heads"], s["kv_len"])
    shapes = {"q": queries, "k": (*keys, s["head_dim"]), "v": (*keys, value_dim(s))}
    drawn = {n: standard_normal(shape, _wide(problem), seed_of(n, seed), device) for n, shape in shapes.items()}
    features = Features.of(problem.settings)
    for name in features.tensors:
        if name == "dropout_seed":
            number = seed_of(name, seed)
            signed = number if number % 2 else -1 - number  # all 64 bits count
            drawn[name] = torch.full((1,), signed, dtype=torch.int64, device=device)
            continue
        shape, dtype = (
            (features.bias_shape(s), output_dtype(problem.dtype)) if name == "bias" else ((s["heads"],), "fp32")
        )
        drawn[name] = standard_normal(shape, dtype, seed_of(name, seed), device)
    return drawn


def make(problem: Problem, family: str, seed: int, device: str, scale: float) -> dict[str, torch.Tensor]:
    """q, k and v of one family. Raises ``ProblemError`` on an unknown family."""
    if family not in _CHANGES:
        raise ProblemError(f"{problem.operator} has no input family {family!r}; it has {', '.join(_CHANGES)}")
    drawn = _drawn(problem, seed_of(family, seed), device)
    causal = bool(problem.settings.get("causal", True))  # an operator without the option is always so
    features = Features.of(problem.settings)
    change(family, drawn["q"], drawn["k"], drawn["v"], scale, causal, _wide(problem), features)
    if features.sinks:
        drawn["sinks"] += _level(drawn["q"], drawn["k"], scale)
    if features.alibi:
        # Gentle, so that every tile of keys still counts.
        drawn["slopes"] = (5.0 + drawn["slopes"]).abs() / drawn["k"].shape[2]
    if features.dropout is not None:
        # An output of one weight that stays is a number of the format still.
        drawn["v"] *= min(1.0, _MOST_GAIN * (1.0 - features.dropout))
    if family == "sinking":
        _sinking(drawn["sinks"])
    if family == "holes":
        _holes(drawn["bias"])
    if family == "steep":
        drawn["slopes"] = 0.5 ** (1.0 + torch.arange(len(drawn["slopes"]), device=device) % 8)
    return quantised(drawn) if problem.dtype == FP8 else drawn


def _level(q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
    """About the largest logit of each head, that of its middle query in the first sequence: fp32 [heads]."""
    middle = q[0, :, q.shape[2] // 2].float().reshape(k.shape[1], -1, q.shape[3])
    logits: torch.Tensor = scale * (middle @ k[0].float().mT)
    return logits.nan_to_num(0.0, 0.0, 0.0).amax(dim=-1).flatten()


def _holes(bias: torch.Tensor) -> None:
    q_len, kv_len = bias.shape[2:]
    query = torch.arange(q_len, device=bias.device)[:, None]
    key = torch.arange(kv_len, device=bias.device)[None, :]
    kind = query * 37 % 101 % 5
    gone = ((query * 31 + key * 17) % 97 % 10 < 7) & (kind == 0)
    gone |= (kind == 1) & (key < 3 * kv_len // 4)
    gone |= (kind == 2) & (key >= kv_len // 4)
    gone |= kind == 3
    bias.masked_fill_(gone, -math.inf)


def _sinking(sinks: torch.Tensor) -> None:
    head = torch.arange(len(sinks), device=sinks.device)
    sinks += torch.tensor([12.0, -math.inf, -60.0, 1.0], device=sinks.device)[head % 4]


def change(
    family: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    causal: bool,
    dtype: str,
    features: Features = NONE,
) -> None:
    """Make standard normal q [B, H, Nq, D], k [B, Hk, Nk, D] and v [B, Hk, Nk, Dv], any views, those of a known family
    in place."""
    _CHANGES[family](_Draw(q, k, v, scale, causal, dtype, features))


def _randn(draw: _Draw) -> None:
    """As drawn."""


def _rising(draw: _Draw) -> None:
    draw.steer(60.0 * draw.place, 0.3)


def _falling_far(draw: _Draw) -> None:
    draw.steer(700.0 * (1.0 - draw.place), 0.3)


def _needle(draw: _Draw) -> None:
    query = torch.arange(draw.q.shape[2], device=draw.q.device)
    first, last = draw.seen
    _aim(draw, first + (query * 37 + 11) % (last - first + 1).clamp(min=1))


def _edge(draw: _Draw) -> None:
    query = torch.arange(draw.q.shape[2], device=draw.q.device)
    first, last = draw.seen
    ends = torch.stack([first, first - 1, last, last + 1])
    _aim(draw, ends.gather(0, (query * 37 % 101 % 4)[None])[0].clamp(0, draw.k.shape[2] - 1))


def _capped(draw: _Draw) -> None:
    draw.steer(3.0 * (draw.features.softcap or 1.0) * (1.0 - 2.0 * draw.place), 0.3)


def _aim(draw: _Draw, target: torch.Tensor) -> None:
    """Make each query attend to its ``target`` [Nq] alone."""
    query = torch.arange(draw.q.shape[2], device=draw.q.device)
    draw.k.sign_()
    draw.k[..., 0] = 1.0
    group = draw.q.shape[1] // draw.k.shape[1]
    # The decisive logit is 45 and the others are normal about 0, whatever the scale.
    strength = min(45.0 / (draw.scale * draw.q.shape[3]), LARGEST[draw.dtype])
    for head in range(draw.q.shape[1]):
        draw.q[:, head] = draw.k[:, head // group][:, target] * strength
        low = (query * 37 % 101 + head) % 3 == 0  # no step from query to query keeps to either kind
        draw.q[:, head, low, 0] = -min(300.0 / draw.scale, LARGEST[draw.dtype])


def _very_negative(draw: _Draw) -> None:
    draw.steer(torch.full_like(draw.place, _VERY_NEGATIVE), 0.2)


def _negative(draw: _Draw) -> None:
    draw.steer(torch.full_like(draw.place, -300.0), 0.2)


def _coverage(draw: _Draw) -> None:
    draw.q.zero_()
    draw.v.zero_()
    key = torch.arange(draw.v.shape[2], device=draw.v.device)
    draw.v[:, :, key, (key // _COVERAGE_GROUP) % draw.v.shape[3]] = 1.0


def _v_offset(draw: _Draw) -> None:
    draw.v.mul_(0.1).add_(100.0)


def _one_hot(draw: _Draw) -> None:
    logits = torch.zeros_like(draw.place)
    logits[3 * logits.numel() // 4] = 40.0
    draw.steer(logits, 0.1)


def _huge(draw: _Draw) -> None:
    draw.q.mul_(16.0)
    draw.k.mul_(16.0)


def _equal_max(draw: _Draw) -> None:
    logits = torch.full_like(draw.place, -2.0)
    logits[::5] = 8.0
    draw.steer(logits, 0.05)
    draw.v.abs_().neg_()


def _constant(draw: _Draw) -> None:
    draw.k.copy_(draw.k[:, :, :1].clone().expand_as(draw.k))


def _uniform(draw: _Draw) -> None:
    for tensor in (draw.q, draw.k, draw.v):
        tensor.copy_(0.5 + 0.5 * torch.erf(tensor.float() / math.sqrt(2.0)))


def _tiny(draw: _Draw) -> None:
    for tensor in (draw.q, draw.k, draw.v):
        tensor.mul_(_TINY[draw.dtype])


def _nonfinite(draw: _Draw) -> None:
    """Logits stay moderate, so that no weight underflows to 0, which an infinite v would make a NaN."""
    q_len, kv_len = draw.q.shape[2], draw.k.shape[2]
    draw.q.mul_(min(1.0, draw.q.shape[3] ** -0.5 / draw.scale))
    first = draw.q[..., 0].abs() + 0.25
    draw.q[..., 0] = torch.where(torch.arange(q_len, device=first.device) % 2 == 0, first, -first)
    draw.k[:, :, kv_len // 2, 0] = math.inf  # a logit of +inf for even queries, of -inf for odd ones
    draw.q[:, :, q_len // 3, 2] = math.nan
    if draw.causal:
        draw.k[:, :, -1, 1] = math.nan  # the last query alone sees it
    first, last = draw.seen
    if int(first.max()) <= int(last.min()) and (draw.right is None or q_len <= kv_len + draw.right):
        # Of a key that every query sees: what 0 times infinity gives for a query that does not is not defined.
        for column, value in ((3, math.inf), (4, math.nan), (5, -math.inf)):
            draw.v[:, :, int(first.max()), column] = value


_CHANGES: dict[str, Callable[[_Draw], None]] = {
    "randn": _randn,
    "rising": _rising,
    "falling_far": _falling_far,
    "needle": _needle,
    "very_negative": _very_negative,
    "negative": _negative,
    "coverage": _coverage,
    "v_offset": _v_offset,
    "one_hot": _one_hot,
    "huge": _huge,
    "equal_max": _equal_max,
    "constant": _constant,
    "uniform": _uniform,
    "tiny": _tiny,
    "edge": _edge,
    "capped": _capped,
    "sinking": _randn,
    "steep": _randn,
    "holes": _randn,
    "nonfinite": _nonfinite,
}
