"""The row softmax: ``out[r, c] = exp(x[r, c]) / sum_c exp(x[r, c])``."""

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


class Softmax(RowOperator):
    """Softmax over the columns of a matrix. As with torch, a row of nothing but -inf, or with a NaN or +inf, is NaN."""

    name = "softmax"
    summary = "softmax over the columns of a matrix"
    matrices = ("x", "out")

    def flops(self, problem: Problem) -> float:
        """Five per element: compare, subtract, exponential, add, divide."""
        return 5.0 * self.elements(problem)

    def bytes_moved(self, problem: Problem) -> int:
        return 2 * self.elements(problem) * itemsize(problem.dtype)

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        return {"out": self.matrix(problem)}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.softmax_bound import reference

        return reference(inputs["x"], profile)

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        from tuner.operators.invariants import rows_sum_to_one

        return rows_sum_to_one(inputs["x"], profile)

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.softmax_errors import errors

        return errors(problem.sizes["rows"], problem.sizes["cols"], self.tile(problem, tiles))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.softmax_errors import answer

        return {"out": ((), answer(inputs["x"], error, self.tile(problem, tiles)))}

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.self_checks import softmax_self_check

        return softmax_self_check(problem)
