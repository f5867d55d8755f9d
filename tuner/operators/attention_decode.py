"""Attention of a sequence's newest tokens over its cache of keys and values, contiguous or in pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tuner.errors import ProblemError
from tuner.numerics import TENSOR_DTYPES
from tuner.operators.attention_fwd import FAMILIES as ATTENTION_FAMILIES
from tuner.operators.attention_fwd import AttentionForward, families_of, visible_pairs
from tuner.operators.base import Option, ShapeParameter, itemsize
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

if TYPE_CHECKING:
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference
    from tuner.operators.variation import Variation

# `short` falls on what is done for empty splits and for queries without a key: soon.
FAMILIES = (ATTENTION_FAMILIES[0], "short", *ATTENTION_FAMILIES[1:])
_MOST_QUERIES = 16


class AttentionDecode(AttentionForward):
    """Attention of the last q_len tokens of each sequence over its first seq_lens tokens, grouped heads.

    ``launch`` gets q [batch, heads, q_len, head_dim], the cache k and v, seq_lens [batch] int32 and, where page_size is
    not 0, block_table [batch, ceil(kv_len / page_size)] int32. The cache is [batch, kv_heads, kv_len, head_dim], or
    [pages, page_size, kv_heads, head_dim] where page_size is not 0: token t of sequence b is then in page
    ``block_table[b, t // page_size]``. Query head h attends to key/value head ``h // (heads // kv_heads)``; query i of
    sequence b sees its tokens up to ``i + seq_lens[b] - q_len``. A query that sees none gives 0 and a log-sum-exp of
    -inf. What the cache holds beyond a sequence's length is never looked at. What is not finite does what it does in
    ``attention_fwd``.
    """

    name = "attention_decode"
    summary = "attention of a few new tokens over a cache, contiguous or in pages: output and log-sum-exp"
    shape_parameters = (
        ShapeParameter("batch", "sequences in the batch"),
        ShapeParameter("heads", "query heads"),
        ShapeParameter("kv_heads", "key and value heads; divides heads", default="heads"),
        ShapeParameter("q_len", "newest tokens of each sequence, its queries", default=1, maximum=_MOST_QUERIES),
        ShapeParameter("kv_len", "tokens that a sequence has room for in the cache; timed at full length"),
        ShapeParameter("head_dim", "elements per head", minimum=16, maximum=256, multiple_of=16),
        ShapeParameter(
            "page_size", "tokens per page of the cache; 0: not in pages", default=0, minimum=0, maximum=4096
        ),
    )
    options = (Option("scale", "float", None, "factor of q k^T; head_dim ** -0.5 where not given"),)
    further_families = ("randn", "short", "needle")
    dtypes = TENSOR_DTYPES
    tensor_names = ("q", "k", "v", "seq_lens", "block_table", "out", "lse")
    example_shape: ClassVar[Mapping[str, int]] = {
        "batch": 8,
        "heads": 32,
        "kv_heads": 8,
        "kv_len": 32768,
        "head_dim": 128,
    }

    def _validate(self, sizes: Mapping[str, int]) -> None:
        super()._validate(sizes)
        if sizes["q_len"] > sizes["kv_len"]:
            given = f"q_len={sizes['q_len']} kv_len={sizes['kv_len']}"
            raise ProblemError(
                f"{self.name}: the queries are among the kv_len tokens, so q_len is at most kv_len: {given}"
            )

    def bytes_moved(self, problem: Problem) -> int:
        """As of any operator; of pages what the sequences fill."""
        s = problem.sizes
        queries = s["batch"] * s["heads"] * s["q_len"]
        keys = s["batch"] * s["kv_heads"] * s["kv_len"]
        integers = s["batch"] * (1 + (-(-s["kv_len"] // s["page_size"]) if s["page_size"] else 0))
        return 2 * (queries + keys) * s["head_dim"] * itemsize(problem.dtype) + (queries + integers) * itemsize("fp32")

    def exponentials(self, problem: Problem) -> float:
        """One for every visible pair of query and key of sequences of full length."""
        s = problem.sizes
        return float(s["batch"] * s["heads"] * visible_pairs(s["q_len"], s["kv_len"]))

    def families(self, problem: Problem) -> tuple[str, ...]:
        return families_of(problem.sizes["kv_len"], FAMILIES)

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.decode_inputs import make

        return make(problem, family, seed, device, self.scalars(problem)["scale"])

    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.decode_inputs import timing

        return timing(problem, seed, device)

    def launch_tensors(self, problem: Problem) -> tuple[str, ...]:
        """There is no block table where the cache is not in pages."""
        return tuple(name for name in self.tensor_names if name != "block_table" or problem.sizes["page_size"])

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.decode_bound import reference

        s = problem.sizes
        return reference(inputs, s["kv_len"], s["kv_heads"], self.scalars(problem)["scale"], profile)

    def variation(self, problem: Problem, device: str, seed: int) -> Variation:
        """Sequences and groups of heads change places, and signs change along head_dim."""
        from tuner.operators.tensors import TORCH_DTYPES
        from tuner.operators.variation import of_cache

        return of_cache(problem.sizes, TORCH_DTYPES[problem.dtype], device, seed, bool(problem.sizes["page_size"]))

    def strides(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """As of ``attention_fwd``; the lengths and the block table stay as they are."""
        from tuner.operators.decode_inputs import cache_shape
        from tuner.operators.layouts import own_strides

        s = problem.sizes
        queries, keys = (s["batch"], s["heads"], s["q_len"], s["head_dim"]), cache_shape(problem)
        return own_strides({"q": queries, "k": keys, "v": keys, "out": queries})

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        """Of generic inputs, in which no query is without a key."""
        from tuner.operators.invariants import ones_give_ones

        scale, kv_len = self.scalars(problem)["scale"], problem.sizes["kv_len"]
        k = inputs["k"].nan_to_num(0.0)  # what lies beyond the sequences' lengths
        return ones_give_ones(inputs["q"], k, inputs["v"], scale, 0, profile, kv_len)

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.decode_errors import errors

        return errors(problem.sizes, tiles.get("kv_len", problem.sizes["kv_len"]))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.decode_errors import answer

        return answer(inputs, self.scalars(problem)["scale"], error, tiles.get("kv_len", problem.sizes["kv_len"]))

    def check_problems(
        self,
        problem: Problem,
        tiles: Mapping[str, int],
        max_tiles: Mapping[str, int],
        *,
        same_binary: bool = True,
    ) -> tuple[Problem, ...]:
        from tuner.operators.small_problems import decode_problems

        shapes = decode_problems(problem.sizes, tiles, max_tiles, same_binary)
        return tuple(self.problem(shape, problem.dtype, problem.settings) for shape in shapes)

    def stand_ins(
        self, problem: Problem, tiles: Mapping[str, int], max_tiles: Mapping[str, int]
    ) -> tuple[Problem, ...]:
        from tuner.operators.stand_ins import decode_stand_ins

        shapes = decode_stand_ins(problem.sizes, tiles)
        return tuple(self.problem(shape, problem.dtype, problem.settings) for shape in shapes)

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.decode_self_check import decode_self_check

        return decode_self_check(problem, self.scalars(problem)["scale"])
