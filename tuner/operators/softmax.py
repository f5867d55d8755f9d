"""The row softmax: ``out[r, c] = exp(x[r, c]) / sum_c exp(x[r, c])``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tuner.errors import ProblemError
from tuner.operators.base import LARGEST_TENSOR, Operator, OutputSpec, ShapeParameter, itemsize
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

if TYPE_CHECKING:
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference
    from tuner.operators.variation import Variation

FAMILIES = (
    "randn",
    "masked",
    "lowest",
    "plateau",
    "rising",
    "falling",
    "very_negative",
    "one_hot",
    "huge",
    "constant",
    "tiny",
    "nonfinite",
)


class Softmax(Operator):
    """Softmax over the columns of a matrix. As with torch, a row of nothing but -inf, or with a NaN or +inf, is NaN."""

    name = "softmax"
    summary = "softmax over the columns of a matrix"
    shape_parameters = (
        ShapeParameter("rows", "rows of the matrix"),
        ShapeParameter("cols", "columns, over which the softmax runs"),
        ShapeParameter("row_stride", "elements from one row to the next, in input and output", default="cols"),
    )
    reduced_axis = "cols"
    full_size_families = ("randn", "one_hot")
    further_families = ("randn", "masked")
    example_shape: ClassVar[Mapping[str, int]] = {"rows": 4096, "cols": 4096}

    def _validate(self, sizes: Mapping[str, int]) -> None:
        if sizes["row_stride"] < sizes["cols"]:
            raise ProblemError(
                f"softmax: row_stride must be at least cols, but got {sizes['row_stride']} < {sizes['cols']}"
            )
        if sizes["rows"] * sizes["row_stride"] > LARGEST_TENSOR:
            raise ProblemError(f"softmax: rows x row_stride must be at most {LARGEST_TENSOR} elements")

    def flops(self, problem: Problem) -> float:
        """Five per element: compare, subtract, exponential, add, divide."""
        return 5.0 * problem.sizes["rows"] * problem.sizes["cols"]

    def bytes_moved(self, problem: Problem) -> int:
        return 2 * problem.sizes["rows"] * problem.sizes["cols"] * itemsize(problem.dtype)

    def exponentials(self, problem: Problem) -> float:
        return float(problem.sizes["rows"] * problem.sizes["cols"])

    def families(self, problem: Problem) -> tuple[str, ...]:
        return FAMILIES

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.softmax_inputs import make

        return make(problem, family, seed, device)

    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.softmax_inputs import normal

        return normal(problem, seed, device)

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        sizes = problem.sizes
        strides = None if sizes["row_stride"] == sizes["cols"] else (sizes["row_stride"], 1)
        return {"out": OutputSpec((sizes["rows"], sizes["cols"]), problem.dtype, strides)}

    def scalars(self, problem: Problem) -> dict[str, float]:
        return {}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.softmax_bound import reference

        return reference(inputs["x"], profile)

    def variation(self, problem: Problem, device: str, seed: int) -> Variation:
        """The rows change places."""
        from tuner.operators.variation import of_rows

        return of_rows(problem.sizes["rows"], seed)

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        from tuner.operators.invariants import rows_sum_to_one

        return rows_sum_to_one(inputs["x"], profile)

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.softmax_errors import errors

        return errors(problem.sizes["rows"], problem.sizes["cols"], tiles.get("cols", problem.sizes["cols"]))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.softmax_errors import answer

        return {"out": ((), answer(inputs["x"], error, tiles.get("cols", problem.sizes["cols"])))}

    def check_problems(
        self,
        problem: Problem,
        tiles: Mapping[str, int],
        max_tiles: Mapping[str, int],
        *,
        same_binary: bool = True,
    ) -> tuple[Problem, ...]:
        from tuner.operators.small_problems import softmax_problems

        shapes = softmax_problems(problem.sizes, tiles, max_tiles, same_binary)
        return tuple(self.problem(shape, problem.dtype, problem.settings) for shape in shapes)

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.self_checks import softmax_self_check

        return softmax_self_check(problem)
