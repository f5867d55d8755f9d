"""What the operators over the rows of matrices have in common: shape, limits, and the small shapes of the check.

Each row is computed by itself, and matrices are [rows, cols] with ``row_stride`` elements from one row to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tuner.errors import ProblemError
from tuner.operators.base import LARGEST_TENSOR, Operator, OutputSpec, ShapeParameter
from tuner.problem import Problem

if TYPE_CHECKING:
    import torch

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
"""Of logits ``x`` (``tuner.operators.softmax_inputs``)."""

FAMILIES_OF_SUMS = (*FAMILIES, "climbing")
"""Where what is written is the sum of a row, or its logarithm, of which roundings hide more."""


class RowOperator(Operator):
    """An operator on the rows of matrices; of one matrix ``x`` of logits, where a subclass says nothing else."""

    shape_parameters: tuple[ShapeParameter, ...] = (
        ShapeParameter("rows", "rows of the matrix"),
        ShapeParameter("cols", "columns, over which the softmax runs"),
        ShapeParameter("row_stride", "elements from one row to the next, in input and output", default="cols"),
    )
    reduced_axis = "cols"
    full_size_families = ("randn", "one_hot")
    further_families: tuple[str, ...] = ("randn", "masked")
    example_shape: ClassVar[Mapping[str, int]] = {"rows": 4096, "cols": 4096}
    tensor_names: tuple[str, ...] = ("x", "out")
    # The matrices [rows, cols] among them whose rows need not be equally far apart in all.
    matrices: tuple[str, ...] = ()

    def _validate(self, sizes: Mapping[str, int]) -> None:
        if sizes["row_stride"] < sizes["cols"]:
            raise ProblemError(
                f"{self.name}: row_stride must be at least cols, but got {sizes['row_stride']} < {sizes['cols']}"
            )
        if sizes["rows"] * sizes["row_stride"] > LARGEST_TENSOR:
            raise ProblemError(f"{self.name}: rows x row_stride must be at most {LARGEST_TENSOR} elements")

    def exponentials(self, problem: Problem) -> float:
        """One per element."""
        return float(self.elements(problem))

    def families(self, problem: Problem) -> tuple[str, ...]:
        return FAMILIES

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.softmax_inputs import make

        return make(problem, family, seed, device)

    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.softmax_inputs import normal

        return normal(problem, seed, device)

    def scalars(self, problem: Problem) -> dict[str, float]:
        return {}

    def variation(self, problem: Problem, device: str, seed: int) -> Variation:
        """The rows of all tensors change places."""
        from tuner.operators.variation import of_rows

        return of_rows(problem.sizes["rows"], seed, self.tensor_names)

    def strides(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Where rows have a gap, another one in each of several matrices; contiguous ones stay so."""
        from tuner.operators.layouts import own_row_strides

        stride = problem.sizes["row_stride"]
        if stride == problem.sizes["cols"] or len(self.matrices) < 2:
            return {}
        return dict(own_row_strides(self.matrices, stride))

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

    def stand_ins(
        self, problem: Problem, tiles: Mapping[str, int], max_tiles: Mapping[str, int]
    ) -> tuple[Problem, ...]:
        """Few rows of the tuned length, where no small problem has them; and many rows of the shortest one's."""
        from tuner.operators.small_problems import interpreted_row
        from tuner.operators.stand_ins import crowd

        sizes, small = problem.sizes, self.check_problems(problem, tiles, max_tiles, same_binary=False)
        shortest = min(small, key=lambda at: at.sizes["cols"]).sizes
        shapes = [{**shortest, "rows": crowd(sizes["rows"])}]
        cols = interpreted_row(sizes["cols"])
        if all(at.sizes["cols"] != cols for at in small):
            stride = sizes["row_stride"] - sizes["cols"] + cols
            few = {**sizes, "rows": min(3, sizes["rows"]), "cols": cols, "row_stride": stride}
            shapes.insert(0, few | ({"k": shortest["k"]} if "k" in sizes else {}))
        return tuple(self.problem(shape, problem.dtype, problem.settings) for shape in shapes)

    @staticmethod
    def elements(problem: Problem) -> int:
        """Elements of one matrix, those between its rows not counted."""
        return problem.sizes["rows"] * problem.sizes["cols"]

    @staticmethod
    def matrix(problem: Problem) -> OutputSpec:
        """An output matrix of the problem's shape, dtype and row stride."""
        sizes = problem.sizes
        strides = None if sizes["row_stride"] == sizes["cols"] else (sizes["row_stride"], 1)
        return OutputSpec((sizes["rows"], sizes["cols"]), problem.dtype, strides)

    @staticmethod
    def tile(problem: Problem, tiles: Mapping[str, int]) -> int:
        """Columns of a tile: of ``tiles``, or the whole row."""
        return tiles.get("cols", problem.sizes["cols"])
