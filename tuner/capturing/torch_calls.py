"""Sees what a program asks of torch: functions as they are called, and the operators below them.

Attention and the cross-entropy are seen where they are called, since torch takes them apart, attention in ways that
differ by device; what happens inside is not counted once more. Softmax is seen as the operator that every spelling of
it ends in. Backward passes run operators of their own. An exported package's callables are operators too, under the
package's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tuner.capturing.inside import inside, is_inside
from tuner.capturing.losses import CrossEntropies, cross_entropy
from tuner.capturing.packages import is_exported, of_package
from tuner.capturing.problems_of import NoProblemError, Seen, attention, attention_backward, by_rows
from tuner.capturing.recording import Recording

# Where the inputs of an operator over rows stand among the arguments of torch's, and where the axis does.
_BY_ROWS = {
    torch.ops.aten._softmax.default: ("softmax", (0,), 1),
    torch.ops.aten._softmax_backward_data.default: ("softmax_bwd", (1, 0), 2),
}
_ATTENTION_BACKWARD = {
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
}
_OF_TORCH = ("aten", "prim", "prims", "profiler")


def count(recording: Recording, what: str, look: Callable[[], Seen]) -> Seen | None:
    """Add what ``look`` makes of a call to ``recording``, or why it makes nothing of it; returns what was added."""
    try:
        seen = look()
    except NoProblemError as error:
        recording.pass_over(what, str(error))
    except Exception as error:  # a call of a form that is not known here must not end the program that makes it
        recording.pass_over(what, f"it cannot be read ({type(error).__name__}: {error})")
    else:
        recording.add(seen.problem, seen.notes)
        return seen
    return None


class Functions(TorchFunctionMode):
    """Sees ``scaled_dot_product_attention`` and ``cross_entropy``; tells ``losses`` of the latter."""

    def __init__(self, recording: Recording, losses: CrossEntropies) -> None:
        super().__init__()
        self._recording, self._losses = recording, losses

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count it, then call it."""
        given = dict(kwargs or {})
        if func is functional.cross_entropy and not is_inside():
            return self._cross_entropy(*args, **given)
        if func is not functional.scaled_dot_product_attention or is_inside():
            return func(*args, **given)
        named = {{"query": "q", "key": "k", "value": "v"}.get(name, name): value for name, value in given.items()}
        count(self._recording, "scaled_dot_product_attention", lambda: attention(*args, **named))
        with inside():
            return func(*args, **given)

    def _cross_entropy(self, *args: Any, **given: Any) -> Any:
        """Where no operator computes it, the log_softmax in it still is one's."""
        if count(self._recording, "cross_entropy", lambda: cross_entropy(*args, **given)) is None:
            return functional.cross_entropy(*args, **given)
        with inside(), self._losses.around(cross_entropy(*args, **given, operator="cross_entropy_bwd")):
            return functional.cross_entropy(*args, **given)


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees softmax and its like, what backward passes run, and the callables of exported packages."""

    def __init__(self, recording: Recording, losses: CrossEntropies) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recording, self._losses = recording, losses

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count it, then run it."""
        given = dict(kwargs or {})
        if func is torch.ops.aten._log_softmax.default:
            return self._log_softmax(func, *args, **given)
        if is_inside():
            return func(*args, **given)
        namespace, _, name = func._schema.name.partition("::")
        if func in _BY_ROWS:
            operator, places, axis = _BY_ROWS[func]
            count(self._recording, operator, lambda: by_rows(operator, [args[at] for at in places], args[axis]))
        elif func is torch.ops.aten.logsumexp.default:
            count(self._recording, "logsumexp", lambda: _logsumexp(*args[:2]))
        elif namespace == "aten" and name in _ATTENTION_BACKWARD:
            count(self._recording, "attention_bwd", lambda: attention_backward(_by_name(func, args, given)))
        elif func is torch.ops.aten._log_softmax_backward_data.default:
            self._log_softmax_backward(*args[1:3])
        elif namespace not in _OF_TORCH and is_exported(namespace):
            named = _by_name(func, args, given)
            count(self._recording, f"{namespace}.{name}", lambda: of_package(name, named))
            with inside():
                return func(*args, **given)
        return func(*args, **given)

    def _log_softmax(self, func: Any, x: torch.Tensor, axis: int, *rest: Any, **given: Any) -> Any:
        if not is_inside():
            count(self._recording, "log_softmax", lambda: by_rows("log_softmax", [x], axis))
        found = func(x, axis, *rest, **given)
        self._losses.log_softmax(found)
        return found

    def _log_softmax_backward(self, y: torch.Tensor, axis: int) -> None:
        loss = self._losses.backward_of(y)
        if loss is not None:
            self._recording.add(loss.problem, loss.notes)
        else:
            count(self._recording, "the backward pass of log_softmax", lambda: _log_softmax_backward(y, axis))


def _by_name(func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call of an operator by their names."""
    return {**dict(zip([a.name for a in func._schema.arguments], args, strict=False)), **named}


def _log_softmax_backward(y: torch.Tensor, axis: int) -> Seen:
    alone = "no operator computes it alone"
    if axis not in (-1, y.dim() - 1) or not y.numel():
        raise NoProblemError(alone)
    cols = y.shape[-1]
    raise NoProblemError(
        f"{alone}; where it is a cross-entropy's, cross_entropy and cross_entropy_bwd compute it in one with the "
        f"log_softmax: tune both with --shape rows={y.numel() // cols},cols={cols}"
    )


def _logsumexp(x: torch.Tensor, axes: Sequence[int]) -> Seen:
    if len(axes) != 1:
        raise NoProblemError("it runs over several axes")
    return by_rows("logsumexp", [x], axes[0])
