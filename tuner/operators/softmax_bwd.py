"""The gradient of the row softmax: ``dx[r, c] = y[r, c] * (dy[r, c] - sum_c y[r, c] * dy[r, c])``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.operators.base import OutputSpec, itemsize
from tuner.operators.row_operator import RowOperator
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

if TYPE_CHECKING:
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference


class SoftmaxBackward(RowOperator):
    """The gradient in the softmax's input, of its saved output y and that output's gradient dy, in their dtype.

    y is taken as it was saved, whatever its rows sum to. As with torch, a row with a NaN in y or dy is NaN.
    """

    name = "softmax_bwd"
    summary = "gradient of the softmax over the columns of a matrix, of its output and that one's gradient"
    full_size_families = ("randn", "needle")
    generic_families = ("randn", "positive")
    tensor_names = ("y", "dy", "dx")
    matrices = tensor_names

    def flops(self, problem: Problem) -> float:
        """Four per element: multiply, add, subtract, multiply."""
        return 4.0 * self.elements(problem)

    def bytes_moved(self, problem: Problem) -> int:
        return 3 * self.elements(problem) * itemsize(problem.dtype)

    def exponentials(self, problem: Problem) -> float:
        """None."""
        return 0.0

    def effort(self, problem: Problem) -> float:
        """One per element."""
        return float(self.elements(problem))

    def families(self, problem: Problem) -> tuple[str, ...]:
        from tuner.operators.softmax_bwd_inputs import FAMILIES

        return FAMILIES

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.softmax_bwd_inputs import make

        return make(problem, family, seed, device)

    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.softmax_bwd_inputs import normal

        return normal(problem, seed, device)

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        return {"dx": self.matrix(problem)}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.softmax_bwd_bound import reference

        return reference(inputs["y"], inputs["dy"], profile)

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        from tuner.operators.row_invariants import halves_of_the_gradient

        return halves_of_the_gradient(inputs["y"], profile)

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.softmax_bwd_errors import errors

        return errors(problem.sizes["rows"], problem.sizes["cols"], self.tile(problem, tiles))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.softmax_bwd_errors import answer

        return {"dx": ((), answer(inputs["y"], inputs["dy"], error, self.tile(problem, tiles)))}

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.row_self_checks import softmax_bwd_self_check

        return softmax_bwd_self_check(problem)
