"""The operators that can be tuned, by name."""

from __future__ import annotations

import difflib

from tuner.errors import ProblemError
from tuner.operators.attention_fwd import AttentionForward
from tuner.operators.base import Operator, Option, OutputSpec, ShapeParameter
from tuner.operators.softmax import Softmax

__all__ = ["Operator", "Option", "OutputSpec", "ShapeParameter", "get", "names"]

_OPERATORS: dict[str, Operator] = {operator.name: operator for operator in (Softmax(), AttentionForward())}


def names() -> tuple[str, ...]:
    """The known operators, in the order in which they are listed."""
    return tuple(_OPERATORS)


def get(name: str) -> Operator:
    """The operator called ``name``.

    Raises:
        ProblemError: there is none of that name.
    """
    if name in _OPERATORS:
        return _OPERATORS[name]
    close = difflib.get_close_matches(name, _OPERATORS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_OPERATORS)}"
    raise ProblemError(f"there is no operator {name!r}; {hint}")
