"""The operators that can be tuned, by name: the shipped ones, and those that a user's file has registered."""

from __future__ import annotations

import difflib

from tuner.errors import ProblemError
from tuner.operators.attention_bwd import AttentionBackward
from tuner.operators.attention_decode import AttentionDecode
from tuner.operators.attention_fwd import AttentionForward
from tuner.operators.attention_varlen import AttentionVarlen
from tuner.operators.base import Operator, Option, OutputSpec, ShapeParameter, itemsize
from tuner.operators.cross_entropy import CrossEntropy
from tuner.operators.cross_entropy_bwd import CrossEntropyBackward
from tuner.operators.log_softmax import LogSoftmax
from tuner.operators.logsumexp import LogSumExp
from tuner.operators.softmax import Softmax
from tuner.operators.softmax_bwd import SoftmaxBackward
from tuner.operators.softmax_topk import SoftmaxTopK

__all__ = ["Operator", "Option", "OutputSpec", "ShapeParameter", "get", "itemsize", "names", "register"]

_OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Softmax(),
        LogSoftmax(),
        LogSumExp(),
        SoftmaxBackward(),
        SoftmaxTopK(),
        CrossEntropy(),
        CrossEntropyBackward(),
        AttentionForward(),
        AttentionBackward(),
        AttentionDecode(),
        AttentionVarlen(),
    )
}


_REGISTERED: dict[str, Operator] = {}


def names(*, shipped: bool = False) -> tuple[str, ...]:
    """The known operators, in the order in which they are listed; with ``shipped`` those of this project only."""
    return tuple(_OPERATORS) if shipped else (*_OPERATORS, *_REGISTERED)


def register(operator: Operator) -> None:
    """Make ``operator`` known in this process, by its name and by the part of it before ``@``."""
    _REGISTERED[operator.name] = operator


def get(name: str) -> Operator:
    """The operator called ``name``.

    Raises:
        ProblemError: there is none of that name.
    """
    if name in _OPERATORS:
        return _OPERATORS[name]
    if name in _REGISTERED:
        return _REGISTERED[name]
    newest = [known for known in _REGISTERED if known.partition("@")[0] == name]
    if newest:
        return _REGISTERED[newest[-1]]
    own, at, _ = name.partition("@")
    if at:
        raise ProblemError(
            f"{name} is an operator of a file of your own; name it, as FILE.py:{own}, unchanged since then"
        )
    close = difflib.get_close_matches(name, _OPERATORS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_OPERATORS)}"
    raise ProblemError(f"there is no operator {name!r}; {hint}")
