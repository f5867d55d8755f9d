"""Input families of the softmax's gradient: the saved output y, a softmax of logits in its dtype, and its gradient dy.

=============== ====================================================================================================
randn           y of standard normal logits, dy standard normal
positive        dy between 0 and 1: the row's sum has one sign, so that what is left out of it does not cancel
masked          y of logits with -inf among them (zeros where they are, NaN where nothing else is)
one_hot         y is all but 1 in one column and all but 0 in the others
needle          dy is 8 in one column and 0 in the others, as a loss of one class gives it; another column in every row
offset          dy is 100 + standard normal: the row's sum cancels most of it
constant        every y of a row the same, and every dy, so that little but the roundings of y is left
huge            dy is standard normal times 1024
tiny            dy is standard normal times 2^-13
nonfinite       a NaN at the start or end of a row of dy (the row is NaN), +inf or -inf in its middle
=============== ====================================================================================================
"""

from __future__ import annotations

import torch

from tuner.errors import ProblemError
from tuner.operators import softmax_inputs
from tuner.operators.reference import BLOCK_ELEMENTS
from tuner.operators.tensors import seed_of
from tuner.problem import Problem

FAMILIES = (
    "randn",
    "positive",
    "masked",
    "one_hot",
    "needle",
    "offset",
    "constant",
    "huge",
    "tiny",
    "nonfinite",
)
# Of the families of logits, those that the softmax is taken of; of normal ones for all others.
_LOGITS = ("masked", "one_hot", "constant")
# Up to this many elements the softmax is taken on the CPU, so that it has the same bits on every device.
_ON_CPU = 2**20
_FACTORS = {"huge": 1024.0, "tiny": 2.0**-13}
_NEEDLE, _OFFSET = 8.0, 100.0


def normal(problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
    """``y``, the softmax of standard normal logits, and standard normal ``dy``; [rows, cols] with the row stride."""
    y = softmax_inputs.normal(problem, seed, device)["x"]
    if device != "meta":  # a layout without values
        _softmax(y)
    return {"y": y, "dy": softmax_inputs.normal(problem, seed_of("dy", seed), device)["x"]}


def make(problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
    """``y`` and ``dy`` [rows, cols] of one family. Raises ``ProblemError`` on an unknown family."""
    if family not in FAMILIES:
        raise ProblemError(f"{problem.operator} has no input family {family!r}; it has {', '.join(FAMILIES)}")
    y = softmax_inputs.make(problem, family if family in _LOGITS else "randn", seed_of(family, seed), device)["x"]
    _softmax(y)
    of_dy = family if family == "nonfinite" else "randn"
    dy = softmax_inputs.make(problem, of_dy, seed_of("dy", family, seed), device)["x"]
    row, col = (torch.arange(size, device=dy.device) for size in dy.shape)
    if family in _FACTORS:
        dy.mul_(_FACTORS[family])
    elif family == "positive":
        dy.sub_(dy.floor())  # the part behind the point
    elif family == "offset":
        dy.add_(_OFFSET)
    elif family == "constant":
        dy.copy_((row % 7 - 2.5)[:, None].expand_as(dy))
    elif family == "needle":
        dy.zero_()
        dy[row, (row * 37 + 11) % len(col)] = _NEEDLE
    return {"y": y, "dy": dy}


def _softmax(x: torch.Tensor) -> None:
    """Put the softmax of every row of logits in its place."""
    for block in torch.split(x, max(1, BLOCK_ELEMENTS // x.shape[1])):
        logits = block.cpu() if x.numel() <= _ON_CPU else block
        block.copy_(torch.softmax(logits.float(), dim=1))
