"""The problems whose configs are sent through the check: of every operator some, of benchmark size or small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import tuner
from benchmarks.problems import (
    ATTENTION,
    CROSS_ENTROPY,
    SOFTMAX,
    TOPK,
    VARLEN,
    attention_bwd_problem,
    attention_problem,
    cross_entropy_problem,
    decode_problem,
    row_problem,
    softmax_problem,
    topk_problem,
    varlen_problem,
)
from tuner.problem import Problem

_SMALL_SOFTMAX = [(300, 1000), (40, 20000)]
_SMALL_ATTENTION = [(2, 4, 300, 64, False), (2, 4, 300, 64, True)]
# Those of the benchmark whose cache in fp32 leaves room beside it for what the check keeps.
_DECODE = [(8, 4096, 0), (64, 4096, 0), (8, 32768, 0), (64, 4096, 16), (8, 32768, 64)]
_SMOOTHED = {"label_smoothing": 0.1, "z_loss": 1e-4}


def problems(dtypes: Sequence[str], small: bool, only: Sequence[str] | None = None) -> Iterator[Problem]:
    """The benchmark problems (or small ones) in each of ``dtypes``; of the operators ``only``, or of all."""
    for dtype in dtypes:
        for operator, found in _by_operator(dtype, small).items():
            if only is None or operator in only:
                yield from found


def operators() -> tuple[str, ...]:
    """The operators that have problems, in the order in which they come."""
    return tuple(_by_operator("bf16", True))


def _by_operator(dtype: str, small: bool) -> dict[str, Iterable[Problem]]:
    rows = _SMALL_SOFTMAX if small else SOFTMAX
    attention = _SMALL_ATTENTION if small else ATTENTION
    losses = _SMALL_SOFTMAX if small else CROSS_ENTROPY
    return {
        "softmax": (softmax_problem(*shape, dtype) for shape in rows),
        **{name: _rows(name, rows, dtype) for name in ("log_softmax", "logsumexp", "softmax_bwd")},
        "softmax_topk": (topk_problem(*shape, dtype) for shape in ([(40, 3000, 8)] if small else TOPK)),
        **{name: _losses(name, losses, dtype) for name in ("cross_entropy", "cross_entropy_bwd")},
        "attention_fwd": (attention_problem(*shape, dtype) for shape in attention),
        "attention_bwd": (attention_bwd_problem(*shape, dtype) for shape in attention),
        "attention_decode": _decode(dtype, small),
        "attention_varlen": _varlen(dtype, small),
    }


def _rows(operator: str, shapes: Sequence[tuple[int, int]], dtype: str) -> Iterator[Problem]:
    return (row_problem(operator, *shape, dtype) for shape in shapes)


def _losses(operator: str, shapes: Sequence[tuple[int, int]], dtype: str) -> Iterator[Problem]:
    """Without options, and the first shape with both of them."""
    yield from (cross_entropy_problem(*shape, operator, dtype) for shape in shapes)
    rows, cols = shapes[0]
    yield tuner.make_problem(operator, {"rows": rows, "cols": cols}, dtype, _SMOOTHED)


def _decode(dtype: str, small: bool) -> Iterator[Problem]:
    if not small:
        return (decode_problem(*shape, dtype) for shape in _DECODE)
    shape = {"batch": 3, "heads": 4, "kv_heads": 2, "q_len": 2, "kv_len": 300, "head_dim": 64}
    make = partial(tuner.make_problem, "attention_decode", dtype=dtype)
    return (make({**shape, "page_size": page_size}) for page_size in (0, 32))


def _varlen(dtype: str, small: bool) -> Iterator[Problem]:
    if not small:
        return (varlen_problem(*shape, dtype) for shape in VARLEN)
    shape = {"batch": 8, "heads": 4, "kv_heads": 2, "max_len": 300, "head_dim": 64}
    make = partial(tuner.make_problem, "attention_varlen", shape, dtype)
    return (make({"causal": causal}) for causal in (False, True))
