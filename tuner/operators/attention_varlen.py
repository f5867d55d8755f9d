"""Attention forward over packed sequences of different lengths: output and log-sum-exp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tuner.errors import ProblemError
from tuner.operators.attention_fwd import FAMILIES, families_of, visible_pairs
from tuner.operators.base import LARGEST_TENSOR, Operator, Option, OutputSpec, ShapeParameter, itemsize
from tuner.operators.varlen_lengths import LENGTHS, queries_and_keys
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

if TYPE_CHECKING:
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference
    from tuner.operators.variation import Variation

_MOST_TOKENS = 2**31 - 1  # which int32 counts


class AttentionVarlen(Operator):
    """Attention of sequences that lie one after the other, each over its own keys, grouped heads.

    ``launch`` gets q [total_q, heads, head_dim], k and v [total_kv, kv_heads, head_dim], cu_seqlens_q and cu_seqlens_kv
    [batch + 1] int32, the outputs out [total_q, heads, head_dim] and lse [heads, total_q] fp32, and the numbers scale
    and max_len. Sequence b has the queries from cu_seqlens_q[b] up to cu_seqlens_q[b + 1], max_len at most, and keys
    likewise; either may be none. Query head h attends to key/value head ``h // (heads // kv_heads)``. Causal masking is
    aligned at the bottom right of each sequence: its query i sees its key j where ``j <= i + keys - queries``. A query
    that sees no key gives 0 and a log-sum-exp of -inf. What is not finite does what it does in ``attention_fwd``;
    other sequences do nothing to a query, whatever they hold.

    How long the sequences are follows from the option ``lengths`` (``varlen_lengths``).
    """

    name = "attention_varlen"
    summary = "attention forward over packed sequences of different lengths: output and log-sum-exp"
    shape_parameters = (
        ShapeParameter("batch", "sequences", maximum=2**16),
        ShapeParameter("heads", "query heads"),
        ShapeParameter("kv_heads", "key and value heads; divides heads", default="heads"),
        ShapeParameter("max_len", "queries of the longest sequence"),
        ShapeParameter("max_kv_len", "keys of the longest sequence", default="max_len"),
        ShapeParameter("head_dim", "elements per head", minimum=16, maximum=256, multiple_of=16),
    )
    options = (
        Option("causal", "bool", False, "a query sees no later key of its sequence (aligned at the bottom right)"),
        Option("lengths", "choice", "skewed", "how the sequences' lengths are spread up to max_len", choices=LENGTHS),
        Option("scale", "float", None, "factor of q k^T; head_dim ** -0.5 where not given"),
    )
    reduced_axis = "max_kv_len"
    tensor_names = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv", "out", "lse")
    full_size_families = ("randn", "needle")
    further_families = ("randn", "needle")
    generic_families = ("randn", "uniform")
    example_shape: ClassVar[Mapping[str, int]] = {
        "batch": 32,
        "heads": 32,
        "kv_heads": 8,
        "max_len": 8192,
        "head_dim": 128,
    }

    def _validate(self, sizes: Mapping[str, int]) -> None:
        if sizes["heads"] % sizes["kv_heads"]:
            given = f"heads={sizes['heads']} kv_heads={sizes['kv_heads']}"
            raise ProblemError(f"{self.name}: kv_heads must divide heads, but got {given}")
        tokens = sizes["batch"] * max(sizes["max_len"], sizes["max_kv_len"])
        if tokens > _MOST_TOKENS or tokens * sizes["heads"] * sizes["head_dim"] > LARGEST_TENSOR:
            raise ProblemError(
                f"{self.name}: batch times max_len must be at most {_MOST_TOKENS}, and a tensor must have at most "
                f"{LARGEST_TENSOR} elements"
            )

    def flops(self, problem: Problem) -> float:
        """Two products of 2 * head_dim operations for every visible pair of query and key."""
        return 4.0 * self.exponentials(problem) * problem.sizes["head_dim"]

    def bytes_moved(self, problem: Problem) -> int:
        s, (queries, keys) = problem.sizes, tokens(problem)
        rows = queries * s["heads"]
        elements = 2 * (rows + keys * s["kv_heads"]) * s["head_dim"]
        return elements * itemsize(problem.dtype) + (rows + 2 * (s["batch"] + 1)) * itemsize("fp32")

    def exponentials(self, problem: Problem) -> float:
        """One for every visible pair of query and key."""
        if not problem.settings["causal"]:
            return self.effort(problem)
        pairs = sum(visible_pairs(queries, keys) for queries, keys in queries_and_keys(problem))
        return float(problem.sizes["heads"] * pairs)

    def effort(self, problem: Problem) -> float:
        """The reference computes what is masked too."""
        return float(problem.sizes["heads"] * sum(queries * keys for queries, keys in queries_and_keys(problem)))

    def families(self, problem: Problem) -> tuple[str, ...]:
        return families_of(problem.sizes["max_kv_len"], FAMILIES)

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.varlen_inputs import make

        return make(problem, family, seed, device, self.scalars(problem)["scale"])

    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.varlen_inputs import normal

        return normal(problem, seed, device)

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        s, (queries, _) = problem.sizes, tokens(problem)
        out = OutputSpec((queries, s["heads"], s["head_dim"]), problem.dtype)
        return {"out": out, "lse": OutputSpec((s["heads"], queries), "fp32")}

    def scalars(self, problem: Problem) -> dict[str, float]:
        """``max_len`` is a whole number, of which a launch may make its grid."""
        scale, s = problem.settings["scale"], problem.sizes
        return {"scale": float(scale) if scale is not None else s["head_dim"] ** -0.5, "max_len": s["max_len"]}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.varlen_bound import reference

        return reference(inputs, self.scalars(problem)["scale"], bool(problem.settings["causal"]), profile)

    def variation(self, problem: Problem, device: str, seed: int) -> Variation:
        """Groups of heads change places, and signs change along head_dim. The sequences stay where they are."""
        from tuner.operators.tensors import TORCH_DTYPES
        from tuner.operators.variation import of_packed

        return of_packed(problem.sizes, TORCH_DTYPES[problem.dtype], device, seed)

    def strides(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """head_dim is a multiple of 16, so every stride of q, k, v and out is."""
        from tuner.operators.layouts import own_strides

        s, (queries, keys) = problem.sizes, tokens(problem)
        of_queries, of_keys = (queries, s["heads"], s["head_dim"]), (keys, s["kv_heads"], s["head_dim"])
        return own_strides({"q": of_queries, "k": of_keys, "v": of_keys, "out": of_queries})

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        from tuner.operators.varlen_invariant import ones_give_ones

        scale, causal = self.scalars(problem)["scale"], bool(problem.settings["causal"])
        return ones_give_ones(inputs, scale, causal, profile, problem.sizes["max_kv_len"])

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.varlen_errors import errors

        tile = tiles.get("max_kv_len", problem.sizes["max_kv_len"])
        causal = bool(problem.settings["causal"])
        return errors(queries_and_keys(problem), problem.sizes["kv_heads"], causal, tile)

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> Mapping[str, tuple[tuple[int | slice, ...], torch.Tensor]]:
        from tuner.operators.varlen_errors import answer

        scale, causal = self.scalars(problem)["scale"], bool(problem.settings["causal"])
        return answer(inputs, scale, causal, error, tiles.get("max_kv_len", problem.sizes["max_kv_len"]))

    def check_problems(
        self,
        problem: Problem,
        tiles: Mapping[str, int],
        max_tiles: Mapping[str, int],
        *,
        same_binary: bool = True,
    ) -> tuple[Problem, ...]:
        from tuner.operators.varlen_problems import varlen_problems

        found = varlen_problems(problem.sizes, str(problem.settings["lengths"]), tiles, max_tiles, same_binary)
        return tuple(self.problem(shape, problem.dtype, {**problem.settings, "lengths": rule}) for shape, rule in found)

    def stand_ins(
        self, problem: Problem, tiles: Mapping[str, int], max_tiles: Mapping[str, int]
    ) -> tuple[Problem, ...]:
        from tuner.operators.stand_ins import varlen_stand_ins

        shapes = varlen_stand_ins(problem.sizes, tiles)
        return tuple(self.problem(shape, problem.dtype, problem.settings) for shape in shapes)

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.varlen_self_check import varlen_self_check

        return varlen_self_check(problem, self.scalars(problem)["scale"])


def tokens(problem: Problem) -> tuple[int, int]:
    """All queries and all keys of a problem."""
    queries, keys = zip(*queries_and_keys(problem), strict=True)
    return sum(queries), sum(keys)
