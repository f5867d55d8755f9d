"""Attention backward: the gradients in q, k and v of ``out = softmax(scale * q k^T + mask) v``, given that in out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.numerics import TENSOR_DTYPES
from tuner.operators.attention_fwd import OPTIONS, SHAPE, AttentionForward
from tuner.operators.base import OutputSpec, itemsize
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

if TYPE_CHECKING:
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference
    from tuner.operators.variation import Variation

FAMILIES = (
    "randn",
    "rising",
    "needle",
    "very_negative",
    "sparse_dout",
    "v_offset",
    "huge",
    "uniform",
    "tiny",
)


class AttentionBackward(AttentionForward):
    """The gradients dq, dk and dv of scaled dot-product attention, from q, k, v, out, the log-sum-exp and dout.

    Shapes, heads and masks are those of ``AttentionForward``; dk and dv are summed over the query heads of a group. out
    and the natural log-sum-exp are inputs, and count as they are given. A query that sees no key gives 0 and adds
    nothing. What inputs that are not finite do (but for the log-sum-exp of such a query) is not defined.
    """

    name = "attention_bwd"
    summary = "attention backward: dq, dk and dv, grouped heads, causal or full"
    shape_parameters = SHAPE
    options = OPTIONS
    dtypes = TENSOR_DTYPES
    tensor_names = ("q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv")

    def flops(self, problem: Problem) -> float:
        """Five products of 2 * head_dim operations for every visible pair, 2.5 times as many as the forward pass."""
        return 2.5 * super().flops(problem)

    def bytes_moved(self, problem: Problem) -> int:
        s = problem.sizes
        queries = s["batch"] * s["heads"] * s["q_len"]
        keys = s["batch"] * s["kv_heads"] * s["kv_len"]
        return 4 * (queries + keys) * s["head_dim"] * itemsize(problem.dtype) + queries * itemsize("fp32")

    def families(self, problem: Problem) -> tuple[str, ...]:
        return FAMILIES

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.attention_bwd_inputs import make

        return make(problem, family, seed, device, self.scalars(problem)["scale"])

    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        """Standard normal q, k, v and dout, and the out and log-sum-exp that belong to them."""
        from tuner.operators.attention_bwd_inputs import normal

        return normal(problem, seed, device, self.scalars(problem)["scale"])

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        s = problem.sizes
        queries = OutputSpec((s["batch"], s["heads"], s["q_len"], s["head_dim"]), problem.dtype)
        keys = OutputSpec((s["batch"], s["kv_heads"], s["kv_len"], s["head_dim"]), problem.dtype)
        return {"dq": queries, "dk": keys, "dv": keys}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.attention_bwd_bound import reference

        return reference(inputs, self.scalars(problem)["scale"], bool(problem.settings["causal"]), profile)

    def variation(self, problem: Problem, device: str, seed: int) -> Variation:
        """Sequences and groups of heads change places, and signs change along head_dim."""
        from tuner.operators.variation import Variation

        forward = super().variation(problem, device, seed)
        queries, keys = forward.shifts["q"], forward.shifts["k"]
        of_logits, of_values = forward.signs["q"], forward.signs["v"]
        inputs = {"q": of_logits, "k": of_logits, "v": of_values, "out": of_values, "dout": of_values}
        gradients = {"dq": of_logits.double(), "dk": of_logits.double(), "dv": of_values.double()}
        shifts = {**forward.shifts, "dout": queries, "dq": queries, "dk": keys, "dv": keys}
        return Variation(shifts, {**inputs, **gradients})

    def strides(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """As of the forward pass; every gradient and given gradient has a layout of its own too."""
        from tuner.operators.layouts import own_strides

        s = problem.sizes
        queries = (s["batch"], s["heads"], s["q_len"], s["head_dim"])
        keys = (s["batch"], s["kv_heads"], s["kv_len"], s["head_dim"])
        of_keys = ("k", "v", "dk", "dv")
        return own_strides({name: keys if name in of_keys else queries for name in self.tensor_names if name != "lse"})

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        return None

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.attention_bwd_errors import errors

        causal = bool(problem.settings["causal"])
        return errors(problem.sizes, self.scalars(problem)["scale"], causal, *_tiles(problem, tiles))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.attention_bwd_errors import answer

        scale, causal = self.scalars(problem)["scale"], bool(problem.settings["causal"])
        answers = answer(inputs, scale, causal, error, *_tiles(problem, tiles))
        return {name: ((0, 0), gradient) for name, gradient in zip(("dq", "dk", "dv"), answers, strict=True)}

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.attention_bwd_self_check import attention_bwd_self_check

        return attention_bwd_self_check(problem, self.scalars(problem)["scale"])


def _tiles(problem: Problem, tiles: Mapping[str, int]) -> tuple[int, int]:
    """Elements of a tile of queries and of one of keys: all of them where nothing is said."""
    return tiles.get("q_len", problem.sizes["q_len"]), tiles.get("kv_len", problem.sizes["kv_len"])
