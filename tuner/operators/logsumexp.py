"""The row log-sum-exp: ``out[r] = log(sum_c exp(x[r, c]))``, in fp32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.operators.base import OutputSpec, itemsize
from tuner.operators.row_operator import RowOperator
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

if TYPE_CHECKING:
    import torch

    from tuner.operators.reference import Reference


class LogSumExp(RowOperator):
    """Log-sum-exp over the columns of a matrix, one fp32 number a row.

    As with torch, it is -inf of a row of nothing but -inf, NaN of one with a NaN, else +inf of one with +inf.
    """

    name = "logsumexp"
    summary = "logarithm of the sum of exponentials over the columns of a matrix"

    def flops(self, problem: Problem) -> float:
        """Four per element: compare, subtract, exponential, add."""
        return 4.0 * self.elements(problem)

    def bytes_moved(self, problem: Problem) -> int:
        return self.elements(problem) * itemsize(problem.dtype) + problem.sizes["rows"] * itemsize("fp32")

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        return {"out": OutputSpec((problem.sizes["rows"],), "fp32")}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.log_softmax_bound import logsumexp_reference

        return logsumexp_reference(inputs["x"], profile)

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.log_softmax_errors import of_logsumexp

        return of_logsumexp(problem.sizes["rows"], problem.sizes["cols"], self.tile(problem, tiles))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.log_softmax_errors import logsumexp

        return {"out": ((), logsumexp(inputs["x"], error, self.tile(problem, tiles)))}

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.row_self_checks import logsumexp_self_check

        return logsumexp_self_check(problem)
