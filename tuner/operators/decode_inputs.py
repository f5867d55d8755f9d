"""Inputs of attention over a cache: the families of attention, each sequence cut to a length of its own.

What lies beyond a sequence's length is NaN, in its last page too: a real cache holds anything there, and nothing of it
may reach an output. Pages are in a random order; the table's entries beyond a sequence's last page name a page of NaN.

Family ``short`` has lengths of 0, 1, 2 and a few tokens, so that most splits are empty and some queries see no key. In
all others a sequence has between a quarter and all of ``kv_len``, and the first one all of it, or three quarters in the
families of ``CUT_SHORT``, so that a batch of one is cut too. Two families differ from those of attention_fwd: in
``needle`` heads and sequences, of which there are more than queries, spread over the tiles of keys; in ``nonfinite``
heads differ in what is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from tuner.operators import attention_inputs
from tuner.operators.tensors import TORCH_DTYPES, seed_of, standard_normal
from tuner.problem import Problem

CUT_SHORT = ("falling_far", "v_offset", "huge", "equal_max", "constant")
SHORT = "short"


def timing(problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
    """Standard normal q and cache, every sequence of ``kv_len`` tokens."""
    s = problem.sizes
    keys = cache_shape(problem)
    shapes = {"q": (s["batch"], s["heads"], s["q_len"], s["head_dim"]), "k": keys, "v": keys}
    drawn = {n: standard_normal(shape, problem.dtype, seed_of(n, seed), device) for n, shape in shapes.items()}
    drawn["seq_lens"] = torch.full((s["batch"],), s["kv_len"], dtype=torch.int32, device=device)
    if s["page_size"]:
        drawn["block_table"] = _table(problem, seed).to(device)
    return drawn


def make(problem: Problem, family: str, seed: int, device: str, scale: float) -> dict[str, torch.Tensor]:
    """q, cache, lengths and block table of one family. Raises ``ProblemError`` on an unknown family."""
    s = problem.sizes
    lengths = _lengths(problem, family, seed)
    base = "randn" if family in (SHORT, "needle", "nonfinite") else family
    drawn = attention_inputs.make(problem, base, seed_of(family, seed), device, scale)
    if family == "needle":
        _needle(drawn, lengths, scale, attention_inputs.LARGEST[problem.dtype])
    if family == "nonfinite":
        _nonfinite(drawn, lengths, scale)
    for name in ("k", "v"):
        for sequence, length in enumerate(lengths.tolist()):
            drawn[name][sequence, :, length:] = math.nan
    if s["page_size"]:
        table = _table(problem, seed)
        for name in ("k", "v"):
            drawn[name] = _paged(problem, drawn[name], table)
        pages = torch.arange(table.shape[1])
        table[pages * s["page_size"] >= lengths[:, None]] = s["batch"] * table.shape[1]
        drawn["block_table"] = table.to(device)
    drawn["seq_lens"] = lengths.to(device)
    return drawn


def cache_shape(problem: Problem) -> tuple[int, int, int, int]:
    """Of k and of v: [batch, kv_heads, kv_len, head_dim], or [pages, page_size, kv_heads, head_dim].

    There is one page more than the sequences fill.
    """
    s = problem.sizes
    if not s["page_size"]:
        return s["batch"], s["kv_heads"], s["kv_len"], s["head_dim"]
    return s["batch"] * pages_of(problem) + 1, s["page_size"], s["kv_heads"], s["head_dim"]


def pages_of(problem: Problem) -> int:
    """Pages that a sequence of ``kv_len`` tokens fills."""
    return -(-problem.sizes["kv_len"] // problem.sizes["page_size"])


def gathered(inputs: Mapping[str, torch.Tensor], sequence: int) -> tuple[torch.Tensor, torch.Tensor]:
    """k and v [kv_heads, tokens, head_dim] of one sequence, as many tokens as it has, in their order."""
    length = int(inputs["seq_lens"][sequence])
    if "block_table" not in inputs:
        return inputs["k"][sequence, :, :length], inputs["v"][sequence, :, :length]
    size = inputs["k"].shape[1]
    pages = inputs["block_table"][sequence, : -(-length // size)].long()
    k, v = (inputs[name][pages].flatten(0, 1)[:length].transpose(0, 1) for name in ("k", "v"))
    return k, v


def _table(problem: Problem, seed: int) -> torch.Tensor:
    """[batch, pages of a sequence] int32 on the CPU: every page but the last one, in a random order."""
    count, each = problem.sizes["batch"], pages_of(problem)
    generator = torch.Generator("cpu").manual_seed(seed_of("block_table", seed))
    return torch.randperm(count * each, generator=generator).view(count, each).to(torch.int32)


def _paged(problem: Problem, tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """``tokens`` [batch, kv_heads, kv_len, head_dim] in the pages that ``table`` names, NaN where there is none."""
    s = problem.sizes
    room = table.shape[1] * s["page_size"]
    dtype = TORCH_DTYPES[problem.dtype]
    pages = torch.full(cache_shape(problem), math.nan, dtype=dtype, device=tokens.device)
    for sequence, named in enumerate(table.to(tokens.device).long()):
        full = torch.nn.functional.pad(tokens[sequence], (0, 0, 0, room - s["kv_len"]), value=math.nan)
        pages[named] = full.view(s["kv_heads"], -1, s["page_size"], s["head_dim"]).permute(1, 2, 0, 3)
    return pages


def _lengths(problem: Problem, family: str, seed: int) -> torch.Tensor:
    """[batch] int32 on the CPU."""
    s = problem.sizes
    if family == SHORT:
        few = (0, 2, 1, s["q_len"] // 2, s["q_len"] + 1)  # a batch of one has no key at all
        chosen = torch.tensor([few[sequence % len(few)] for sequence in range(s["batch"])])
        return chosen.clamp(max=s["kv_len"]).to(torch.int32)
    least = max(s["q_len"], s["kv_len"] // 4)
    generator = torch.Generator("cpu").manual_seed(seed_of("seq_lens", family, seed))
    drawn = torch.randint(least, s["kv_len"] + 1, (s["batch"],), generator=generator)
    drawn[0] = max(least, 3 * s["kv_len"] // 4) if family in CUT_SHORT else s["kv_len"]
    return drawn.to(torch.int32)


def _numbers(q: torch.Tensor) -> torch.Tensor:
    """[batch, heads, q_len] int64: each query's number, counted through."""
    return torch.arange(q.shape[:3].numel(), device=q.device).view(q.shape[:3])


