"""How the ``python`` format makes one callable of an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.operators import get
from tuner.problem import Problem, Scalar


@dataclass(frozen=True)
class Callable:
    """``axes`` are the sizes that a call gives, in order; ``options`` those that choose a table.

    ``tensors``: the axes of each tensor, whose product is how many elements it has. ``implied``: sizes that equal
    another one in every call (tensors are made contiguous first). ``unset``: options that are an argument of the launch
    and choose nothing. ``constant``: what rules know beside, which is the same in every call: options that a call does
    not have, at their defaults. ``line``: the call, for people.
    """

    axes: tuple[str, ...]
    line: str
    tensors: tuple[tuple[str, ...], ...]
    implied: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    constant: Mapping[str, Scalar] = field(default_factory=dict)

    def shape(self, problem: Problem) -> tuple[int, ...]:
        """The key of a problem's size."""
        return tuple(problem.sizes[axis] for axis in self.axes)

    def settings(self, problem: Problem) -> tuple[Scalar, ...]:
        """The key of a problem's options."""
        return tuple(problem.settings[name] for name in self.options)

    def why_not(self, problem: Problem) -> str:
        """Why a call never asks for ``problem``; empty where it does."""
        for name, other in self.implied.items():
            if problem.sizes[name] != problem.sizes[other]:
                return f"{name} is not {other}, and tensors are made contiguous first"
        for name, value in self.constant.items():
            if problem.settings.get(name, value) != value:
                return f"a call of the package has no {name}"
        return ""


CALLABLES: dict[str, Callable] = {
    "softmax": Callable(
        axes=("rows", "cols"),
        tensors=(("rows", "cols"),),
        implied={"row_stride": "cols"},
        line="softmax(x): over the last axis",
    ),
    "attention_fwd": Callable(
        axes=("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim"),
        tensors=(("batch", "heads", "q_len", "head_dim"), ("batch", "kv_heads", "kv_len", "head_dim")),
        options=("causal", "allow_tf32"),
        unset=("scale",),
        constant={**{o.name: o.default for o in get("attention_fwd").options if o.late}, "plain_attention": True},
        line="attention_fwd(q, k, v, causal=False, scale=None, allow_tf32=False): output and log-sum-exp",
    ),
}
"""By operator. Each has a template ``templates/python/_<operator>.py.j2``."""
