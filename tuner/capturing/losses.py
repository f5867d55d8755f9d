"""A cross-entropy as it is called, and which backward pass of a log_softmax is one's.

torch makes a cross-entropy of a log_softmax and a gather, and keeps what the log_softmax gave for the backward pass. By
the address of that the backward pass is known again; where another log_softmax has written there it
is none's any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tuner.capturing.problems_of import NoProblemError, Seen, by_rows
from tuner.problem import Scalar

_IGNORED = -100  # the target that marks a row that is left out


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = _IGNORED,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    operator: str = "cross_entropy",
) -> Seen:
    """``F.cross_entropy`` of [rows, cols] or [cols], or its gradient as ``operator``. Raises ``NoProblemError``.

    The operators give a loss to each row; what ``reduction`` makes of these is left to the caller.
    """
    if weight is not None:
        raise NoProblemError("it has weights of classes")
    if target.is_floating_point():
        raise NoProblemError("its targets are probabilities")
    if input.dim() > 2:
        raise NoProblemError("its classes are not along the last axis; move them there, and make rows of the others")
    options: dict[str, Scalar] = {"label_smoothing": float(label_smoothing)} if label_smoothing else {}
    seen = by_rows(operator, [input], -1, options)
    if ignore_index == _IGNORED:
        return seen
    note = f"ignore_index={ignore_index}: the operator leaves out rows of target {_IGNORED}; put that in its place"
    return Seen(seen.problem, (*seen.notes, note))


class CrossEntropies:
    """Which log_softmax belongs to a cross-entropy that was counted."""

    def __init__(self) -> None:
        self._now: Seen | None = None
        self._backward: dict[tuple[str, int], Seen] = {}

    @contextmanager
    def around(self, backward: Seen) -> Iterator[None]:
        """Around a call whose gradient is ``backward``."""
        self._now = backward
        try:
            yield
        finally:
            self._now = None

    def log_softmax(self, output: torch.Tensor) -> None:
        """Called with what each log_softmax gives."""
        place = _place(output)
        if self._now is None:
            self._backward.pop(place, None)
        else:
            self._backward[place] = self._now

    def backward_of(self, output: torch.Tensor) -> Seen | None:
        """The gradient of the cross-entropy that this is of; None where it is of none."""
        return self._backward.get(_place(output))


def _place(tensor: torch.Tensor) -> tuple[str, int]:
    return (str(tensor.device), tensor.data_ptr())
