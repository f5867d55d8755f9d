"""The gradient of the cross-entropy by its logits, from the log-sum-exp that the forward pass left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.operators.base import OutputSpec, itemsize
from tuner.operators.cross_entropy import CrossEntropyRows
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

if TYPE_CHECKING:
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference


_LARGE_Z_LOSS = 2.0**-6  # a standard normal gradient stays below 32


class CrossEntropyBackward(CrossEntropyRows):
    """``dlogits = grad (exp(x - lse) (1 + 2 z lse) - (1 - e) onehot - e / cols)`` by row, in the logits' dtype.

    ``grad`` [rows] fp32 is the gradient by each row's loss. An ignored row is 0 throughout, whatever is in it; a row
    whose log-sum-exp is NaN is NaN throughout.
    """

    name = "cross_entropy_bwd"
    summary = "gradient of the cross-entropy by its logits, from their log-sum-exp"
    tensor_names = ("logits", "targets", "lse", "grad", "dlogits")

    def flops(self, problem: Problem) -> float:
        """Six per element: subtract, exponential, scale, two subtractions, multiply."""
        return 6.0 * self.elements(problem)

    def bytes_moved(self, problem: Problem) -> int:
        return 2 * self.elements(problem) * itemsize(problem.dtype) + problem.sizes["rows"] * self.row_bytes(2)

    def families(self, problem: Problem) -> tuple[str, ...]:
        """Those of logits, without the lowest numbers where fp32 cannot hold ``grad * 2 z lse`` of them."""
        families = super().families(problem)
        return tuple(f for f in families if f != "lowest" or self.scalars(problem)["z_loss"] < _LARGE_Z_LOSS)

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.cross_entropy_inputs import make, with_gradients

        return with_gradients(make(problem, family, seed, device), seed)

    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        """Standard normal logits and gradients, and targets drawn at random; no row is ignored."""
        from tuner.operators.cross_entropy_inputs import drawn, with_gradients

        return with_gradients(drawn(problem, seed, device), seed)

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        return {"dlogits": self.matrix(problem)}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.cross_entropy_bwd_bound import reference

        x, t, lse, grad = (inputs[name] for name in self.tensor_names[:4])
        return reference(x, t, lse, grad, profile=profile, **self.scalars(problem))

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        from tuner.operators.cross_entropy_invariants import gradients_sum

        return gradients_sum(inputs, profile=profile, **self.scalars(problem))

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.cross_entropy_errors import gradient_errors

        return gradient_errors(problem.sizes["rows"], problem.sizes["cols"], **self.scalars(problem))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.cross_entropy_errors import wrong_gradient

        x, t, lse, grad = (inputs[name] for name in self.tensor_names[:4])
        return {"dlogits": ((), wrong_gradient(x, t, lse, grad, error=error, **self.scalars(problem)))}

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.cross_entropy_self_checks import gradient_self_check

        return gradient_self_check(problem, **self.scalars(problem))