def _needle(drawn: dict[str, torch.Tensor], lengths: torch.Tensor, scale: float, most: float) -> None:
    """Each query attends to one key, with a logit of 45 where the others are normal about 0.

    All logits of a third of the queries lie 300 lower: the maximum of another query of the same tile underflows them.
    """
    q, k = drawn["q"], drawn["k"]
    batch, heads, q_len, head_dim = q.shape
    number = _numbers(q)
    seen = torch.arange(q_len, device=q.device) + 1 + lengths.to(q.device)[:, None, None] - q_len
    sequence = torch.arange(batch, device=q.device)[:, None, None]
    head = torch.arange(heads, device=q.device)[:, None]
    k.sign_()
    k[..., 0] = 1.0
    target = k[sequence, head // (heads // k.shape[1]), (number * 37 + 11) % seen]
    q.copy_(target * min(45.0 / (scale * head_dim), most))
    q[..., 0].masked_fill_(number % 3 == 0, -min(300.0 / scale, most))


def _nonfinite(drawn: dict[str, torch.Tensor], lengths: torch.Tensor, scale: float) -> None:
    """Logits stay moderate, so that no weight underflows to 0, which an infinite v would make a NaN."""
    q, k, v = drawn["q"], drawn["k"], drawn["v"]
    number = _numbers(q)
    q.mul_(min(1.0, q.shape[3] ** -0.5 / scale))
    first = q[..., 0].abs() + 0.25
    q[..., 0] = torch.where(number % 3 == 1, first, -first)
    for sequence, length in enumerate(lengths.tolist()):
        k[sequence, :, length // 2, 0] = math.inf  # a logit of +inf for some queries, of -inf for the others
        if q.shape[2] > 1:
            k[sequence, :, length - 1, 1] = math.nan  # the last query alone sees it
    q[..., 2].masked_fill_(number % 5 == 3, math.nan)
    for column, value in ((3, math.inf), (4, math.nan), (5, -math.inf)):
        v[:, :, 0, column] = value  # of a key that every query sees
