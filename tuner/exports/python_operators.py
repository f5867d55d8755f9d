"""How the ``python`` format makes one callable of an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.numerics import TENSOR_DTYPES
from tuner.operators import get
from tuner.problem import Problem, Scalar


@dataclass(frozen=True)
class Callable:
    """``axes`` are the sizes that a call gives, in order; ``options`` those that choose a table.

    ``tensors``: the axes of each tensor, whose product is how many elements it has. ``implied``: sizes that equal
    another one in every call (tensors are made contiguous first). ``switched``: options that are an argument of the
    launch, and choose a table by whether they are given. ``unset``: options that are an argument of the launch and
    choose nothing. ``template`` writes the module, where it is not the operator's own. ``constant``: what rules know
    beside, which is the same in every call: options that a call does not have, at their defaults. ``line``: the call,
    for people.
    """

    axes: tuple[str, ...]
    line: str
    tensors: tuple[tuple[str, ...], ...]
    implied: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    switched: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    template: str = ""
    constant: Mapping[str, Scalar] = field(default_factory=dict)

    def shape(self, problem: Problem) -> tuple[int, ...]:
        """The key of a problem's size."""
        return tuple(problem.sizes[axis] for axis in self.axes)

    def settings(self, problem: Problem) -> tuple[Scalar, ...]:
        """The key of a problem's options."""
        given = tuple(problem.settings[name] for name in self.options)
        return (*given, *(None if problem.settings[name] is None else True for name in self.switched))

    def why_not(self, problem: Problem) -> str:
        """Why a call never asks for ``problem``; empty where it does."""
        if problem.dtype not in TENSOR_DTYPES:
            return f"a call of the package has no scales, which inputs in {problem.dtype} need"
        for name, other in self.implied.items():
            if problem.sizes.get(name, problem.sizes[other]) != problem.sizes[other]:
                return f"{name} is not {other}, as it is in every call of the package"
        for name, value in self.constant.items():
            if {**problem.sizes, **problem.settings}.get(name, value) != value:
                return f"a call of the package has no {name}"
        return ""


_ROWS = ("rows", "cols")
_CONTIGUOUS = {"row_stride": "cols"}
_HEADS = ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim")
_OF_HEADS = (("batch", "heads", "q_len", "head_dim"), ("batch", "kv_heads", "kv_len", "head_dim"))

CALLABLES: dict[str, Callable] = {
    "softmax": Callable(axes=_ROWS, tensors=(_ROWS,), implied=_CONTIGUOUS, line="softmax(x): over the last axis"),
    "log_softmax": Callable(
        axes=_ROWS, tensors=(_ROWS,), implied=_CONTIGUOUS, template="softmax", line="log_softmax(x): over the last axis"
    ),
    "logsumexp": Callable(
        axes=_ROWS, tensors=(_ROWS,), implied=_CONTIGUOUS, line="logsumexp(x): over the last axis, in fp32"
    ),
    "softmax_bwd": Callable(
        axes=_ROWS,
        tensors=(_ROWS,),
        implied=_CONTIGUOUS,
        line="softmax_bwd(y, dy): the gradient by its input",
    ),
    "softmax_topk": Callable(
        axes=("rows", "cols", "k"),
        tensors=(_ROWS, ("rows", "k")),
        implied=_CONTIGUOUS,
        line="softmax_topk(x, k): the largest probabilities and their columns",
    ),
    "cross_entropy": Callable(
        axes=_ROWS,
        tensors=(_ROWS,),
        implied=_CONTIGUOUS,
        switched=("label_smoothing",),
        unset=("z_loss",),
        line="cross_entropy(logits, targets, label_smoothing=0.0, z_loss=0.0): each row's loss and log-sum-exp",
    ),
    "cross_entropy_bwd": Callable(
        axes=_ROWS,
        tensors=(_ROWS,),
        implied=_CONTIGUOUS,
        unset=("label_smoothing", "z_loss"),
        line="cross_entropy_bwd(logits, targets, lse, grad, label_smoothing=0.0, z_loss=0.0): dlogits",
    ),
    "attention_fwd": Callable(
        axes=_HEADS,
        tensors=_OF_HEADS,
        implied={"v_head_dim": "head_dim"},
        options=("causal", "allow_tf32"),
        unset=("scale",),
        constant={**{o.name: o.default for o in get("attention_fwd").options if o.late}, "plain_attention": True},
        line="attention_fwd(q, k, v, causal=False, scale=None, allow_tf32=False): output and log-sum-exp",
    ),
    "attention_bwd": Callable(
        axes=_HEADS,
        tensors=_OF_HEADS,
        options=("causal", "allow_tf32"),
        unset=("scale",),
        constant={**{o.name: o.default for o in get("attention_bwd").options if o.late}, "plain_attention": True},
        line="attention_bwd(q, k, v, out, lse, dout, causal=False, scale=None, allow_tf32=False): dq, dk and dv",
    ),
    "attention_decode": Callable(
        axes=_HEADS,
        tensors=_OF_HEADS,
        unset=("scale",),
        constant={"page_size": 0},
        line="attention_decode(q, k, v, seq_lens, scale=None): output and log-sum-exp",
    ),
}
"""By operator. Each has a template ``templates/python/_<operator>.py.j2``, or the one that ``template`` names."""
