"""Inputs of the cross-entropy and of its gradient: logits, targets, and for the gradient log-sum-exps and gradients.

The logits are those of the row softmax (``tuner.operators.softmax_inputs``), family by family. The targets of every
family go through what a target can be: by row number, in turns of seven, some column, the last, the middle one, none
(the row is ignored), the one with the largest logit, the first, and some other column. In one family nearly all rows
are ignored.
"""

from __future__ import annotations

import torch

from tuner.operators import softmax_inputs
from tuner.operators.reference import BLOCK_ELEMENTS
from tuner.operators.tensors import seed_of, standard_normal
from tuner.problem import Problem

IGNORED = -100
"""The target of a row that does not count, as torch has it (``ignore_index``)."""
IGNORED_ROW = 3
"""The first row that is ignored in a structured family; every seventh after it is too."""

MOSTLY_IGNORED = "constant"
"""The family in which all rows but the first and the last are ignored, so that whole blocks of rows are."""

_TURNS = 7


def make(problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
    """``logits`` [rows, cols] and ``targets`` [rows] int64 of one family.

    Raises ``ProblemError`` on an unknown family.
    """
    logits = softmax_inputs.make(problem, family, seed, device)["x"]
    targets = _in_turns(logits)
    if family == MOSTLY_IGNORED:
        targets[1:-1] = IGNORED
    return {"logits": logits, "targets": targets}


def drawn(problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
    """Standard normal ``logits``, and ``targets`` that are columns drawn at random, for timing."""
    rows, cols = problem.sizes["rows"], problem.sizes["cols"]
    logits = softmax_inputs.normal(problem, seed, device)["x"]
    if device == "meta":  # a layout without values
        return {"logits": logits, "targets": torch.empty(rows, dtype=torch.int64, device=device)}
    generator = torch.Generator("cpu").manual_seed(seed_of("targets", seed))
    targets = torch.randint(cols, (rows,), generator=generator).to(device)
    return {"logits": logits, "targets": targets}


def with_gradients(inputs: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """``inputs`` and, both [rows] fp32, the ``lse`` of its logits and a standard normal ``grad``."""
    logits = inputs["logits"]
    grad = standard_normal((len(logits),), "fp32", seed_of("grad", seed), logits.device.type)
    return {**inputs, "lse": log_sum_exp(logits), "grad": grad}


def log_sum_exp(logits: torch.Tensor) -> torch.Tensor:
    """The natural log-sum-exp of each row of ``logits`` [rows, cols], by two passes in float64: fp32 [rows].

    NaN for a row of nothing but -inf, or with a NaN or +inf in it.
    """
    if logits.is_meta:  # a layout without values
        return torch.empty(len(logits), dtype=torch.float32, device="meta")
    parts = []
    for block in torch.split(logits, max(1, BLOCK_ELEMENTS // logits.shape[1])):
        x = block.double()
        m = x.amax(dim=1, keepdim=True)
        parts.append((m + (x - m).exp().sum(dim=1, keepdim=True).log())[:, 0].float())
    return torch.cat(parts)


def _in_turns(logits: torch.Tensor) -> torch.Tensor:
    rows, cols = logits.shape
    row = torch.arange(rows, device=logits.device)
    turn = row % _TURNS
    targets = (row * 104729 + 13) % cols
    targets = torch.where(turn == 1, cols - 1, targets)
    targets = torch.where(turn == 2, cols // 2, targets)
    targets = torch.where(turn == IGNORED_ROW, IGNORED, targets)
    targets = torch.where(turn == 4, logits.argmax(dim=1), targets)
    return torch.where(turn == 5, 0, targets)
