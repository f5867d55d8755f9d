"""The largest softmax probabilities of each row, and where they are: the softmax and a top-k in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tuner.errors import ProblemError
from tuner.operators.base import OutputSpec, ShapeParameter, itemsize
from tuner.operators.row_operator import FAMILIES_OF_SUMS, RowOperator
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

if TYPE_CHECKING:
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference

_INDEX_BYTES = 8


class SoftmaxTopK(RowOperator):
    """The k largest of the softmax of each row of ``x`` [rows, cols], and their columns.

    ``values`` [rows, k] of the input's dtype and ``indices`` [rows, k] int64, in descending order of ``x``; equal
    elements (0.0 and -0.0 are equal) in ascending order of their column. A row whose softmax is NaN, since it has a NaN
    or +inf in it or nothing but -inf, has k probabilities of NaN, which are all alike: its indices are 0 to k - 1.
    """

    name = "softmax_topk"
    summary = "the k largest softmax probabilities of each row, and their columns"
    shape_parameters = (
        ShapeParameter("rows", "rows of the matrix"),
        ShapeParameter("cols", "columns, over which the softmax runs"),
        ShapeParameter("k", "how many probabilities of each row; at most cols", maximum=128),
        ShapeParameter("row_stride", "elements from one row of the input to the next", default="cols"),
    )
    further_families = ("randn", "masked", "ties")
    example_shape: ClassVar[Mapping[str, int]] = {"rows": 4096, "cols": 32768, "k": 8}
    tensor_names = ("x", "values", "indices")

    def _validate(self, sizes: Mapping[str, int]) -> None:
        super()._validate(sizes)
        if sizes["k"] > sizes["cols"]:
            raise ProblemError(f"{self.name}: k must be at most cols, but got {sizes['k']} > {sizes['cols']}")

    def flops(self, problem: Problem) -> float:
        """Four per element: compare, subtract, exponential, add. One per probability: divide."""
        return 4.0 * self.elements(problem) + self._found(problem)

    def bytes_moved(self, problem: Problem) -> int:
        size = itemsize(problem.dtype)
        return self.elements(problem) * size + self._found(problem) * (size + _INDEX_BYTES)

    def families(self, problem: Problem) -> tuple[str, ...]:
        return (*FAMILIES_OF_SUMS, "ties", "clustered")

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.topk_inputs import make

        return make(problem, family, seed, device)

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        shape = (problem.sizes["rows"], problem.sizes["k"])
        return {"values": OutputSpec(shape, problem.dtype), "indices": OutputSpec(shape, "int64")}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.topk_bound import reference

        return reference(inputs["x"], problem.sizes["k"], profile)

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        from tuner.operators.topk_bound import largest_are_found

        return largest_are_found(inputs["x"], problem.sizes["k"], profile)

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.topk_errors import errors

        sizes = problem.sizes
        return errors(sizes["rows"], sizes["cols"], sizes["k"], self.tile(problem, tiles))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.topk_errors import answer

        values, indices = answer(inputs["x"], problem.sizes["k"], error, self.tile(problem, tiles))
        return {"values": ((), values), "indices": ((), indices)}

    def check_problems(
        self,
        problem: Problem,
        tiles: Mapping[str, int],
        max_tiles: Mapping[str, int],
        *,
        same_binary: bool = True,
    ) -> tuple[Problem, ...]:
        """Those of the softmax that have at least k columns, k being compiled in; the tuned row, of few rows, where
        there is none, and where all of a row is taken.

        In the interpreter, where each of the k takes its time, k is at most 8 (7 where it is no power of two), but for
        one more shape with two rows and the k of ``problem``.
        """
        from tuner.operators.small_problems import softmax_problems

        sizes = problem.sizes
        k = sizes["k"] if same_binary else min(sizes["k"], 7 if sizes["k"] & (sizes["k"] - 1) else 8)
        shapes = [{**shape, "k": k} for shape in softmax_problems(sizes, tiles, max_tiles, same_binary)]
        wide = [shape for shape in shapes if shape["cols"] >= k]
        if not wide or (sizes["k"] == sizes["cols"] and all(shape["cols"] > sizes["k"] for shape in wide)):
            wide.append({**sizes, "rows": shapes[0]["rows"], "k": k})
        if k < sizes["k"]:
            shortest = min((s for s in shapes if s["cols"] >= sizes["k"]), key=lambda s: s["cols"], default=sizes)
            wide.append({**shortest, "rows": min(2, sizes["rows"]), "k": sizes["k"]})
        return tuple(self.problem(shape, problem.dtype) for shape in wide)

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.topk_self_check import topk_self_check

        return topk_self_check(problem)

    @staticmethod
    def _found(problem: Problem) -> int:
        """Probabilities that are given, of all rows."""
        return problem.sizes["rows"] * problem.sizes["k"]
