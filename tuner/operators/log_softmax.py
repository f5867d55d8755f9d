"""The row log-softmax: ``out[r, c] = x[r, c] - log(sum_c exp(x[r, c]))``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.operators.base import OutputSpec, itemsize
from tuner.operators.row_operator import FAMILIES_OF_SUMS, RowOperator
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

if TYPE_CHECKING:
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference

# In fp16 the lowest number less a log-sum-exp is beyond the format from a log-sum-exp of 16 on, which so many normal
# columns come near: log(2^21) + 1/2 is 15.1.
_LOWEST_IN_FP16 = 2**21


class LogSoftmax(RowOperator):
    """Log-softmax over the columns of a matrix.

    As with torch, a row of nothing but -inf, or with a NaN or +inf, is NaN.
    """

    name = "log_softmax"
    summary = "logarithm of the softmax over the columns of a matrix"
    matrices = ("x", "out")

    def flops(self, problem: Problem) -> float:
        """Five per element: compare, subtract, exponential, add, subtract."""
        return 5.0 * self.elements(problem)

    def bytes_moved(self, problem: Problem) -> int:
        return 2 * self.elements(problem) * itemsize(problem.dtype)

    def families(self, problem: Problem) -> tuple[str, ...]:
        if problem.dtype == "fp16" and problem.sizes["cols"] > _LOWEST_IN_FP16:
            return tuple(family for family in FAMILIES_OF_SUMS if family != "lowest")
        return FAMILIES_OF_SUMS

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        return {"out": self.matrix(problem)}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.log_softmax_bound import log_softmax_reference

        return log_softmax_reference(inputs["x"], profile)

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        from tuner.operators.row_invariants import exponentials_sum_to_one

        return exponentials_sum_to_one(inputs["x"], profile)

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.log_softmax_errors import of_log_softmax

        return of_log_softmax(problem.sizes["rows"], problem.sizes["cols"], self.tile(problem, tiles))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.log_softmax_errors import log_softmax

        return {"out": ((), log_softmax(inputs["x"], error, self.tile(problem, tiles)))}

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.row_self_checks import log_softmax_self_check

        return log_softmax_self_check(problem)
