"""Calls of the callables that an exported package has, by the names of their arguments."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tuner.capturing.problems_of import NoProblemError, Seen, attention, by_rows, declared, made, own_operators
from tuner.problem import Scalar

# The inputs of those over rows that choose nothing else.
_ROWS = {"softmax": ("x",), "log_softmax": ("x",), "logsumexp": ("x",), "softmax_bwd": ("y", "dy")}


def is_exported(namespace: str) -> bool:
    """Whether a package that ``tuner export`` wrote is imported under this name."""
    return any(name.replace(".", "_") == namespace and f"{name}._lookup" in sys.modules for name in list(sys.modules))


def of_package(name: str, named: Mapping[str, Any]) -> Seen:
    """What a call of the package's ``name`` is. Raises ``NoProblemError``."""
    if name in _ROWS:
        return by_rows(name, [named[tensor] for tensor in _ROWS[name]], -1)
    if name == "softmax_topk":
        return by_rows(name, [named["x"]], -1, sizes={"k": int(named["k"])})
    if name in ("cross_entropy", "cross_entropy_bwd"):
        factors: dict[str, Scalar] = {n: float(named[n]) for n in ("label_smoothing", "z_loss") if named[n]}
        return by_rows(name, [named["logits"]], -1, factors)
    if name in ("attention_fwd", "attention_bwd"):
        return _attention(name, named)
    if name == "attention_decode":
        return attention(named["q"], named["k"], named["v"], scale=named.get("scale"), operator=name)
    own = own_operators().get(name)
    if own is None:
        raise NoProblemError(f"its file is not named: --operator FILE.py:{name}")
    return declared(own, named, named)


def _attention(name: str, named: Mapping[str, Any]) -> Seen:
    """Queries and keys are aligned at the last."""
    q = named["q"]
    seen = attention(q, named["k"], named["v"], scale=named.get("scale"), operator=name)
    options = {**seen.problem.settings, "causal": bool(named.get("causal"))}
    options["allow_tf32"] = bool(named.get("allow_tf32"))
    return Seen(made(name, seen.problem.sizes, q.dtype, options), seen.notes)
