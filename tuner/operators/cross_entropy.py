"""The cross-entropy of rows of logits with integer targets: each row's loss and, for the gradient, its log-sum-exp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.errors import ProblemError
from tuner.operators.base import Option, OutputSpec, itemsize
from tuner.operators.row_operator import RowOperator
from tuner.precision import PrecisionProfile
from tuner.problem import Problem, Scalar

if TYPE_CHECKING:
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference

_TARGET_BYTES = 8


class CrossEntropyRows(RowOperator):
    """What the cross-entropy and its gradient have in common: the options, and what belongs to a row.

    ``targets`` are int64 columns. -100 marks a row that is ignored, as torch's ``ignore_index`` does where it is not
    set: its loss and its gradient are 0. What any other number that is no column does is not defined.
    """

    options = (
        Option(
            "label_smoothing",
            "float",
            None,
            "share of the label that is spread over all columns, below 1",
            zero_is_off=True,
        ),
        Option(
            "z_loss",
            "float",
            None,
            "factor of the squared log-sum-exp that is added to each loss",
            zero_is_off=True,
        ),
    )

    def _settings(self, options: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
        settings = super()._settings(options)
        smoothing = dict(settings)["label_smoothing"]
        if smoothing is not None and float(smoothing) >= 1.0:
            raise ProblemError(f"{self.name}: label_smoothing must be below 1, but got {smoothing!r}")
        return settings

    def scalars(self, problem: Problem) -> dict[str, float]:
        """Both options, 0 where they are not given."""
        return {option.name: float(problem.settings[option.name] or 0.0) for option in self.options}

    @staticmethod
    def row_bytes(numbers: int) -> int:
        """Bytes that belong to a row beside its logits: its target and as many fp32 ``numbers``."""
        return _TARGET_BYTES + numbers * itemsize("fp32")


class CrossEntropy(CrossEntropyRows):
    """``loss = lse - (1 - e) x[t] - e mean(x) + z lse^2`` by row: t is its target, e the label smoothing, z the z-loss.

    ``lse`` is the natural log-sum-exp of the row, also where the row is ignored. A row of nothing but -inf, or with a
    NaN or +inf in it, is NaN in both, as torch's loss is.
    """

    name = "cross_entropy"
    summary = "cross-entropy of rows of logits: each row's loss and log-sum-exp"
    tensor_names = ("logits", "targets", "loss", "lse")

    def flops(self, problem: Problem) -> float:
        """Four per element: compare, subtract, exponential, add; with label smoothing one more addition."""
        return (5.0 if problem.settings["label_smoothing"] else 4.0) * self.elements(problem)

    def bytes_moved(self, problem: Problem) -> int:
        return self.elements(problem) * itemsize(problem.dtype) + problem.sizes["rows"] * self.row_bytes(2)

    def families(self, problem: Problem) -> tuple[str, ...]:
        """Those of logits, without the lowest numbers where the loss has a sum or square, which fp32 cannot hold."""
        families = super().families(problem)
        return tuple(f for f in families if f != "lowest" or not any(self.scalars(problem).values()))

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.cross_entropy_inputs import make

        return make(problem, family, seed, device)

    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        """Standard normal logits, and targets drawn at random; no row is ignored."""
        from tuner.operators.cross_entropy_inputs import drawn

        return drawn(problem, seed, device)

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        rows = OutputSpec((problem.sizes["rows"],), "fp32")
        return {"loss": rows, "lse": rows}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.cross_entropy_bound import reference

        return reference(inputs["logits"], inputs["targets"], profile=profile, **self.scalars(problem))

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        from tuner.operators.cross_entropy_invariants import constant_rows

        return constant_rows(inputs["logits"], inputs["targets"], profile=profile, **self.scalars(problem))

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.cross_entropy_errors import loss_errors

        rows, cols = problem.sizes["rows"], problem.sizes["cols"]
        return loss_errors(rows, cols, self.tile(problem, tiles), **self.scalars(problem))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.cross_entropy_errors import wrong_loss

        tile = self.tile(problem, tiles)
        loss, lse = wrong_loss(inputs["logits"], inputs["targets"], error, tile, **self.scalars(problem))
        return {"loss": ((), loss), "lse": ((), lse)}

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.cross_entropy_self_checks import loss_self_check

        return loss_self_check(problem, **self.scalars(problem))
